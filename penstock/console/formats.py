"""How the bytes of a topic's keys and values are read: chosen per topic, kept with its schema in the state folder."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock.operate.decoding import NUMBERS, decoder
from penstock.operate.encoding import encoder
from penstock.operate.errors import usage_error

PARTS = ("key", "value")
KINDS = ("avro", "protobuf", "json-schema", *NUMBERS)
SUFFIXES = {"avro": ".avsc", "protobuf": ".proto", "json-schema": ".json"}
LARGEST_SCHEMA = 500_000
SILENCE_SECONDS = 30.0
Format = Mapping[str, Any]
"""{kind, schema: the name of a file in the folder or None, registry: an address or None}."""


class Formats:
    """Of one cluster: {topic: {key: format, value: format}}; a topic without an entry is shown as it is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    @property
    def _path(self) -> Path:
        return self._folder / "formats.json"

    def _all(self) -> dict[str, dict[str, Any]]:
        try:
            found: dict[str, dict[str, Any]] = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return found

    def of(self, topic: str) -> dict[str, Any]:
        """{part: {kind, schema, registry}} with the schema's file as its path."""
        return {
            part: {**found, "schema": str(self._folder / found["schema"]) if found["schema"] else None}
            for part, found in self._all().get(topic, {}).items()
        }

    def text_of(self, topic: str, part: str) -> str:
        schema = self.of(topic).get(part, {}).get("schema")
        return Path(schema).read_text(encoding="utf-8") if schema else ""

    def choose(self, topic: str, part: str, kind: str, schema: str, registry: str) -> None:
        """`kind` "" shows the bytes as they are. What cannot decode anything is refused before it is kept."""
        if part not in PARTS:
            raise usage_error(f"{part!r} is no part of a message", "there is key and value")
        chosen = None if not kind else self._checked(part, kind, schema, registry)
        with self._lock:
            content = self._all()
            mine = {name: one for name, one in content.get(topic, {}).items() if name != part}
            content[topic] = mine if chosen is None else {**mine, part: chosen}
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh = self._path.with_suffix(".new")
            fresh.write_text(json.dumps({name: one for name, one in content.items() if one}, indent=1), "utf-8")
            fresh.replace(self._path)

    def _checked(self, part: str, kind: str, schema: str, registry: str) -> dict[str, Any]:
        if kind not in KINDS:
            raise usage_error(f"{kind!r} is no format", f"there is {', '.join(KINDS)}")
        if len(schema) > LARGEST_SCHEMA:
            raise usage_error(f"a schema has at most {LARGEST_SCHEMA:,} letters")
        split = urlsplit(registry)
        if registry and (split.scheme not in ("http", "https") or not split.hostname):
            raise usage_error(f"{registry!r} is no address of a registry", "for example http://registry:8081")
        if kind in NUMBERS:
            return {"kind": kind, "schema": None, "registry": None}
        if not schema.strip() and not registry and kind != "json-schema":
            raise usage_error(f"{kind} needs a schema", "paste it, upload it, or name a registry")
        name = None
        if schema.strip():
            name = hashlib.sha256(schema.encode()).hexdigest()[:24] + SUFFIXES[kind]
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self._folder / name).write_text(schema, encoding="utf-8")
        chosen = {"kind": kind, "schema": name, "registry": registry or None}
        try:
            decoder(kind, str(self._folder / name) if name else None, registry or None, part == "key")
        except Exception:
            if name:
                (self._folder / name).unlink(missing_ok=True)
            raise
        return chosen


def decoders(formats: Mapping[str, Format]) -> dict[str, Callable[[bytes], Any]]:
    """{part: from bytes to plain data}; what does not decode comes back as {undecodable, reason}."""
    return {
        part: _patient(decoder(one["kind"], one["schema"], one["registry"], part == "key"))
        for part, one in formats.items()
    }


def encode(formats: Mapping[str, Format], topic: str, part: str, data: bytes | None) -> bytes | None:
    """JSON text as the topic's format has it; without a format, as it is."""
    one = formats.get(part)
    if data is None or one is None:
        return data
    return encoder(one["kind"], one["schema"], one["registry"], topic, part == "key")(data, f"the {part}")


def _patient(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A registry that does not answer costs one wait, not one for every message."""
    silent_until, why = 0.0, ""

    def decoded(data: bytes) -> Any:
        nonlocal silent_until, why
        if time.monotonic() < silent_until:
            return {"undecodable": "", "reason": why}
        found = decode(data)
        if isinstance(found, dict) and str(found.get("reason", "")).startswith(("URLError", "TimeoutError")):
            silent_until, why = time.monotonic() + SILENCE_SECONDS, found["reason"]
        return found

    return decoded
