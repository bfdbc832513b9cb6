"""How long a newcomer waits: clone, set up, start, open the page, see rows flow through the demo pipeline's graph.

python scripts/time_newcomer.py             the whole way, with the package cache as it is, and once more set up
python scripts/time_newcomer.py --here      only the second half, in this checkout
The same commands as `make run`, on free ports and in a folder of its own.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_SECONDS = 600.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def way(checkout: Path, folder: Path, began: float, what: str) -> None:
    """`penstock up --demo` until the page draws a graph whose edges carry rows; says when each step was reached."""
    ports = [str(free_port()) for _ in range(3)]
    command = [str(checkout / ".venv/bin/penstock"), "up", "--demo", "--data-dir", str(folder / "data")]
    command += ["--port", ports[0], "--metrics-port", ports[1], "--console-port", ports[2]]
    up = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=_environment(folder))
    try:
        assert up.stdout is not None
        address = None
        for line in up.stdout:
            found = re.search(r"http://\S+\?token=\S+", line)
            if found:
                address = found.group()
                break
        if address is None:
            raise SystemExit(f"`penstock up` ended with {up.wait()}")
        print(f"{what}: the console's address stands after {time.monotonic() - began:.0f} s", flush=True)
        _look(checkout, address, began, what)
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(60)


def _environment(folder: Path) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return {**environment, "PENSTOCK_CONFIG": str(folder / "profiles.toml"), "PYTHONUNBUFFERED": "1"}


def _look(checkout: Path, address: str, began: float, what: str) -> None:
    import shutil

    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-browser"), args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_SECONDS * 1000)
        page.goto(address)
        page.locator("h1").wait_for()
        print(f"{what}: the page is open after {time.monotonic() - began:.0f} s", flush=True)
        page.get_by_role("link", name="Pipelines").click()
        page.locator("tbody a").first.click()
        page.locator(".pk-flow-line.pk-flows").first.wait_for(state="attached")
        print(f"{what}: rows flow in the graph after {time.monotonic() - began:.0f} s", flush=True)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--here", action="store_true", help="in this checkout, which is set up")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-newcomer-") as name:
        folder, checkout = Path(name), ROOT
        if not given.here:
            began = time.monotonic()
            checkout = folder / "penstock"
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
            subprocess.run(["make", "--silent", "setup"], cwd=checkout, check=True)
            print(f"newcomer: cloned and set up after {time.monotonic() - began:.0f} s", flush=True)
            (folder / "first").mkdir()
            way(checkout, folder / "first", began, "newcomer")
        (folder / "again").mkdir()
        way(checkout, folder / "again", time.monotonic(), "set up")


if __name__ == "__main__":
    main()
