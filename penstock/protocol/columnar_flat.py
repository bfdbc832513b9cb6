"""Arrow columns as the kernels take them: flat arrays of offsets, bytes and validity, without copying the bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.protocol.columnar_encode import HEADER_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Flat:
    """A binary column as the kernels take it."""

    offsets: Any
    data: Any
    valid: Any

    @property
    def size(self) -> int:
        return int(self.offsets[-1] - self.offsets[0]) if len(self.offsets) else 0


def sealed(array: Any) -> Any:
    """Read-only, as Arrow's buffers are: one kind of array means that each kernel is compiled only once."""
    view = array.view()
    view.flags.writeable = False
    return view


_NO_BYTES: Final = sealed(np.zeros(1, np.uint8))


def nothing(count: int) -> Flat:
    return Flat(sealed(np.zeros(count + 1, np.int32)), _NO_BYTES, sealed(np.zeros(count, np.uint8)))


def flat(array: Any) -> Flat:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if array.type not in (pa.binary(), pa.string()):
        if not (pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)):
            raise TypeError(f"expected a binary or string column, got {array.type}")
        array = array.cast(pa.binary())
    count = len(array)
    _, ends, data = array.buffers()
    if ends is None or ends.size == 0:
        return nothing(count)
    offsets = np.frombuffer(ends, np.int32)[array.offset : array.offset + count + 1]
    flat = np.frombuffer(data, np.uint8) if data is not None and data.size else _NO_BYTES
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
    else:
        valid = np.ones(count, np.uint8)
    return Flat(offsets, flat, sealed(valid))


@dataclass(frozen=True, slots=True)
class FlatHeaders:
    present: bool
    lists: Any
    list_valid: Any
    keys: Flat
    values: Flat

    @property
    def size(self) -> int:
        if not self.present:
            return 0
        count = int(self.lists[-1]) - int(self.lists[0])
        return self.keys.size + self.values.size + count * HEADER_OVERHEAD_BYTES

    @classmethod
    def of(cls, headers: Any) -> FlatHeaders:
        if isinstance(headers, pa.ChunkedArray):
            headers = headers.combine_chunks()
        if headers is None or headers.null_count == len(headers):
            return cls(False, sealed(np.zeros(1, np.int32)), sealed(np.zeros(1, np.uint8)), nothing(0), nothing(0))
        lists = np.frombuffer(headers.buffers()[1], np.int32)[headers.offset : headers.offset + len(headers) + 1]
        pairs = headers.values
        keys = pairs.field("key")
        if keys.null_count or pairs.null_count:
            raise ValueError("a header without key: Kafka's headers need one")
        valid = headers.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
        return cls(True, lists, sealed(valid), flat(keys), flat(pairs.field("value")))
