"""Brokers prove to each other who they are: a mutual HMAC with a secret that only the cluster's store holds.

The dialling broker sends its id, the id it means to reach and a nonce; the other answers with a nonce of its own and a
MAC; the first checks it and sends its MAC. Both MACs cover the cluster id, both ids, both nonces and the direction, so
that none of them can be replayed, reflected or carried to another broker. This room is pure: bytes in, bytes out.

It keeps strangers out. Whoever sits on the wire of a plaintext listener can still take over a proven connection: that
needs TLS.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.base.outside_json import load_json

__all__ = ["PROOF_FEATURE", "PROOF_KEY", "BrokerSecrets", "Dialler", "ProofFailed", "Receiver", "read_message"]

PROOF_KEY = 10002
PROOF_FEATURE = "penstock.broker.proof"
MAX_MESSAGE_BYTES = 2048
NONCE_BYTES = 32
SECRET_BYTES = 32
_DIALLER, _RECEIVER = b"dialler", b"receiver"


class ProofFailed(Exception):
    """The other side is not the broker it should be; the message never holds secrets."""


@dataclass(frozen=True, slots=True)
class BrokerSecrets:
    """The secrets that count now, newest first: two while one takes the place of the other."""

    values: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def generate(cls) -> BrokerSecrets:
        return cls((secrets.token_bytes(SECRET_BYTES),))

    def rotated(self) -> BrokerSecrets:
        return BrokerSecrets((secrets.token_bytes(SECRET_BYTES), self.values[0]))

    @property
    def newest(self) -> bytes:
        return self.values[0]

    def find(self, name: str) -> bytes | None:
        return next((value for value in self.values if hmac.compare_digest(secret_name(value), name)), None)


def secret_name(secret: bytes) -> str:
    """Which secret is meant, without telling it."""
    return hmac.digest(secret, b"name of this secret", "sha256")[:8].hex()


def _mac(secret: bytes, direction: bytes, cluster_id: str, ids: tuple[int, int], nonces: tuple[bytes, bytes]) -> bytes:
    parts = (b"penstock broker proof 1", direction, cluster_id.encode(), b"%d" % ids[0], b"%d" % ids[1], *nonces)
    return hmac.digest(secret, b"".join(len(part).to_bytes(4, "big") + part for part in parts), "sha256")


def read_message(data: bytes | memoryview) -> dict[str, Any]:
    """A message of the exchange; ProofFailed if it is none."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise ProofFailed("a proof message is too long")
    try:
        body = load_json(bytes(data))
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise ProofFailed("not a proof message")
    return body


def _bytes(body: Mapping[str, Any], name: str) -> bytes:
    try:
        value = bytes.fromhex(body[name])
    except (KeyError, TypeError, ValueError):
        raise ProofFailed(f"a proof message without {name}") from None
    if len(value) != NONCE_BYTES:
        raise ProofFailed(f"a proof message with a {name} of {len(value)} bytes")
    return value


def _id(body: Mapping[str, Any], name: str) -> int:
    value = body.get(name)
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise ProofFailed(f"a proof message without {name}")
    return value


class Dialler:
    """The side that opened the connection: send `hello`, give the answer to `finish`, send what that returns."""

    def __init__(self, secrets_now: BrokerSecrets, cluster_id: str, own_id: int, peer_id: int) -> None:
        self._secret = secrets_now.newest
        self._cluster_id = cluster_id
        self._ids = (own_id, peer_id)
        self._nonce = secrets.token_bytes(NONCE_BYTES)

    def hello(self) -> bytes:
        own_id, peer_id = self._ids
        return json.dumps(
            {"from": own_id, "to": peer_id, "nonce": self._nonce.hex(), "secret": secret_name(self._secret)}
        ).encode()

    def finish(self, answer: bytes | memoryview) -> bytes:
        body = read_message(answer)
        if body.get("refused"):
            raise ProofFailed(f"broker {self._ids[1]} refused the proof: {str(body['refused'])[:200]}")
        nonces = (self._nonce, _bytes(body, "nonce"))
        expected = _mac(self._secret, _RECEIVER, self._cluster_id, self._ids, nonces)
        if not hmac.compare_digest(expected, _bytes(body, "mac")):
            raise ProofFailed(f"whoever answers is not broker {self._ids[1]} of this cluster")
        return json.dumps({"mac": _mac(self._secret, _DIALLER, self._cluster_id, self._ids, nonces).hex()}).encode()


class Receiver:
    """The side that accepted the connection. `greet` answers a hello, `check` names the broker that proved itself."""

    def __init__(self, find_secret: Callable[[str], bytes | None], cluster_id: str, own_id: int) -> None:
        self._find_secret = find_secret
        self._cluster_id = cluster_id
        self._own_id = own_id
        self._peer_id = -1
        self._expected: bytes | None = None

    def greet(self, body: Mapping[str, Any]) -> bytes:
        peer_id, meant_id, nonce = _id(body, "from"), _id(body, "to"), _bytes(body, "nonce")
        if meant_id != self._own_id or peer_id == self._own_id:
            raise ProofFailed(f"this is broker {self._own_id}")
        secret = self._find_secret(str(body.get("secret")))
        if secret is None:
            raise ProofFailed("another secret than this cluster's")
        nonces = (nonce, secrets.token_bytes(NONCE_BYTES))
        ids = (peer_id, self._own_id)
        self._peer_id = peer_id
        self._expected = _mac(secret, _DIALLER, self._cluster_id, ids, nonces)
        mac = _mac(secret, _RECEIVER, self._cluster_id, ids, nonces)
        return json.dumps({"nonce": nonces[1].hex(), "mac": mac.hex()}).encode()

    def check(self, body: Mapping[str, Any]) -> int:
        expected, self._expected = self._expected, None  # one try
        if expected is None or not hmac.compare_digest(expected, _bytes(body, "mac")):
            raise ProofFailed("the proof is wrong")
        return self._peer_id
