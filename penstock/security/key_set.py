"""The public keys that sign OAuth tokens: a JWKS from a file or an address, read in a thread, kept with a bound."""

from __future__ import annotations

import asyncio
import logging
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jwt import PyJWK
from jwt.exceptions import PyJWTError

from penstock.base.outside_json import load_json

__all__ = ["ALGORITHMS", "KeySet", "KeySetError", "read_key_set"]

logger = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures with a private key only: `none` signs nothing, and HMAC would take a public key for a secret."""
MAX_BYTES = 1024 * 1024
MAX_KEYS = 256
FETCH_SECONDS = 10.0
_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}


class KeySetError(Exception):
    """The key set cannot be read; the message says where and why."""


def read_key_set(address: str) -> dict[str, PyJWK]:
    """All usable keys by their id ("" for one without). Blocks."""
    try:
        data = _read(address)
        keys = load_json(data)["keys"]
        if not isinstance(keys, list) or len(keys) > MAX_KEYS:
            raise ValueError("not a list of keys, or too long a one")
    except (OSError, urllib.error.URLError, ValueError, KeyError, TypeError) as error:
        raise KeySetError(f"the key set {address} cannot be read: {error}") from error
    found: dict[str, PyJWK] = {}
    for body in keys:
        if not isinstance(body, dict) or body.get("use", "sig") != "sig" or body.get("kty") == "oct":
            continue  # a symmetric key in a public set would let anybody sign
        try:
            found[str(body.get("kid", ""))] = PyJWK(body, _algorithm(body))
        except (PyJWTError, ValueError, TypeError) as error:
            logger.warning("a key of %s is not usable: %s", address, error)
    if not found:
        raise KeySetError(f"the key set {address} has no key that could sign tokens")
    return found


def _algorithm(body: dict[str, Any]) -> str | None:
    told = body.get("alg")
    return told if told in ALGORITHMS else None


def _read(address: str) -> bytes:
    parsed = urllib.parse.urlsplit(address)
    if parsed.scheme == "file":
        with Path(urllib.request.url2pathname(parsed.path)).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    elif parsed.scheme == "https" or (parsed.scheme == "http" and parsed.hostname in ("localhost", "127.0.0.1")):
        with urllib.request.urlopen(address, timeout=FETCH_SECONDS) as answer:
            data = answer.read(MAX_BYTES + 1)
    else:
        raise ValueError("the address begins with https:// or file:// (http:// only on this machine)")
    if len(data) > MAX_BYTES:
        raise ValueError(f"longer than {MAX_BYTES} bytes")
    return data


def fits(key: PyJWK, algorithm: str) -> bool:
    """An algorithm only ever meets a key of its own kind."""
    return bool(key.key_type == _KEY_TYPES.get(algorithm[:2]))


class KeySet:
    """Reads again when it is old, and, not too often, when a token names a key that is not there."""

    def __init__(
        self,
        address: str,
        refresh_s: float,
        backoff_s: float,
        max_backoff_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._refresh_s = refresh_s
        self._first_backoff_s, self._max_backoff_s = backoff_s, max_backoff_s
        self._monotonic = monotonic
        self._keys: dict[str, PyJWK] = {}
        self._read_at = float("-inf")
        self._failures = 0
        self._reading: asyncio.Future[dict[str, PyJWK]] | None = None

    async def find(self, key_id: str) -> PyJWK | None:
        if self._monotonic() - self._read_at > self._refresh_s or (key_id not in self._keys and self._may_try()):
            await self._read_again()
        found = self._keys.get(key_id)
        if found is None and not key_id and len(self._keys) == 1:
            (found,) = self._keys.values()  # one key, and a token that need not say which
        return found

    def _may_try(self) -> bool:
        backoff_s = min(self._max_backoff_s, self._first_backoff_s * (1 << self._failures))
        return self._monotonic() - self._read_at > max(backoff_s, 1.0)

    async def _read_again(self) -> None:
        """All who wait share one reading."""
        if self._reading is None:
            loop = asyncio.get_running_loop()
            self._reading = loop.run_in_executor(None, read_key_set, self._address)
        reading = self._reading
        try:
            keys = await asyncio.shield(reading)
        except KeySetError as error:
            if self._reading is reading:
                self._failures = min(self._failures + 1, 16)
                logger.error("%s", error)
        else:
            self._keys, self._failures = keys, 0
        if self._reading is reading:
            self._reading = None
            self._read_at = self._monotonic()
