"""All wrong rules."""

from __future__ import annotations

from typing import Final

from penstock.testing.mutants import cluster, coordinators, fetches, guards, log, mended_log, replication, sink
from penstock.testing.mutants.model import Mutant

MUTANTS: Final[list[Mutant]] = [
    *replication.MUTANTS,
    *fetches.MUTANTS,
    *guards.MUTANTS,
    *cluster.MUTANTS,
    *log.MUTANTS,
    *mended_log.MUTANTS,
    *coordinators.MUTANTS,
    *sink.MUTANTS,
]
