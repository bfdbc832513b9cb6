"""Wrong rules of what guards transactions and readers against the past: verifications, fences, producer ids, news of
sessions, retention."""

from __future__ import annotations

from typing import Final

from penstock.testing.mutants.model import Mutant

_VERIFICATIONS: Final = "penstock/log/verifications.py"
_VERIFICATION: Final = "penstock/coordinator/transaction/verification.py"
_FENCES: Final = "penstock/broker/writer_fences.py"
_OFFSETS: Final = "penstock/broker/api/txn_offset_commit.py"
_SERVICE: Final = "penstock/coordinator/transaction/service.py"
_NEWS: Final = "penstock/replication/news.py"
_RETENTION: Final = "penstock/log/retention.py"
_KEPT: Final = "tests/coordinator/test_kept_prepared.py::"
_TOLD: Final = "tests/broker/test_writer_fences.py::"
_COORDINATOR: Final = "tests/coordinator/test_transaction_coordinator.py::"
_RULES: Final = "tests/coordinator/test_rules_of_coordinators.py::"
_NEWS_STORIES: Final = "tests/replication/test_news.py::"
_MANAGER: Final = "tests/log/test_log_manager.py::"

MUTANTS: Final = [
    Mutant(
        "fence-spares-the-question",
        _VERIFICATIONS,
        "if known is not None and known.epoch <= epoch:",
        "if known is not None and known.epoch < epoch:",
        "a verification that runs while its transaction is taken over lets the former writer add to it",
        _KEPT + "test_a_fence_takes_the_running_question_with_it_and_a_marker_takes_the_fence",
        within="def fence",
    ),
    Mutant(
        "fence-spares-its-pair",
        _VERIFICATIONS,
        "return bool(self._fenced) and producer_id in self._fenced and epoch <= self._fenced[producer_id][0]",
        "return bool(self._fenced) and producer_id in self._fenced and epoch < self._fenced[producer_id][0]",
        "the former writer of a transaction that was taken over goes on",
        _KEPT + "test_a_fence_takes_the_running_question_with_it_and_a_marker_takes_the_fence",
    ),
    Mutant(
        "deposed-leader-fences",
        _FENCES,
        "if partition is None or not partition.is_leader or partition.leader_epoch < one.leader_epoch:",
        "if partition is None or not partition.is_leader:",
        "a leader that was replaced counts as told, the one that leads lets the former writer go on",
        _TOLD + "test_a_leader_of_an_older_epoch_does_not_count_as_told",
    ),
    Mutant(
        "fence-by-an-old-view",
        _FENCES,
        "await broker.store.sync()",
        "pass",
        "whoever led when this broker last heard is told, and not who leads",
        _TOLD + "test_who_leads_is_asked_of_the_newest_state_of_the_store",
    ),
    Mutant(
        "leaderless-cannot-be-taken-over",
        _FENCES,
        "if found is None or found[0] < 0:",
        "if found is None:",
        "a transaction cannot be taken over while one of its partitions has no leader",
        _TOLD + "test_a_partition_that_nobody_leads_needs_no_word",
    ),
    Mutant(
        "coordinator-trouble-told-raw",
        _VERIFICATION,
        "if error in _ASK_AGAIN:",
        "if False:",
        "producers are told of coordinators, which they do not know, and give up",
        _COORDINATOR + "test_what_the_coordinator_says_in_the_words_of_produce",
    ),
    Mutant(
        "older-clients-wait-inside",
        _VERIFICATION,
        "if not concurrent or not ability.adds or attempt == RETRIES:",
        "if not concurrent or attempt == RETRIES:",
        "a client that would come again by itself is kept waiting",
        _RULES + "test_a_client_that_comes_again_by_itself_is_not_kept_waiting",
    ),
    Mutant(
        "offsets-verified-under-another-leader",
        _OFFSETS,
        "if broker.replicas.find(*key) is not replica or (replica.log, replica.leader_epoch) != asked_as:",
        "if broker.replicas.find(*key) is not replica:",
        "offsets join a transaction by an answer that was given to an earlier leadership",
        "tests/broker/test_verified_meanwhile.py::"
        "test_offsets_of_a_transaction_come_again_too_when_their_coordinator_was_elected_anew",
    ),
    Mutant(
        "completion-given-up",
        _SERVICE,
        "if current == transaction and not self.markers.is_sending(transaction):",
        "if False:",
        "a transaction whose completion was refused once stays decided for ever",
        _COORDINATOR + "test_a_completion_that_the_log_refuses_is_written_later",
        within="def _complete_again",
    ),
    Mutant(
        "scan-forgets-markers",
        _SERVICE,
        "if any(not self.markers.is_sending(t) for t in shard.preparing()):",
        "if False:",
        "a transaction whose markers nobody sends hides what comes behind it for ever",
        _RULES + "test_a_scan_sends_the_markers_that_nobody_sends",
    ),
    Mutant(
        "lost-records-not-read-again",
        "penstock/coordinator/runtime.py",
        "self.elected(partition, shard.leader_epoch)",
        "pass",
        "after a refused write the coordinator of a partition is gone until its next election",
        _RULES + "test_a_shard_whose_records_were_lost_is_read_again",
        within="def reload",
    ),
    Mutant(
        "loading-costs-the-place",
        "penstock/coordinator/group/service.py",
        "return ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error",
        "return error",
        "members give up their partitions because their coordinator has moved",
        _RULES + "test_a_member_keeps_its_place_while_its_coordinator_loads",
    ),
    Mutant(
        "no-second-try-with-ids",
        _SERVICE,
        "if is_short:",
        "if False:",
        "the first producer of a new coordinator is sent away",
        "tests/coordinator/test_ids_out_of_reach.py::test_who_cannot_reach_the_store_still_ends_transactions",
    ),
    Mutant(
        "rests-with-more-to-read",
        _NEWS,
        "or asked.offset < partition.read_bound(self.bound)",
        "or False",
        "what was written while a fetch was read waits for the next record",
        _NEWS_STORIES + "test_what_moves_between_the_read_and_the_answer_is_looked_at_again",
    ),
    Mutant(
        "rests-with-another-start",
        _NEWS,
        "or log.log_start_offset != fetched.log_start_offset",
        "or False",
        "a follower does not hear that records were deleted while its fetch was read",
        _NEWS_STORIES + "test_what_moves_between_the_read_and_the_answer_is_looked_at_again",
    ),
    Mutant(
        "stirred-wakes-no-poll",
        _NEWS,
        "wait.watch(partition, asked.offset)",
        "pass",
        "a long poll sleeps although a partition that rested when it began has records",
        _NEWS_STORIES + "test_a_long_poll_wakes_for_what_rested_when_it_was_parked",
    ),
    Mutant(
        "retention-takes-the-uncommitted",
        _RETENTION,
        "return log.high_watermark >= log.segments[index + 1].base_offset",
        "return True",
        "records that no follower has are deleted by age or size",
        _MANAGER + "test_retention_by_size_never_passes_the_high_watermark",
    ),
    Mutant(
        "retention-takes-the-newest",
        _RETENTION,
        "return log.active.size > 0 and log.high_watermark >= log.log_end_offset",
        "return log.active.size > 0",
        "a log of one old segment is emptied, with what no follower has",
        _MANAGER + "test_retention_by_time_leaves_what_is_not_committed_even_alone",
    ),
    Mutant(
        "retention-to-the-byte",
        _RETENTION,
        "while count < len(log.segments) and excess - log.segments[count].size >= 0 and _deletable(log, count):",
        "while count < len(log.segments) and excess > 0 and _deletable(log, count):",
        "less is kept than retention.bytes says",
        _MANAGER + "test_retention_by_size_never_passes_the_high_watermark",
    ),
]
