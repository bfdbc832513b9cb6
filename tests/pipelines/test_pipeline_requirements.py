"""Packages that a pipeline's functions need: packed once, found again without a network, refused in one line."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from penstock.cli.main import run as penstock
from penstock.pipelines.control.drivers import has_python
from penstock.pipelines.spark.requirements import archive_settings, pack
from penstock.pipelines.spark.session import session
from penstock.pipelines.spec import SpecError

CODE = "def loud(text):\n    return text.upper()\n"


def wheel(folder: Path, name: str = "shouting", code: str = CODE) -> Path:
    """A package as pip takes it, made by hand: nothing is fetched."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    files = {
        f"{name}/__init__.py": code,
        f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{name}-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        record = "".join(f"{file},,\n" for file in [*files, f"{name}-1.0.dist-info/RECORD"])
        archive.writestr(f"{name}-1.0.dist-info/RECORD", record)
    return path


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No index to ask, and a cache of our own."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_what_was_packed_once_needs_no_source_again(tmp_path: Path) -> None:
    made = wheel(tmp_path)
    first = pack(["shouting==1.0"])
    assert (first.folder / "shouting" / "__init__.py").read_text() == CODE
    assert "shouting/__init__.py" in zipfile.ZipFile(first.archive).namelist()
    made.unlink()  # nobody can give it any more
    assert pack(["shouting==1.0"]) == first


def test_a_file_of_the_same_name_with_other_content_is_another_environment(tmp_path: Path) -> None:
    first = pack([str(wheel(tmp_path))])
    second = pack([str(wheel(tmp_path, code=CODE + "# another one\n"))])
    assert second.folder != first.folder
    assert "another one" in (second.folder / "shouting" / "__init__.py").read_text()


def test_a_package_that_cannot_be_had_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"settings\.requirements: .*no-such-package") as refused:
        pack(["no-such-package==9"])
    assert "\n" not in str(refused.value)
    left = [path for path in (tmp_path / "cache" / "penstock" / "requirements").iterdir() if path.suffix != ".lock"]
    assert left == []
    wheel(tmp_path, "no_such_package")
    with pytest.raises(SpecError):
        pack(["no-such-package==9"])  # version 1.0 is there now, which is not what was asked for
    assert pack(["no-such-package"]).folder.is_dir()


def test_a_line_is_never_an_option_of_pip(tmp_path: Path) -> None:
    wheel(tmp_path)
    with pytest.raises(SpecError, match="--upgrade"):
        pack(["--upgrade", "shouting"])


def test_the_users_own_archives_stay(tmp_path: Path) -> None:
    packed = pack([str(wheel(tmp_path))])
    given = archive_settings([str(tmp_path / "shouting-1.0-py3-none-any.whl")], {"spark.archives": "mine.zip#mine"})
    assert given == {"spark.archives": f"mine.zip#mine,{packed.archive}#penstock-requirements"}


def test_a_pipeline_with_packages_of_its_own_shares_no_driver() -> None:
    assert has_python({"settings": {"requirements": ["shouting"]}})
    assert not has_python({"settings": {"requirements": []}})


def test_the_command_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "needs.yml"
    file.write_text(
        "name: needs\nsources: {a: {topic: a}}\nsinks: {b: {from: a, topic: b}}\n"
        "settings: {requirements: [no-such-package]}\n"
    )
    assert penstock(["pipeline", "run", str(file), "-b", "127.0.0.1:1"]) != 0
    said = capsys.readouterr().err
    assert "settings.requirements" in said and "no-such-package" in said and "Traceback" not in said


def test_a_connect_server_takes_none_and_says_so_before_it_is_asked() -> None:
    with pytest.raises(SpecError, match=r"settings\.requirements: a Spark Connect server takes no packages"):
        session("p", master="sc://127.0.0.1:1", requirements=["phonenumbers"])
