"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802), the server's side, and credentials in the form Kafka keeps them.

Written out because Kafka's clients log in with delegation tokens by an extension (`tokenauth=true`) that general
libraries refuse; the client's side uses scramp. Pure: texts in, texts out.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["MECHANISMS", "ScramCredential", "ScramFailed", "ScramServer", "made_up_credential", "make_credential"]

MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16_384
USUAL_ITERATIONS = (4096, 8192)  # of Kafka's tool and of `penstock user`: made-up users have one of these, too
NONCE_BYTES = 24

_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>[^,]*))?,"
    r"n=(?P<name>(?:[^=,\0]|=2C|=3D)+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[A-Za-z]+=[^,\0]*)*)"
)
_FINAL = re.compile(
    r"(?P<unproven>c=(?P<header>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^,\0]*)*?)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)


class ScramFailed(Exception):
    """The exchange cannot go on; the message is for logs, clients are told less."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What is kept instead of a password."""

    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def __str__(self) -> str:
        """As Kafka writes it below /config/users."""
        salt, stored, server = (base64.b64encode(b).decode() for b in (self.salt, self.stored_key, self.server_key))
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """Raises ValueError; never with the text in it."""
        parts = dict(part.partition("=")[::2] for part in text.split(","))
        try:
            salt, stored, server = (
                base64.b64decode(parts[n], validate=True) for n in ("salt", "stored_key", "server_key")
            )
            return cls(salt, stored, server, int(parts["iterations"]))
        except (KeyError, ValueError):
            raise ValueError("not a SCRAM credential") from None

    @classmethod
    def from_salted_password(cls, mechanism: str, salt: bytes, salted: bytes, iterations: int) -> ScramCredential:
        digest = MECHANISMS[mechanism]
        client_key = hmac.digest(salted, b"Client Key", digest)
        return cls(
            salt, hashlib.new(digest, client_key).digest(), hmac.digest(salted, b"Server Key", digest), iterations
        )


def make_credential(
    mechanism: str, password: str, iterations: int = MIN_ITERATIONS, salt: bytes | None = None
) -> ScramCredential:
    """Some milliseconds of work, by intention."""
    salt = salt or secrets.token_bytes(24)
    salted = hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password.encode(), salt, iterations)
    return ScramCredential.from_salted_password(mechanism, salt, salted, iterations)


def made_up_credential(mechanism: str, name: str, key: bytes) -> ScramCredential:
    """For a user that does not exist: the same one each time, so that nobody learns by asking who exists."""
    drawn = hmac.digest(key, b"salt " + name.encode(), "sha256")
    salt, iterations = drawn[:24], USUAL_ITERATIONS[drawn[24] % len(USUAL_ITERATIONS)]
    size = hashlib.new(MECHANISMS[mechanism]).digest_size
    return ScramCredential(salt, secrets.token_bytes(size), secrets.token_bytes(size), iterations)


class ScramServer:
    """One exchange."""

    def __init__(self, mechanism: str) -> None:
        self._digest = MECHANISMS[mechanism]
        self.username = ""
        self.is_token = False
        self._credential: ScramCredential | None = None
        self._nonce = ""
        self._messages: list[str] = []
        self._header = b""

    def first(self, data: bytes, find: Callable[[str, bool], ScramCredential]) -> bytes:
        """`find(name, is_token)` gives the credential that the proof will be checked with."""
        text = _decoded(data)
        match = _FIRST.fullmatch(text)
        if match is None:
            raise ScramFailed("not a first message (or one with channel binding, which Kafka's clients do not use)")
        self.username = match["name"].replace("=2C", ",").replace("=3D", "=")
        if match["authzid"] and match["authzid"].replace("=2C", ",").replace("=3D", "=") != self.username:
            raise ScramFailed("the authorization id is not the user's name")
        extensions = dict(part.partition("=")[::2] for part in match["extensions"].split(",") if part)
        if "m" in extensions:
            raise ScramFailed("a mandatory extension")
        self.is_token = extensions.get("tokenauth", "").lower() == "true"
        self._credential = credential = find(self.username, self.is_token)
        self._nonce = match["nonce"] + secrets.token_urlsafe(NONCE_BYTES)
        self._header = text[: match.start("name") - 2].encode()
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._messages = [text[match.start("name") - 2 :], answer]
        return answer.encode()

    def final(self, data: bytes) -> bytes:
        """Our own proof, if the client's is right."""
        match = _FINAL.fullmatch(_decoded(data))
        credential = self._credential
        if match is None or credential is None:
            raise ScramFailed("not a final message")
        if not hmac.compare_digest(match["nonce"].encode(), self._nonce.encode()):
            raise ScramFailed("another exchange's nonce")
        try:
            header = base64.b64decode(match["header"], validate=True)
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error:
            raise ScramFailed("not base64") from None
        if header != self._header:
            raise ScramFailed("the header of the first message was another")
        message = ",".join([*self._messages, match["unproven"]]).encode()
        signature = hmac.digest(credential.stored_key, message, self._digest)
        if len(proof) != len(signature):
            raise ScramFailed("a proof of the wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), credential.stored_key):
            raise ScramFailed("the proof is wrong")
        verifier = base64.b64encode(hmac.digest(credential.server_key, message, self._digest))
        return b"v=" + verifier


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ScramFailed("not UTF-8") from None
