"""Principals out of certificates: the distinguished name as Java writes it, and `ssl.principal.mapping.rules`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509

__all__ = ["MappingRules", "distinguished_name"]

_SHORT = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_RULE = re.compile(r"(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<into>(?:\\.|[^\\/])*)/(?P<case>[LU]?)")


def distinguished_name(subject: x509.Name) -> str:
    """As Java's X500Principal gives it (RFC 2253), most specific part first."""
    return ",".join("+".join(_attribute(one) for one in part) for part in reversed(list(subject.rdns)))


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    oid, value = attribute.oid.dotted_string, attribute.value
    short = _SHORT.get(oid)
    if short is None or isinstance(value, bytes):
        raw = value.encode() if isinstance(value, str) else value
        length = len(raw)
        size = bytes([length]) if length < 128 else bytes([0x82, length >> 8, length & 255])
        return f"{oid}=#{(bytes([attribute._type.value]) + size + raw).hex()}"
    return f"{short}={_escaped(value)}"


def _escaped(value: str) -> str:
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    if len(escaped) > 1 and escaped.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return escaped


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None  # None: DEFAULT
    into: str
    case: str


class MappingRules:
    """The first rule that fits gives the name; a certificate that none fits has no name here."""

    def __init__(self, text: str) -> None:
        """Raises ValueError with what is wrong."""
        self._rules = _parsed(text)

    def name(self, distinguished: str) -> str | None:
        for rule in self._rules:
            if rule.pattern is None:
                return distinguished
            match = rule.pattern.fullmatch(distinguished)
            if match is None:
                continue
            name = match.expand(rule.into)
            return name.lower() if rule.case == "L" else name.upper() if rule.case == "U" else name
        return None


def _parsed(text: str) -> list[_Rule]:
    rules: list[_Rule] = []
    position = 0
    text = text.strip() or "DEFAULT"
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise ValueError(
                f"rules read RULE:pattern/replacement/[LU] or DEFAULT; not understood: {text[position:]!r}"
            )
        if match["default"]:
            rules.append(_Rule(None, "", ""))
        else:
            try:
                pattern = re.compile(match["pattern"].replace("\\/", "/"))
                into = re.sub(r"\$(\d)", r"\\g<\1>", match["into"].replace("\\/", "/"))
                re.compile(match["pattern"])
            except re.error as error:
                raise ValueError(f"the pattern {match['pattern']!r} is no regular expression: {error}") from None
            rules.append(_Rule(pattern, into, match["case"]))
        position = match.end()
        separator = re.compile(r"\s*(?:,\s*|$)").match(text, position)
        if separator is None:
            raise ValueError(f"rules are separated by commas; not understood: {text[position:]!r}")
        position = separator.end()
    return rules
