"""Text of others, made safe to show: names and messages may hold what moves a cursor, or turns the reading direction.

Ids of groups and transactions are any text that a client sends. Shown as they are they could rewrite a terminal's
lines or its title, or look like another name.
"""

from __future__ import annotations

import re

# C0 and C1 controls, and the marks that set, embed, override or isolate a direction (Unicode's UAX #9).
_HIDDEN = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_IN_LINES = re.compile(f"[{_HIDDEN}]")
_IN_A_CELL = re.compile(f"[{_HIDDEN}\t\n]")


def printable(text: str) -> str:
    """Lines, with what cannot be seen in them written out: \\x1b."""
    return _IN_LINES.sub(_written_out, text)


def printable_cell(text: str) -> str:
    """The same for a name or a cell of a table, which is one line."""
    return _IN_A_CELL.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
