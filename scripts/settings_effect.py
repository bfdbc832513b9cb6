"""Does a setting that claims an effect have a reader in the code? Lists what the table says wrongly; `--fix` mends it.

A setting counts as read when its name stands in quotes somewhere outside of the tables, or when it gives a topic
setting its default. Names that code puts together from parts are listed in MADE_OF_PARTS.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from penstock.base.settings.model import Effect
from penstock.base.settings.table import BROKER_SETTINGS, TOPIC_SETTINGS

PACKAGE = Path(__file__).resolve().parent.parent / "penstock"
TABLES = sorted((PACKAGE / "base" / "settings").glob("table_*.py"))
MADE_OF_PARTS: tuple[str, ...] = ("listeners", "zookeeper.ssl.")
# Their properties have the same names, but belong to clients.
OTHERS = ("client", "testing", "cli", "console", "pipelines")


def names_in_code() -> set[str]:
    """All quoted names in the broker's rooms; of the settings room only `Settings` itself counts as a reader."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        if (PACKAGE / "base" / "settings") in path.parents and path.name != "settings.py":
            continue
        if path.relative_to(PACKAGE).parts[0] in OTHERS:
            continue
        found.update(re.findall(r'"([a-z][a-zA-Z0-9.]*\.[a-zA-Z0-9.]+)"', path.read_text(encoding="utf-8")))
    return found


def mismatches() -> tuple[list[str], list[str]]:
    """(claims an effect and nobody reads it, is read and claims none)"""
    read = names_in_code()
    read |= {name for setting in TOPIC_SETTINGS.values() for name, _ in setting.synonyms}
    read |= {name for name in BROKER_SETTINGS if MADE_OF_PARTS and name.startswith(MADE_OF_PARTS)}
    unread = [n for n, s in BROKER_SETTINGS.items() if s.effect == Effect.YES and n not in read]
    silent = [n for n, s in BROKER_SETTINGS.items() if s.effect == Effect.ACCEPTED and n in read and not _inherited(n)]
    return unread, silent


def _inherited(name: str) -> bool:
    """Settings that only give a default to topic settings without effect have none either."""
    owners = [s for s in TOPIC_SETTINGS.values() if any(name == synonym for synonym, _ in s.synonyms)]
    return bool(owners) and all(setting.effect != Effect.YES for setting in owners)


def fix(unread: list[str], silent: list[str]) -> None:
    for path in TABLES:
        text = path.read_text(encoding="utf-8")
        if path.name == "table_topics.py":
            continue
        for name in unread:
            pattern = rf'(    Setting\("{re.escape(name)}",(?:(?!\n    Setting\().)*?\.")\),(?=\n)'
            text = re.sub(pattern, _mark, text, count=1, flags=re.DOTALL)
        for name in silent:
            pattern = rf'(    Setting\("{re.escape(name)}",(?:(?!\n    Setting\().)*?\."),\s*Effect\.ACCEPTED\),(?=\n)'
            text = re.sub(pattern, r"\1),", text, count=1, flags=re.DOTALL)
        path.write_text(_with_import(text), encoding="utf-8")


def _mark(match: re.Match[str]) -> str:
    last_line = match[1].rsplit("\n", 1)[-1]
    separator = ", " if len(last_line) + len(", Effect.ACCEPTED),") <= 120 else ",\n            "
    return f"{match[1]}{separator}Effect.ACCEPTED),"


def _with_import(text: str) -> str:
    used, imported = "Effect." in text, re.search(r"^    Effect,\n", text, flags=re.MULTILINE)
    if used and not imported:
        return text.replace("    Scope,\n", "    Effect,\n    Scope,\n", 1)
    return text.replace("    Effect,\n", "", 1) if imported and not used else text


def main(arguments: list[str]) -> int:
    unread, silent = mismatches()
    for name in unread:
        print(f"claims an effect, but nothing reads it: {name}")
    for name in silent:
        print(f"is read, but claims no effect: {name}")
    if "--fix" in arguments:
        fix(unread, silent)
        return 0
    return 1 if unread or silent else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
