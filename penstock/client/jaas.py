"""JAAS entries as Kafka's settings hold them: `some.LoginModule required name="value" …;`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["JaasEntry", "parse_jaas"]

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<sign>[=;])
      | (?P<word>[^\s=;"']+)
    )""",
    re.VERBOSE | re.DOTALL,
)
FLAGS = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True)
class JaasEntry:
    module: str
    options: dict[str, str] = field(repr=False)

    @property
    def module_name(self) -> str:
        """The last part of the class's name, which says what it is."""
        return self.module.rpartition(".")[2]


def parse_jaas(text: str) -> JaasEntry:
    """One entry; raises ValueError that never repeats a value."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != ("sign", ";"):
        raise ValueError('it must read: some.LoginModule required name="value";')
    (kind, module), (_, flag) = tokens[0], tokens[1]
    if kind != "word" or flag.lower() not in FLAGS:
        raise ValueError(f"behind the login module stands one of {', '.join(FLAGS)}")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    if len(rest) % 3:
        raise ValueError("options are written as name=value and end with a semicolon")
    for position in range(0, len(rest), 3):
        (name_kind, name), equals, (value_kind, value) = rest[position : position + 3]
        if name_kind == "sign" or equals != ("sign", "=") or value_kind == "sign":
            raise ValueError("options are written as name=value; there is one module and one semicolon")
        if name in options:
            raise ValueError(f"{name} stands there twice")
        options[name] = value
    return JaasEntry(module, options)


def _tokens(text: str) -> list[tuple[str, str]]:
    found = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError("a quotation mark is not closed")
        position = match.end()
        kind = str(match.lastgroup)
        value = match[kind]
        if kind == "quoted":
            found.append(("text", re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)))
        elif kind != "comment":
            found.append((kind, value))
    return found
