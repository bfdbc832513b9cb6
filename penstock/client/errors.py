"""What can go wrong on the way to a broker. Every message names the place and the next thing to try."""

from __future__ import annotations

import errno
import re
import socket

from penstock.protocol.errors import ErrorCode, error_name

__all__ = [
    "AuthenticationFailed",
    "BrokerUnreachable",
    "ClientError",
    "ConnectionLost",
    "KafkaError",
    "RequestTimedOut",
    "UnsupportedApi",
    "why_unreachable",
]

_ERRNO = re.compile(r"\[Errno (\d+)\]")
_REASONS_SHOWN = 3


class ClientError(Exception):
    """Base of all errors of this room."""


class BrokerUnreachable(ClientError):
    """No connection could be made. `reasons`: one for each address that was tried."""

    def __init__(self, *reasons: str) -> None:
        more = len(reasons) - _REASONS_SHOWN
        shown = [*reasons[:_REASONS_SHOWN], *([f"{more} more"] if more > 0 else [])]
        super().__init__(f"no broker answers: {'; '.join(shown)}")
        self.reasons = reasons


def why_unreachable(host: str, port: int, error: OSError) -> str:
    """In plain words. A name with several addresses fails with all their errors in one text."""
    if isinstance(error, socket.gaierror):
        return f"there is no host named {host!r}"
    numbers = {error.errno} if error.errno else {int(number) for number in _ERRNO.findall(str(error))}
    if numbers == {errno.ECONNREFUSED}:
        return f"nothing listens at {host}:{port}"
    if numbers and numbers <= {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ECONNREFUSED}:
        return f"there is no way to {host}:{port}"
    return f"{host}:{port} cannot be connected to ({error.strerror or str(error) or 'it was closed'})"


class ConnectionLost(ClientError):
    """The connection broke while an answer was awaited: whether the request took effect is unknown."""


class RequestTimedOut(ConnectionLost):
    """No answer in time; the connection is given up, because later answers could only come behind the missing one."""


class AuthenticationFailed(ClientError):
    """TLS or SASL refused us; trying again with the same credentials will not help."""


class UnsupportedApi(ClientError):
    """The broker offers no version of the API that we can speak."""


class KafkaError(ClientError):
    """A broker answered with an error code that the caller asked to see as an exception."""

    def __init__(self, code: int, what: str, detail: str | None = None) -> None:
        self.code = code
        self.what = what
        self.detail = detail
        try:
            explanation = ErrorCode(code).message
        except ValueError:
            explanation = "This code is not known to this version."
        super().__init__(f"{what}: {error_name(code)} ({detail or explanation})")

    def __reduce__(self) -> tuple[type[KafkaError], tuple[int, str, str | None]]:
        return KafkaError, (self.code, self.what, self.detail)  # Spark carries errors from workers to the driver

    @property
    def retriable(self) -> bool:
        try:
            return ErrorCode(self.code).retriable
        except ValueError:
            return False
