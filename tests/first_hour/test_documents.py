"""Documents are true: every code block runs here as written, or says why it does not; every link leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).resolve().parents[2]
CODE = ("sh", "bash", "python", "yaml", "sql", "ini", "properties")
RENDERED = ("docs/cli.md",)  # tests/cli/test_examples.py runs its examples
BLOCK = re.compile(r"(?:^<!-- (?P<mark>[^\n]*?) -->\n)?^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$", re.M | re.S)
LINK = re.compile(r"\[[^\]]+\]\((?P<target>[^)#\s]+)(?:#[^)]*)?\)")


@dataclass
class Block:
    line: int
    language: str
    text: str
    mark: str

    @property
    def runs(self) -> bool:
        return self.mark.startswith(("run", "tour"))


def _documents() -> list[Path]:
    known = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = known.stdout.split() or [str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")]
    # Notes are read where the page of benchmarks takes them in.
    return [ROOT / name for name in names if (ROOT / name).is_file() and not name.endswith(".notes.md")]


def _blocks(path: Path) -> Iterator[Block]:
    text = path.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        if found["language"] in CODE:
            line = text.count("\n", 0, found.start("language")) + 1
            yield Block(line, found["language"], found["text"], found["mark"] or "")


DOCUMENTS = {str(path.relative_to(ROOT)): path for path in _documents()}


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_every_code_block_runs_or_says_why_not(name: str) -> None:
    if name in RENDERED:
        return
    silent = [
        f"{name}:{block.line}"
        for block in _blocks(DOCUMENTS[name])
        if not block.runs and not re.match(r"not run: \S+ \S+", block.mark)
    ]
    assert silent == [], "put `<!-- run -->` or `<!-- not run: why -->` in the line before the block"


@pytest.mark.parametrize("name", sorted(name for name, path in DOCUMENTS.items() if any(b.runs for b in _blocks(path))))
def test_what_claims_to_run_runs(name: str, tmp_path: Path) -> None:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with penstock.Broker(tmp_path / "data", settings=settings) as broker:
        environment = {
            **os.environ,
            "PENSTOCK_BOOTSTRAP": broker.bootstrap,
            "PENSTOCK_CONFIG": str(tmp_path / "profiles.toml"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        for block in _blocks(DOCUMENTS[name]):
            if not block.runs:
                continue
            interpreter = {"python": [sys.executable, "-c"]}.get(block.language, ["bash", "-e", "-o", "pipefail", "-c"])
            done = subprocess.run(
                [*interpreter, block.text],
                cwd=tmp_path,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{name}:{block.line}\n{block.text}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_every_link_leads_somewhere(name: str) -> None:
    path = DOCUMENTS[name]
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)
    targets = [found["target"] for found in LINK.finditer(text)]
    dead = [target for target in targets if "://" not in target and not (path.parent / target).exists()]
    assert dead == []


def test_the_site_builds_without_a_warning_and_asks_nobody_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    loaded = re.findall(r"""<(?:script|link|img)[^>]+(?:src|href)=["'](https?:)?//([^"']+)""", page)
    assert [host for _, host in loaded if "localhost" not in host] == []
