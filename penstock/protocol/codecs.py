"""The four compression codecs of record batches, in exactly the wire form that Kafka's Java code reads and writes.

cramjam does the work and is imported nowhere else. Every decompression is bounded: a few bytes from a client must
never become gigabytes here.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import Final

import cramjam
import xxhash

Buffer = bytes | bytearray | memoryview

DEFAULT_MAX_UNCOMPRESSED_BYTES: Final = 256 * 1024 * 1024

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01" * 2
_XERIAL_BLOCK_BYTES: Final = 32 * 1024

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_FRAME_HEADER: Final = _LZ4_MAGIC + b"\x60\x40\x82"  # version 1, independent blocks of 64 KiB, no checksums
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_STORED: Final = 0x8000_0000
_LZ4_BLOCK_MAX_BYTES: Final = {4: 64 * 1024, 5: 256 * 1024, 6: 1024 * 1024, 7: 4 * 1024 * 1024}

_STREAM_STEP_BYTES: Final = 64 * 1024
_GZIP_STEP_BYTES: Final = 16 * 1024


class Codec(IntEnum):
    """Codec ids as bits 0–2 of a batch's attributes hold them."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def kafka_name(self) -> str:
        """The name that `compression.type` uses."""
        return self.name.lower()


CODEC_BY_NAME: Final[dict[str, Codec]] = {
    "none": Codec.NONE,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class CodecError(Exception):
    """The compressed bytes are broken, or of a form that Kafka refuses too."""


class TooLarge(CodecError):
    """The data would grow beyond the given bound when decompressed."""


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`data` in the wire form of `codec`; `level` as in `compression.<codec>.level`, None for the codec's default."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        return _gzip_compress(data, level)
    if codec is Codec.SNAPPY:
        return _snappy_compress(data)
    if codec is Codec.LZ4:
        return _lz4_compress(data)
    return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))


def decompress(codec: Codec, data: Buffer, max_bytes: int = DEFAULT_MAX_UNCOMPRESSED_BYTES) -> bytes:
    """The plain bytes; CodecError when broken, TooLarge as soon as more than `max_bytes` would come out."""
    if codec is Codec.NONE:
        if len(data) > max_bytes:
            raise TooLarge(f"{len(data)} bytes exceed the bound of {max_bytes}")
        return bytes(data)
    if codec is Codec.GZIP:
        return _gzip_decompress(data, max_bytes)
    if codec is Codec.SNAPPY:
        return _snappy_decompress(data, max_bytes)
    if codec is Codec.LZ4:
        return _lz4_decompress(data, max_bytes)
    return _zstd_decompress(data, max_bytes)


def _gzip_compress(data: Buffer, level: int | None) -> bytes:
    # zlib rather than cramjam: the level -1 of Kafka's setting is zlib's own default, and both are native.
    engine = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    return engine.compress(data) + engine.flush()


