"""Bad bytes and missing files: which exceptions say so, what a reader is answered, and telling the operator once."""

from __future__ import annotations

import logging
from typing import Final

from penstock.log.txn_index import InvalidTxnIndex
from penstock.protocol.batch import InvalidBatch
from penstock.protocol.codecs import CodecError
from penstock.protocol.errors import ErrorCode
from penstock.protocol.records import InvalidRecords

logger = logging.getLogger(__name__)

BAD_BYTES: Final = (InvalidBatch, InvalidRecords, CodecError, InvalidTxnIndex)
UNREADABLE: Final = (*BAD_BYTES, OSError)
"""What reading a log may raise. It costs the reader this log only, and nobody else anything."""

_TOLD_MAX: Final = 100


class Damage:
    """What was found to be unreadable in one log."""

    __slots__ = ("_name", "_told")

    def __init__(self, name: str) -> None:
        self._name = name
        self._told: set[str] = set()

    def tell(self, offset: int, error: Exception) -> ErrorCode:
        """What whoever asked for this offset is answered (as Kafka: bytes are corrupt, or the disk does not give them).
        The log line comes once for each place, however often it is asked for."""
        what = str(error)
        if what not in self._told and len(self._told) < _TOLD_MAX:
            self._told.add(what)
            logger.error("log=%s offset=%d cannot be read: %s", self._name, offset, what)
        return ErrorCode.CORRUPT_MESSAGE if isinstance(error, BAD_BYTES) else ErrorCode.KAFKA_STORAGE_ERROR
