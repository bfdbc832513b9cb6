"""Small Go programs for tests: built once with the system's Go from the module proxy, kept beside the other peers."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from penstock.testing.peers import PeerUnavailable, cache_folder

_BUILD_SECONDS = 300


def go_program(source: Path) -> Path:
    """The program made of the module in this folder; PeerUnavailable says what is missing."""
    content = b"".join(path.read_bytes() for path in sorted(source.iterdir()) if path.is_file())
    built = cache_folder() / "go" / f"{source.name}-{hashlib.sha256(content).hexdigest()[:16]}"
    if built.exists():
        return built
    go = shutil.which("go")
    if go is None:
        raise PeerUnavailable("no `go` on PATH: install Go 1.22 or newer to try its clients")
    built.parent.mkdir(parents=True, exist_ok=True)
    fresh = built.with_name(f"{built.name}.{os.getpid()}")
    try:
        done = subprocess.run(
            [go, "build", "-o", str(fresh), "."], cwd=source, capture_output=True, text=True, timeout=_BUILD_SECONDS,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise PeerUnavailable(f"go build took more than {_BUILD_SECONDS} s: is the module proxy reachable?") from error
    if done.returncode != 0:
        raise PeerUnavailable(f"go build failed: {done.stderr.strip()[-500:]}")
    fresh.replace(built)
    return built
