"""Who a connection belongs to: `Principal`, as Kafka names users (`User:anna`)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ANONYMOUS", "USER", "Principal"]

USER = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """Two principals are the same when type and name are; how they proved it is the connection's business."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """`User:anna`; raises ValueError with what is wrong."""
        kind, separator, name = text.strip().partition(":")
        if not separator or not kind or not name:
            raise ValueError(f"{text!r} is not a principal: write type:name, as in User:anna")
        return cls(kind, name)


ANONYMOUS = Principal(USER, "ANONYMOUS")
