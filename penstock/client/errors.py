"""What can go wrong on the way to a broker. Every message names the place and the next thing to try."""

from __future__ import annotations

from penstock.protocol.errors import ErrorCode, error_name

__all__ = [
    "AuthenticationFailed",
    "BrokerUnreachable",
    "ClientError",
    "ConnectionLost",
    "KafkaError",
    "RequestTimedOut",
    "UnsupportedApi",
]


class ClientError(Exception):
    """Base of all errors of this room."""


class BrokerUnreachable(ClientError):
    """No connection could be made."""


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
