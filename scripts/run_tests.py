"""Runs the suite in the order in which a failure tells most, and sums it up.

The rooms run in parallel (pytest-xdist, one worker a core); pipelines and console run in one process, because they
share one Spark session and one browser; the clusters run apart, because they start many processes and watch time-outs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

# Debian packages that some tests drive: installed when we may, else those tests skip and say so.
PACKAGES = {
    "kcat": "kcat",
    "jq": "jq",
    "strace": "strace",
    "initdb": "postgresql",
    "faketime": "faketime",
    "zsh": "zsh",
    "fish": "fish",
    "protoc": "protobuf-compiler",
    "chromium": "chromium",
    "promtool": "prometheus",
    "mariadbd": "mariadb-server",
}

SPREAD = ["-n", "2", "--dist", "loadfile"]
ALONE = ["-p", "no:xdist"]
# What does not belong to the rooms has a group of its own, with a budget of its own.
OTHERS = {
    "cluster": SPREAD,
    "searches": SPREAD,
    "security": SPREAD,
    "first_hour": SPREAD,
    "console": ALONE,
    "pipelines": ALONE,
}
GROUPS = {
    "rooms": ["tests", *(f"--ignore=tests/{name}" for name in OTHERS), *SPREAD],
    **{name: [f"tests/{name}", *how] for name, how in OTHERS.items() if Path("tests", name).is_dir()},
}


def install_packages() -> None:
    missing = [package for command, package in PACKAGES.items() if not _present(command)]
    if not missing or shutil.which("apt-get") is None or os.geteuid() != 0:
        return
    print(f"installing for the tests: {', '.join(missing)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    subprocess.run(["apt-get", "update", "-qq"], **quiet, check=False)  # type: ignore[call-overload]
    subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], **quiet, check=False)  # type: ignore[call-overload]


def _present(command: str) -> bool:
    if shutil.which(command):
        return True
    return command == "initdb" and os.path.isdir("/usr/lib/postgresql")  # noqa: PTH112


def main() -> int:
    install_packages()
    chosen = sys.argv[1:] or list(GROUPS)
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    broken = []
    for name in chosen:
        print(f"\n=== {name}", flush=True)
        began = time.monotonic()
        command = [sys.executable, "-m", "pytest", *GROUPS[name], "-r", "fEs", "--durations", "8"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line if re.search(r"\d+ (passed|failed|error|skipped)", line) else last
        code = process.wait()
        for count, what in re.findall(r"(\d+) (passed|failed|error|skipped)", last):
            totals["failed" if what == "error" else what] += int(count)
        if code != 0:
            broken.append(f"{name} (exit {code})")
        print(f"=== {name}: {time.monotonic() - began:.0f} s", flush=True)
    print(f"\n{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    if broken:
        print(f"not green: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
