"""CONTRIBUTING's recipes, followed step by step in a copy of the tree: what they promise comes of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

API = '''"""55 DescribeQuorum, v0–2: who keeps the cluster's metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api.spec import ApiSpec, RequestContext
from penstock.protocol import messages
from penstock.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.protocol.shapes import DescribeQuorum

API = ApiSpec(55, "DescribeQuorum", 0, 2)


async def handle(broker: Broker, ctx: RequestContext, request: DescribeQuorum.Request) -> DescribeQuorum.Response:
    broker.metrics.cell("quorum_questions").value += 1
    api = messages.api("describe_quorum")
    topic = api.response_struct("TopicData")(topic_name=broker.settings["penstock.motto"])
    return api.Response(error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR), topics=[topic])
'''

SETTING = """    Setting("penstock.motto", STRING, "steady", None, READ_ONLY,
            "What this broker says when it is asked who rules."),
"""

METRIC = """    Metric("quorum_questions", COUNTER, (), "How often somebody asked who rules."),
"""

CONNECTOR = '''"""Rows as lines of a file: the smallest sink there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.pipelines.connectors.base import Batch, Sink
from penstock.pipelines.spec import Frozen


class LinesSink(Sink):
    class Options(Frozen):
        path: str  # file that gets one line of JSON per row

    def write(self, rows: Any, batch: Batch) -> None:
        Path(self.options.path).write_text("".join(f"{row}\\n" for row in rows.toJSON().collect()))
'''

COMMAND = '''"""`penstock motto`: what this program lives by."""

from __future__ import annotations

from penstock.cli.output import Output
from penstock.cli.typed import local_command, new_app

app = new_app("Say what this program lives by.", no_args_is_help=False)


@local_command(app)
def motto(output: Output) -> None:
    """Print one line."""
    output.text("steady as a river")
'''


def insert(path: Path, before: str, text: str) -> None:
    """Add a row to a table, as a person would: in front of a line that is there."""
    whole = path.read_text(encoding="utf-8")
    assert before in whole, f"{path.name} no longer has {before!r}"
    path.write_text(whole.replace(before, text + before, 1), encoding="utf-8")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("recipes")
    for folder in ("penstock", "scripts", "docs", "pyspark_penstock", "examples"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__", "*.png"))
    package = tree / "penstock"
    # A setting and a metric: one row each.
    insert(package / "base/settings/table_own.py", '    Setting("penstock.oauthbearer', SETTING)
    insert(package / "base/metrics.py", ")  # fmt: skip", METRIC)
    # An API: a module that the registry finds.
    (package / "broker/api/describe_quorum.py").write_text(API, encoding="utf-8")
    # A connector: a module and its name.
    (package / "pipelines/connectors/lines.py").write_text(CONNECTOR, encoding="utf-8")
    insert(package / "pipelines/connectors/__init__.py", '    "console": (', '    "lines": ("lines", "LinesSink"),\n')
    # A command: a module, a row, an example.
    (package / "cli/motto.py").write_text(COMMAND, encoding="utf-8")
    insert(package / "cli/commands.py", '    "profile": (', '    "motto": ("motto", "Say what this lives by."),\n')
    insert(package / "cli/examples.py", '    "topic create": ', '    "motto": "penstock motto",\n')
    return tree


@pytest.fixture(scope="module")
def python(tree: Path) -> Callable[..., str]:
    """Run Python in the copy; what it prints."""

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def pages(tree: Path, python: Callable[..., str]) -> dict[str, str]:
    """The last step of every recipe: `make docs`."""
    python("scripts/render_docs.py")
    python("scripts/render_shapes.py")
    return {path.name: path.read_text(encoding="utf-8") for path in (tree / "docs").glob("*.md")}


def test_an_api_a_setting_and_a_metric(tree: Path, python: Callable[..., str], pages: dict[str, str]) -> None:
    # What a client sees of them, over a real connection,
    said = python(
        "-c",
        "import penstock\n"
        "from penstock.client.sync import SyncClient\n"
        "from penstock.protocol import messages\n"
        "with penstock.Broker(settings={'penstock.motto': 'flow'}) as broker:\n"
        "    with SyncClient(broker.bootstrap) as client:\n"
        "        answer = client.call_any('describe_quorum', messages.api('describe_quorum').Request())\n"
        "    print(penstock.__file__, answer.error_code, answer.topics[0].topic_name)\n",
    )
    assert said.split() == [str(tree / "penstock/__init__.py"), "-1", "flow"]
    # and what the documents say.
    assert "DescribeQuorum" in pages["apis.md"]
    assert "`penstock.motto`" in pages["configuration.md"]
    assert "quorum_questions" in pages["metrics.md"]
    assert "class DescribeQuorum(Api)" in (tree / "penstock/protocol/shapes/describe_quorum.pyi").read_text()


def test_a_setting_that_nobody_reads_is_noticed(python: Callable[..., str]) -> None:
    look = "import sys; sys.path.append('scripts'); import settings_effect; print(settings_effect.mismatches()[0])"
    assert python("-c", look).strip() == "[]"
    without = f"{look.replace('print', 'settings_effect.names_in_code = set; print')}"
    assert "penstock.motto" in python("-c", without)


def test_a_connector(python: Callable[..., str], pages: dict[str, str], tmp_path: Path) -> None:
    spec = tmp_path / "lines.yml"
    spec.write_text(
        "name: lines\nsources:\n  words: {topic: words, format: string}\n"
        "sinks:\n  out: {from: words, connector: lines, path: out.jsonl}\n"
    )
    assert "lines" in python("-m", "penstock", "pipeline", "validate", str(spec))
    assert "file that gets one line of JSON per row" in pages["pipeline-spec.md"]


def test_a_command(python: Callable[..., str], pages: dict[str, str]) -> None:
    assert python("-m", "penstock", "motto") == "steady as a river\n"
    assert "Say what this lives by." in python("-m", "penstock", "--help")
    assert "penstock motto" in pages["cli.md"]


def test_the_recipes_name_files_that_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:penstock|scripts|deploy|tests|examples)/[\w/.*-]+)`", text)
    missing = [name for name in named if not list(ROOT.glob(name.rstrip("/")))]
    assert named and missing == []
