"""What happens between two rounds, so that each finds the machine as the other side found it."""

from __future__ import annotations

import os
import tempfile

SCRATCH_MEGABYTES = 3000


def settle(fresh_memory: bool = True) -> None:
    """Let nobody pay for what the other side wrote, nor for memory that the host has taken back.

    A virtual machine gives free memory back to its host within seconds, and getting a page again costs more than any
    broker spends on filling it (600 MB/s to a file instead of 3,000). A deleted file leaves pages that are ours.
    """
    os.sync()
    if not fresh_memory:
        return
    megabyte = bytes(1 << 20)
    with tempfile.TemporaryFile() as scratch:
        for _ in range(SCRATCH_MEGABYTES):
            scratch.write(megabyte)
