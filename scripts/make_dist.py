"""`make dist`: builds wheel and sdist, checks them, installs the wheel into a fresh venv and writes an SBOM.

Everything goes to dist/. The fresh venv gets the wheel with what it depends on, an empty HOME and no checkout in sight;
`penstock --version` and the in-process broker have to work there, and the base install has to stay small.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
BASE_LIMIT_MB = 130
TRIAL = """
import penstock
from confluent_kafka import Producer
with penstock.Broker() as broker:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("hello", b"world")
    assert producer.flush(20) == 0
"""


def run(*command: str | Path, **options: object) -> None:
    subprocess.run([str(word) for word in command], check=True, **options)  # type: ignore[call-overload]


def build() -> Path:
    for old in DIST.glob("penstock-*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST, ROOT, stdout=subprocess.DEVNULL)
    run(sys.executable, "-m", "twine", "check", "--strict", *DIST.glob("penstock-*"))
    return next(DIST.glob("penstock-*.whl"))


def megabytes_in(folder: Path) -> float:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def try_in_a_fresh_venv(wheel: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        home.mkdir()
        environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        environment |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))}
        place = Path(folder, "venv")
        venv.create(place, with_pip=True)
        site = next(place.glob("lib/python*/site-packages"))
        before = megabytes_in(site)
        python = place / "bin" / "python"
        outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=folder, env=outside)
        size = megabytes_in(site) - before
        run(place / "bin" / "penstock", "--version", cwd=folder, env=environment)
        run(python, "-c", TRIAL, cwd=folder, env=environment)
        print(f"the base install is {size:.0f} MB")
        if size > BASE_LIMIT_MB:
            sys.exit(f"the base install has {size:.0f} MB, more than {BASE_LIMIT_MB}")
        run(
            Path(sys.executable).parent / "cyclonedx-py",
            "environment", python, "--output-file", DIST / "penstock.cdx.json",
            stdout=subprocess.DEVNULL,
        )  # fmt: skip


def main() -> None:
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)  # else files that are gone would come along
    wheel = build()
    try_in_a_fresh_venv(wheel)
    for path in sorted(DIST.iterdir()):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
