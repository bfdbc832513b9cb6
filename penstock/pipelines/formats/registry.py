"""A schema registry over its REST API, as Confluent's and its likes offer it; and the five bytes before a value.

Schemas never change under an id, so they are kept for the life of a process.
"""

from __future__ import annotations

import base64
import json
import struct
import urllib.error
import urllib.parse
import urllib.request
from functools import cache
from typing import Any, Final

from penstock.pipelines.spec import Frozen

_TIMEOUT_S: Final = 10
MAGIC: Final = 0
_HEAD: Final = struct.Struct(">bI")


class RegistryError(Exception):
    """The registry does not answer, or refuses: the pipeline stops, no record is to blame."""


class UnknownSchema(ValueError):
    """The registry does not know an id: the record is to blame."""


class RegistryOptions(Frozen):
    """A schema registry with the REST API of Confluent's."""

    url: str  # where it answers
    user: str | None = None  # for basic authentication
    password: str | None = None  # a reference, such as `${env:NAME}`


class Registry:
    def __init__(self, options: RegistryOptions) -> None:
        self._url = options.url.rstrip("/")
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if options.user is not None:
            pair = f"{options.user}:{options.password or ''}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        self._by_id: dict[tuple[int, str], dict[str, Any]] = {}

    def by_id(self, schema_id: int, shape: str = "") -> dict[str, Any]:
        """{"schema": …, "schemaType": …}; `shape` "serialized" asks for a Protobuf schema as descriptor."""
        known = self._by_id.get((schema_id, shape))
        if known is None:
            query = f"?format={shape}" if shape else ""
            known = self._by_id[schema_id, shape] = self._call(f"/schemas/ids/{schema_id}{query}")
        return known

    def latest(self, subject: str, shape: str = "") -> dict[str, Any]:
        query = f"?format={shape}" if shape else ""
        return self._call(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest{query}")

    def register(self, subject: str, schema: str, kind: str) -> int:
        """The id of a schema, new or known."""
        body = {"schema": schema} if kind == "AVRO" else {"schema": schema, "schemaType": kind}
        return int(self._call(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions", body)["id"])

    def _call(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = dict(self._headers)
        if data is not None:
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
        request = urllib.request.Request(self._url + path, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                parsed: dict[str, Any] = json.load(answer)
                return parsed
        except urllib.error.HTTPError as error:
            reason = f"{self._url}{path}: {error.code} {_message(error)}"
            raise (UnknownSchema if error.code == 404 else RegistryError)(reason) from None
        except (OSError, ValueError) as error:
            raise RegistryError(f"{self._url}{path}: {error}") from None


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error).get("message", error.reason))
    except ValueError:
        return str(error.reason)


@cache
def registry_for(options: RegistryOptions) -> Registry:
    return Registry(options)


def split(value: bytes) -> tuple[int, bytes]:
    """(schema id, the rest) of a value in the wire format."""
    if len(value) < _HEAD.size or value[0] != MAGIC:
        raise ValueError("the value does not begin with a zero byte and a schema id")
    return _HEAD.unpack_from(value)[1], value[_HEAD.size :]


def head(schema_id: int) -> bytes:
    return _HEAD.pack(MAGIC, schema_id)