def _gzip_decompress(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = []
    room = max_bytes
    position = 0
    try:
        while position < len(view):
            engine = zlib.decompressobj(31)
            while not engine.eof:  # in steps: what lies behind a member is copied by the engine, again for each of them
                step = view[position : position + _GZIP_STEP_BYTES]
                if not step:
                    raise CodecError("gzip data ends too early")
                part = engine.decompress(step, room + 1)
                room -= len(part)
                if room < 0 or engine.unconsumed_tail:
                    raise TooLarge(f"gzip data grows beyond the bound of {max_bytes} bytes")
                position += len(step) - len(engine.unused_data)
                parts.append(part)
    except zlib.error as error:
        raise CodecError(f"broken gzip data: {error}") from error
    if not parts:
        raise CodecError("empty gzip data")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy_compress(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _snappy_decompress(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _raw_snappy(view, max_bytes)
    parts: list[bytes] = []
    room = max_bytes
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise CodecError("snappy stream header is cut")
    while position < len(view):
        size = int.from_bytes(view[position : position + 4], "big")
        if bytes(view[position : position + 8]) == _XERIAL_MAGIC:  # concatenated streams are legal
            position += len(_XERIAL_HEADER)
            continue
        position += 4
        if size > len(view) - position:
            raise CodecError("snappy block is cut")
        block = _raw_snappy(view[position : position + size], room)
        parts.append(block)
        room -= len(block)
        position += size
    return b"".join(parts)


def _raw_snappy(block: memoryview, max_bytes: int) -> bytes:
    try:
        # A block begins with its plain size, so a bomb is refused before anything is allocated.
        size = cramjam.snappy.decompress_raw_len(block)
        if size > max_bytes:
            raise TooLarge(f"snappy data grows beyond the bound of {max_bytes} bytes")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CodecError(f"broken snappy data: {error}") from error


def _lz4_compress(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_LZ4_FRAME_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) >= len(plain):
            parts.append((len(plain) | _LZ4_STORED).to_bytes(4, "little"))
            parts.append(bytes(plain))
        else:
            parts.append(len(block).to_bytes(4, "little"))
            parts.append(block)
    parts.append(b"\x00\x00\x00\x00")
    return b"".join(parts)


def _lz4_decompress(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    position, block_max, block_checksums, content_checksum = _lz4_header(view)
    parts: list[bytes] = []
    room = max_bytes
    while True:
        if position + 4 > len(view):
            raise CodecError("lz4 frame ends without its end mark")
        size = int.from_bytes(view[position : position + 4], "little")
        position += 4
        if size == 0:
            break
        stored = bool(size & _LZ4_STORED)
        size &= ~_LZ4_STORED
        if size > block_max or position + size > len(view):
            raise CodecError("lz4 block is cut or larger than its frame allows")
        raw = view[position : position + size]
        position += size
        if block_checksums:
            if xxhash.xxh32_intdigest(bytes(raw)) != int.from_bytes(view[position : position + 4], "little"):
                raise CodecError("lz4 block checksum differs")
            position += 4
        block = bytes(raw) if stored else _lz4_block(raw, block_max)
        if len(block) > room:
            raise TooLarge(f"lz4 data grows beyond the bound of {max_bytes} bytes")
        room -= len(block)
        parts.append(block)
    if content_checksum:
        position += 4
    if position > len(view):
        raise CodecError("lz4 frame is cut")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _lz4_block(raw: memoryview, block_max: int) -> bytes:
    plain = bytearray(block_max)
    try:
        size = cramjam.lz4.decompress_block_into(raw, plain, output_len=block_max)
    except Exception as error:
        raise CodecError(f"broken lz4 block: {error}") from error
    return bytes(memoryview(plain)[:size])


def _lz4_header(view: memoryview) -> tuple[int, int, bool, bool]:
    """(where the blocks begin, largest block, block checksums?, content checksum?) of a frame that Kafka accepts."""
    if len(view) < 7 or bytes(view[:4]) != _LZ4_MAGIC:
        raise CodecError("not an lz4 frame")
    flags, descriptor = view[4], view[5]
    if flags >> 6 != 1 or flags & 0x02 or descriptor & 0x8F:
        raise CodecError("lz4 frame of an unknown version or with reserved bits")
    if not flags & 0x20:
        raise CodecError("lz4 frame with linked blocks")
    if flags & 0x01:
        raise CodecError("lz4 frame with a dictionary")
    block_max = _LZ4_BLOCK_MAX_BYTES.get(descriptor >> 4 & 0x07)
    if block_max is None:
        raise CodecError("lz4 frame with an unknown block size")
    position = 6 + (8 if flags & 0x08 else 0)
    if len(view) <= position:
        raise CodecError("lz4 frame header is cut")
    if xxhash.xxh32_intdigest(bytes(view[4:position])) >> 8 & 0xFF != view[position]:
        raise CodecError("lz4 frame header checksum differs")
    return position + 1, block_max, bool(flags & 0x10), bool(flags & 0x04)


def _zstd_decompress(data: Buffer, max_bytes: int) -> bytes:
    """Streamed into a fixed buffer, because a zstd frame need not say its plain size and may lie about it."""
    source = cramjam.Buffer(bytes(data))
    capacity = min(max_bytes, max(len(data) * 4, _STREAM_STEP_BYTES))
    while True:
        plain = bytearray(capacity + 1)
        try:
            source.seek(0)
            size = cramjam.zstd.decompress_into(source, plain)
        except cramjam.DecompressionError as error:
            if "failed to write whole buffer" not in str(error):
                raise CodecError(f"broken zstd data: {error}") from error
            size = capacity + 1
        if size <= capacity:
            return bytes(memoryview(plain)[:size])
        if capacity >= max_bytes:
            raise TooLarge(f"zstd data grows beyond the bound of {max_bytes} bytes")
        capacity = min(capacity * 4, max_bytes)
