"""What a query of somebody else may say: one SELECT over `topic(…)`; no files, no code, nothing that changes anything.

The text is looked at without its comments and literals, before Spark sees it. Tables that Spark would find by
themselves are closed by the session's settings (`SETTINGS`): a name that is no topic is then no table either.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.pipelines.spec import SpecError

SETTINGS: Final = {"spark.sql.runSQLOnFiles": "false", "spark.sql.catalogImplementation": "in-memory"}

_LITERAL: Final = re.compile(
    r"--[^\n]*|/\*.*?\*/|\b[rR]'[^']*'|\b[rR]\"[^\"]*\"|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"", re.DOTALL
)
_ENDLESS: Final = re.compile(r"/\*|'|\"")
_CODE: Final = ("reflect", "try_reflect", "java_method")
_CHANGES: Final = ("insert", "update", "delete", "merge", "create", "drop", "alter", "truncate", "overwrite")
CALL: Final = re.compile(r"\btopic\s*\(\s*'((?:[^']|'')+)'((?:\s*,\s*\w+\s*=>\s*'(?:[^']|'')*')*)\s*\)", re.IGNORECASE)
_OUTSIDE: Final = ("registry", "descriptor_file")


def topics_of(text: str) -> list[str]:
    """The topics that a query names."""
    return list(dict.fromkeys(found[1].replace("''", "'") for found in CALL.finditer(text)))


def insist_on_select(text: str) -> None:
    """SpecError tells what a query may not say."""
    bare = _LITERAL.sub(lambda found: " " if found[0][0] in "-/" else " ? ", text).replace("`", " ").lower()
    if _ENDLESS.search(bare):
        raise SpecError("a quote or comment of the query does not end")
    bare = bare.strip().rstrip(";").strip()
    if ";" in bare:
        raise SpecError("one query at a time: there is a ; inside")
    words = re.findall(r"[a-z_]\w*", bare)
    if not words or words[0] not in ("select", "with"):
        raise SpecError("only SELECT is answered here; write SELECT … FROM topic('orders')")
    for word in words:
        if word in _CHANGES:
            raise SpecError(f"only SELECT is answered here: {word.upper()} changes things")
        if word in _CODE:
            raise SpecError(f"{word} runs code of the Java machine; it is not answered here")
    if re.search(r"\busing\s+\?", bare):
        raise SpecError("TRANSFORM … USING runs programs; it is not answered here")
    if not topics_of(text):
        raise SpecError("the query names no topic; write … FROM topic('orders')")
    for found in CALL.finditer(text):
        for word in _OUTSIDE:
            if re.search(rf"\b{word}\s*=>", found[2], re.IGNORECASE):
                raise SpecError(f"topic('{found[1]}'): {word} reaches outside of the cluster; it is not answered here")
