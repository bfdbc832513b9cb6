"""Renders the pages under docs/ that come from tables in the code: `make docs`, or `--check` to see what is stale.

A new page is one more entry in PAGES: its file and a function that returns its text.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

from penstock.base.metrics import METRICS, PREFIX
from penstock.base.settings.model import Effect, Scope, Setting
from penstock.base.settings.table import EMBEDDED_DEFAULTS, THEMES, TOPIC_SETTINGS

DOCS = Path(__file__).resolve().parent.parent / "docs"

SCOPES = {
    Scope.READ_ONLY: "read-only",
    Scope.PER_BROKER: "per broker",
    Scope.CLUSTER_WIDE: "cluster",
    Scope.TOPIC: "topic",
}
EFFECTS = {Effect.YES: "yes", Effect.ACCEPTED: "no", Effect.NOT_APPLICABLE: "n/a", Effect.REFUSED: "refused"}


def render_configuration() -> str:
    """docs/configuration.md: every setting of brokers and topics."""
    parts = [
        "# Settings\n",
        "Rendered from the settings table by `make docs`; do not edit.\n",
        "A broker reads Kafka's `server.properties` format (`penstock broker --config FILE`) and single values"
        " (`--set NAME=VALUE`). Names and defaults are Kafka's. *Change* says who can change a setting while brokers"
        " run: nobody (read-only), one broker at a time, or the whole cluster. *Effect* says whether it steers"
        " anything: `no` means that the name is known and its value checked, but there is nothing here that it could"
        " steer; `n/a` means that it belongs to a part of Kafka which Penstock replaces.\n",
        "Without `zookeeper.connect` a node keeps its metadata in an embedded store, and these defaults differ:\n",
        *(f"- `{name}` = `{_text(value)}`" for name, value in EMBEDDED_DEFAULTS.items()),
        "",
    ]
    for theme, settings in THEMES.items():
        parts += [f"## {theme}\n", *_table(settings), ""]
    parts += ["## Topics\n", *_topic_table(), ""]
    return "\n".join(parts)


def _table(settings: Iterable[Setting]) -> list[str]:
    lines = ["| Name | Type | Default | Allowed | Change | Effect | What it does |", "|---|---|---|---|---|---|---|"]
    for setting in settings:
        cells = (
            f"`{setting.name}`",
            setting.type_name.lower(),
            _default(setting),
            setting.allowed,
            SCOPES[setting.scope],
            EFFECTS[setting.effect],
            setting.doc,
        )
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return lines


def _topic_table() -> list[str]:
    lines = [
        "| Name | Type | Default | Allowed | Default comes from | Effect | What it does |",
        "|---|---|---|---|---|---|---|",
    ]
    for setting in TOPIC_SETTINGS.values():
        origin = ", ".join(f"`{name}`" for name, _ in setting.synonyms)
        cells = (
            f"`{setting.name}`",
            setting.type_name.lower(),
            _default(setting),
            setting.allowed,
            origin,
            EFFECTS[setting.effect],
            setting.doc,
        )
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return lines


def _default(setting: Setting) -> str:
    text = setting.render(setting.default)
    return "" if text in (None, "") else f"`{text}`"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def render_metrics() -> str:
    """docs/metrics.md: what `/metrics` shows."""
    lines = [
        "# Metrics\n",
        "Rendered from the list of metrics by `make docs`; do not edit.\n",
        "Served in Prometheus format at `/metrics` of `penstock.metrics.listener`, beside `/health` and `/ready`.\n",
        "| Name | Kind | Labels | What it counts |",
        "|---|---|---|---|",
    ]
    for metric in METRICS:
        name = f"{PREFIX}{metric.name}" + ("_total" if metric.kind == "counter" else "")
        lines.append(f"| `{name}` | {metric.kind} | {', '.join(metric.labels)} | {metric.doc} |")
    return "\n".join([*lines, ""])


def render_apis() -> str:
    """docs/apis.md: what the broker speaks, from the registry that also feeds ApiVersions."""
    from penstock.broker.api.registry import REGISTRY

    lines = [
        "# APIs\n",
        "Rendered from the broker's registry by `make docs`; do not edit.\n",
        "| Key | API | Versions | What it does |",
        "|---|---|---|---|",
    ]
    inter_broker = []
    for key, registered in sorted(REGISTRY.apis.items()):
        spec = registered.spec
        row = f"| {key} | {spec.name} | {spec.min_version}–{spec.max_version} | {_first_sentence(registered.module)} |"
        (inter_broker if spec.inter_broker_only else lines).append(row)
    lines += ["", "Between brokers only (taken on the inter-broker listener, never advertised):\n"]
    lines += ["| Key | API | Versions | What it does |", "|---|---|---|---|", *inter_broker]
    return "\n".join([*lines, ""])


def _first_sentence(module: ModuleType) -> str:
    """What the module says of itself, without the key and versions that stand in other columns."""
    text = " ".join((module.__doc__ or "").strip().split("\n\n")[0].split())
    text = re.sub(r"^(\d+ )?\w+( \(key \d+[^)]*\))?,? ?(v\d+(–\d+)?|versions? \d+(–\d+)?)?[^:.;]*[:.;] ?", "", text)
    sentence = re.split(r"(?<=[a-z)])\. |; | · ", text)[0].rstrip(".")
    return _cell(sentence[:1].upper() + sentence[1:])


def render_map() -> str:
    """docs/map.md: file → purpose, from the first line of every module."""
    root = DOCS.parent
    lines = [
        "# Map\n",
        "Rendered from the first lines of the modules by `make docs`; do not edit.",
        "Rooms stand lowest first: a room imports only from rooms above it in this page.",
    ]
    for room in ROOMS:
        if not (root / room).is_dir():
            continue
        for folder in [root / room, *sorted(path for path in (root / room).rglob("*") if path.is_dir())]:
            files = sorted(folder.glob("*.py"))
            rows = [(file.name, _first_line(file)) for file in files if file.name != "__init__.py"]
            if not rows:
                continue
            lines += ["", f"## {folder.relative_to(root)}/", "", _first_line(folder / "__init__.py"), ""]
            lines += [f"- `{name}` {purpose}" for name, purpose in rows]
    return re.sub(r"\n{3,}", "\n\n", "\n".join([*lines, ""]))


ROOMS = (
    "penstock/base", "penstock/protocol", "penstock/client", "penstock/log", "penstock/store", "penstock/cluster",
    "penstock/replication", "penstock/coordinator", "penstock/security", "penstock/broker", "penstock/pipelines",
    "pyspark_penstock", "penstock/operate", "penstock/console", "penstock/cli", "penstock/testing",
)  # fmt: skip


def _first_line(file: Path) -> str:
    """The first paragraph's first sentence of a module's docstring."""
    if not file.exists():
        return ""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[a-z)`])\. ", paragraph)[0].rstrip(".")


def render_differences() -> str:
    """docs/differences.md: where we differ from Apache Kafka, from the list that the oracle test uses."""
    from penstock.testing.probes.differences import BY_DESIGN, PROBES

    lines = [
        "# Differences from Apache Kafka 4.3\n",
        "Rendered by `make docs` from the list that the oracle test uses; do not edit.\n",
        "Some 330 requests, good, odd and bad, go to both brokers in the suite (`penstock/testing/probes`); the answers"
        " are the same but for these:\n",
    ]
    lines += [f"- **{name}**: {reason}" for name, reason in PROBES.items()]
    lines += ["", "And by design:\n"]
    lines += [f"- **{name}**: {reason}" for name, reason in BY_DESIGN.items()]
    return "\n".join([*lines, ""])


def render_pipeline_reference() -> str:
    """docs/pipeline-spec.md: every key of a pipeline file."""
    import pipeline_reference

    return pipeline_reference.render()


def render_cli() -> str:
    from penstock.cli.reference import markdown

    return markdown()


def render_man_page() -> str:
    from penstock.cli.reference import man_page

    return man_page()


PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": render_configuration,
    "metrics.md": render_metrics,
    "apis.md": render_apis,
    "map.md": render_map,
    "differences.md": render_differences,
    "pipeline-spec.md": render_pipeline_reference,
    "cli.md": render_cli,
    "penstock.1": render_man_page,
}


def main(arguments: list[str]) -> int:
    stale = []
    for name, render in PAGES.items():
        path, text = DOCS / name, render()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale:
        print(("stale: " if "--check" in arguments else "rendered: ") + ", ".join(stale))
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
