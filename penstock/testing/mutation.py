"""Bytes made wrong in the ways that parsers mind: flipped, cut, repeated, and with lengths that lie."""

from __future__ import annotations

import random

_LENGTHS = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x0f\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"\x7f\xff",
    b"\x00",
)


def mutated(data: bytes, rng: random.Random, times: int | None = None) -> bytes:
    """`data` with one to four wounds."""
    out = bytearray(data)
    for _ in range(times or rng.randint(1, 4)):
        at = rng.randrange(len(out) + 1)
        how = rng.randrange(6)
        if how == 0 and out:
            out[min(at, len(out) - 1)] ^= 1 << rng.randrange(8)
        elif how == 1 and out:
            out[min(at, len(out) - 1)] = rng.randrange(256)
        elif how == 2:
            del out[at:]
        elif how == 3:
            lie = rng.choice(_LENGTHS)
            out[at : at + len(lie)] = lie
        elif how == 4:
            end = min(at + rng.randint(1, 64), len(out))
            out[at:at] = bytes(out[at:end]) * rng.randint(1, 8)
        else:
            out[at:at] = rng.randbytes(rng.randint(1, 16))
    return bytes(out)
