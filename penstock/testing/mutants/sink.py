"""Wrong rules of the exactly-once sink: who decides, what is committed, what is swept."""

from __future__ import annotations

from typing import Final

from penstock.testing.mutants.model import Mutant

_DECISIONS: Final = "penstock/pipelines/spark/sink_decisions.py"
_COMMITTED: Final = "penstock/protocol/committed_batches.py"
_JOURNAL: Final = "penstock/pipelines/spark/sink_journal.py"
_TRANSACTIONS: Final = "penstock/pipelines/spark/sink_transactions.py"

MUTANTS: Final = [
    Mutant(
        "late-attempt-stays",
        _JOURNAL,
        "return self.ended or self.batch >= batch_id",
        "return self.ended or self.batch > batch_id",
        "an attempt that comes after the decision leaves its rows open",
        "tests/pipelines/test_sink_protocol.py::test_a_late_attempt_of_a_decided_batch_aborts_itself",
    ),
    Mutant(
        "ended-takes-rows",
        _JOURNAL,
        "return self.ended or self.batch >= batch_id",
        "return self.batch >= batch_id",
        "attempts of a sink that was reset leave their rows open",
        "tests/pipelines/test_sink_protocol.py::test_after_an_ending_the_old_driver_and_its_late_attempts_change_nothing",
    ),
    Mutant(
        "undecided-committed",
        _DECISIONS,
        "decided = [item for item in is_open if item in state.transactions]",
        "decided = list(is_open)",
        "an ending commits rows that nobody decided on: twice",
        "tests/pipelines/test_sink_protocol.py::test_an_ending_commits_what_is_decided_and_aborts_the_rest",
    ),
    Mutant(
        "decided-aborted",
        _DECISIONS,
        "await asyncio.gather(*(transactions.finish(client, item, implicit=implicit) for item in decided))",
        "decided = []",
        "an ending aborts rows that were decided on: lost",
        "tests/pipelines/test_sink_protocol.py::test_an_ending_commits_what_is_decided_and_aborts_the_rest",
    ),
    Mutant(
        "lost-rows-pass",
        _TRANSACTIONS,
        'if now.state == "" or now.state in _COMMITTED:  # ended by an earlier try; long-finished ids are forgotten',
        "if now.state:",
        "a batch whose rows somebody aborted counts as written",
        "tests/pipelines/test_sink_rules.py::test_a_decided_transaction_that_was_aborted_is_not_called_written",
    ),
    Mutant(
        "anothers-transaction-committed",
        _TRANSACTIONS,
        "if now.state == ONGOING and (now.producer_id, now.epoch) == (transaction.producer_id, transaction.epoch):",
        "if now.state == ONGOING:",
        "a transaction that bears the same id is committed instead",
        "equivalent: the coordinator refuses the old pair itself; the rule spares a request and gives a better word",
    ),
    Mutant(
        "aborted-decision-read",
        _COMMITTED,
        "yield header, not (header.is_control or (header.is_transactional and header.producer_id in being_aborted))",
        "yield header, not header.is_control",
        "a decision that was undone is followed",
        "tests/pipelines/test_sink_rules.py::test_a_decision_that_was_undone_is_not_followed",
    ),
    Mutant(
        "ending-not-on-record",
        _DECISIONS,
        "state = replace(state, ended=True, pipeline=state.pipeline or pipeline)",
        "state = replace(state, pipeline=state.pipeline or pipeline)",
        "a driver of yesterday decides in a sink that was reset",
        "tests/pipelines/test_sink_protocol.py::test_after_an_ending_the_old_driver_and_its_late_attempts_change_nothing",
    ),
    Mutant(
        "fenced-driver-goes-on",
        _TRANSACTIONS,
        "if error.code in FENCED or error.code == ErrorCode.INVALID_TXN_STATE:",
        "if error.code == ErrorCode.NONE:",
        "a driver that was fenced fails with a riddle instead of stopping for its successor",
        "tests/pipelines/test_sink_rules.py::test_a_driver_that_was_replaced_learns_that_its_transaction_is_lost",
    ),
]
