"""Wrong rules of fetches (sessions, long polls, what consumers share), of verifications and of what starts rely on."""

from __future__ import annotations

from typing import Final

from penstock.testing.mutants.model import Mutant

_USUAL: Final = "penstock/broker/fetch/usual.py"
_IN_SYNC: Final = "penstock/replication/in_sync.py"
_PARTITION: Final = "penstock/replication/partition.py"
_FOLLOWER: Final = "penstock/broker/fetch/usual_follower.py"
_BY_FOLLOWERS: Final = "tests/broker/test_usual_followers.py::test_what_does_not_hold_any_longer_acknowledges_nothing"
_VERIFICATIONS: Final = "penstock/log/verifications.py"
_MAINTENANCE: Final = "penstock/log/maintenance.py"
_MEANWHILE: Final = "tests/broker/test_usual_fetch_meanwhile.py::"
_NEWS: Final = "tests/replication/test_news.py::"

MUTANTS: Final = [
    Mutant(
        "short-way-of-a-former-life",
        _FOLLOWER,
        "or not partition.accepts_broker_epoch(self._replica_id, self._replica_epoch)",
        "or False",
        "a late fetch of a broker's earlier life acknowledges records that its present life may lack",
        _BY_FOLLOWERS,
    ),
    Mutant(
        "short-way-under-another-epoch",
        _FOLLOWER,
        "and self._leader_epoch == partition.leader_epoch",
        "and True",
        "a follower that may have diverged acknowledges what it has instead",
        _BY_FOLLOWERS,
    ),
    Mutant(
        "usual-fetch-alone",
        _USUAL,
        "and (session is None or (session.usual is self and session.news.only_due(self.asked)))",
        "and (session is None or session.usual is self)",
        "a partition with much to read keeps the others of its session waiting for ever",
        _MEANWHILE + "test_a_partition_with_much_to_read_does_not_keep_others_of_its_session_waiting",
    ),
    Mutant(
        "shared-beyond-limits",
        _USUAL,
        "key = (partition, offset, self._limit, high_watermark, last_stable, start, upper, partition.changes, log)",
        "key = (partition, offset, high_watermark, last_stable, start, upper, partition.changes, log)",
        "a consumer gets what another one with a larger limit asked for",
        _MEANWHILE + "test_what_is_shared_is_as_new_and_as_large_as_each_of_them_may_have",
    ),
    Mutant(
        "poll-ends-with-the-one-before",
        _USUAL,
        "self._deadline = dispatcher.now + self._max_wait_seconds",
        "self._deadline = self._deadline if self._timer else dispatcher.now + self._max_wait_seconds",
        "a long poll ends when the one before it would have",
        _MEANWHILE + "test_every_poll_lasts_as_long_as_it_asks",
    ),
    Mutant(
        "poll-stays-elsewhere",
        _USUAL,
        "for partition in self._also:",
        "for partition in ():",
        "a poll that is over is still woken by other partitions of its session",
        _MEANWHILE + "test_a_poll_that_another_partition_ended_waits_there_no_longer",
    ),
    Mutant(
        "follower-stirs-nobody",
        _PARTITION,
        "if self.resting_readers:",
        "if False:",
        "consumers of a follower are not told of what replication brings",
        _NEWS + "test_what_replication_brings_is_news_for_consumers_of_a_follower",
        within="def follower_advanced",
    ),
    Mutant(
        "isr-change-stirs-nobody",
        _IN_SYNC,
        "self.stir()",
        "pass",
        "a follower that left the ISR rests in its session, and its fetches never let it join",
        _NEWS + "test_a_follower_that_left_the_isr_is_asked_at_every_fetch_whether_it_is_back",
        within="def isr_recorded",
    ),
    Mutant(
        "verification-outlives-its-leadership",
        _VERIFICATIONS,
        "self._running.clear()",
        "pass",
        "a writer whose transaction was taken over adds to it behind two changes of leaders",
        "tests/log/test_append.py::test_a_verification_does_not_outlive_the_leadership_that_asked",
        within="def leadership_begins",
    ),
    Mutant(
        "deletes-what-no-snapshot-remembers",
        _MAINTENANCE,
        "if not log.producers_state.entries:",
        "if True:",
        "after a kill a producer may repeat what it wrote before a segment that retention left as the first",
        "tests/log/test_many_producers.py::test_a_roll_that_made_no_snapshot_is_nowhere_a_log_may_begin",
        within="def _remembered",
    ),
]
