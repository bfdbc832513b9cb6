"""What a read_committed consumer shows of the batches of one fetch: the rule that clients follow, row by row. The
columnar kernels have it once more, over arrays (`columnar_decode`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.protocol.batch import BatchHeader, Buffer, iterate_batches


def committed_batches(data: Buffer, aborted: Iterable[tuple[int, int]]) -> Iterator[tuple[BatchHeader, bool]]:
    """Every batch, and whether its records are shown: no control batch, nothing of an aborted transaction.

    `aborted`: (producer id, first offset) as the fetch answered them. A producer's transaction is over at its marker.
    """
    coming = sorted(aborted, key=lambda entry: entry[1], reverse=True)
    being_aborted: set[int] = set()
    for header in iterate_batches(data):
        while coming and coming[-1][1] <= header.last_offset:
            being_aborted.add(coming.pop()[0])
        if header.is_control:
            being_aborted.discard(header.producer_id)
        yield header, not (header.is_control or (header.is_transactional and header.producer_id in being_aborted))
