"""Renders the pages under docs/ that come from tables in the code: `make docs`, or `--check` to see what is stale.

A new page is one more entry in PAGES: its file and a function that returns its text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

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
EFFECTS = {Effect.YES: "yes", Effect.ACCEPTED: "no", Effect.NOT_APPLICABLE: "n/a"}


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


PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": render_configuration,
    "metrics.md": render_metrics,
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
