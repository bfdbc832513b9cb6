"""Python packages that a pipeline needs: installed once into a folder, packed, and carried to where its code runs.

On one machine the folder is on the path of driver and workers. Executors of a cluster get it as an archive that Spark
unpacks beside them. What was packed once needs no network again. A Spark Connect server's workers find no packages that
a session brings (tried: `addArtifacts`), so pipelines that need some are refused there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.pipelines.spec import SpecError

UNPACKED: Final = "penstock-requirements"  # what the archive is called beside an executor
_ARCHIVES: Final = "spark.archives"
_PATH: Final = "PYTHONPATH"


@dataclass(frozen=True)
class Packed:
    folder: Path  # of packages, as on a Python path
    archive: Path  # the same as a zip file


def pack(requirements: Sequence[str]) -> Packed:
    """Installed and packed on first use; later, and in other processes, found. A failed installation leaves nothing."""
    home = _cache_folder() / _label(requirements)
    packed = Packed(home / "site", home / "packages.zip")
    home.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (home.parent / f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            with tempfile.TemporaryDirectory(prefix="packing-", dir=home.parent) as made:
                _install(requirements, Path(made) / "site")
                _zip(Path(made) / "site", Path(made) / "packages.zip")
                Path(made).rename(home)
                Path(made).mkdir()  # for its context to remove
    return packed


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "penstock" / "requirements"


def _label(requirements: Sequence[str]) -> str:
    """Another Python or machine, other lines, or another content of a file that they name: another environment."""
    lines = [[line, *_stamp(line)] for line in requirements]
    text = json.dumps([sorted(lines), sys.version_info[:2], platform.machine(), sys.platform])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _stamp(line: str) -> list[int]:
    path = Path(line)
    return [path.stat().st_size, path.stat().st_mtime_ns] if path.is_file() else []


def _install(requirements: Sequence[str], folder: Path) -> None:
    folder.mkdir()
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    # After `--` a line is a requirement whatever it looks like; it cannot become an option.
    done = subprocess.run(
        [*command, "--target", str(folder), "--", *requirements], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["pip gave no reason"]
        reason = next((line for line in said if line.startswith("ERROR:")), said[-1]).removeprefix("ERROR: ")
        raise SpecError(f"settings.requirements: {reason}", ("settings", "requirements"))


def _zip(folder: Path, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(folder))


# --- carried to where code runs ---


def put_on_path(requirements: Sequence[str]) -> None:
    """For this process and all that it starts; to be called before Spark is."""
    folder = str(pack(requirements).folder)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    others = [path for path in os.environ.get(_PATH, "").split(os.pathsep) if path and path != folder]
    os.environ[_PATH] = os.pathsep.join([folder, *others])


def archive_settings(requirements: Sequence[str], settings: Mapping[str, str]) -> dict[str, str]:
    """For a cluster: Spark hands the archive to every executor, beside those that the user has named."""
    ours = f"{pack(requirements).archive}#{UNPACKED}"
    return {_ARCHIVES: ",".join(part for part in (settings.get(_ARCHIVES, ""), ours) if part)}


def show_to_executors(spark: Any) -> None:
    """Functions that Spark sends out carry this environment. An executor's own path stays in force behind it."""
    environment = spark.sparkContext.environment
    environment[_PATH] = os.pathsep.join(part for part in (UNPACKED, environment.get(_PATH, "")) if part)


def refuse_on_server() -> SpecError:
    """Packages that a session hands to a Connect server are not found by workers of its streams."""
    reason = "a Spark Connect server takes no packages from a pipeline; install them where its workers run"
    return SpecError(f"settings.requirements: {reason}, and leave the setting out", ("settings", "requirements"))
