"""Wrong rules of a log that is mended: truncation, recovery after a crash, compaction's swap."""

from __future__ import annotations

from typing import Final

from penstock.testing.mutants.model import Mutant

_MAINTENANCE: Final = "penstock/log/maintenance.py"
_EPOCHS: Final = "penstock/log/leader_epochs.py"
_RECOVERY: Final = "penstock/log/recovery.py"
_LOG: Final = "penstock/log/log.py"
_COMPACTION: Final = "penstock/log/compaction.py"

MUTANTS: Final = [
    Mutant(
        "truncated-epochs-stay",
        _MAINTENANCE,
        "log.epochs.truncate_from_end(offset)",
        "pass",
        "epochs of a lost leader stay on record: the next divergence is found at a wrong place",
        "tests/log/test_rules_of_the_log.py::test_a_cut_takes_epochs_recovery_point_and_producers_with_it",
        "log.recovery_point = min(log.recovery_point, offset)",
    ),
    Mutant(
        "truncated-producers-stay",
        _MAINTENANCE,
        "log.producers_state = producers",
        "pass",
        "batches that were cut off are answered as repetitions",
        "tests/log/test_recovery.py::test_a_file_cut_or_scribbled_on_behind_the_recovery_point[0]",
    ),
    Mutant(
        "recovery-point-stays",
        _MAINTENANCE,
        "log.recovery_point = min(log.recovery_point, offset)",
        "pass",
        "records written behind a cut are not looked at after a crash",
        "tests/log/test_rules_of_the_log.py::test_a_cut_takes_epochs_recovery_point_and_producers_with_it",
    ),
    Mutant(
        "truncated-snapshots-stay",
        _MAINTENANCE,
        "_drop_snapshots(log, lambda snapshot: snapshot > offset)",
        "pass",
        "a start loads producer state of records that were cut off",
        "tests/log/test_rules_of_the_log.py::test_a_cut_leaves_no_snapshot_of_what_it_took",
    ),
    Mutant(
        "flush-over-a-cut",
        _MAINTENANCE,
        "if log.truncations == self._truncations:",
        "if log.truncations >= 0:",
        "a flush that ran during a cut moves the recovery point over records that were written since",
        "tests/log/test_rules_of_the_log.py::test_a_flush_that_ran_during_a_cut_promises_nothing_behind_it",
    ),
    Mutant(
        "contradicting-epochs",
        _EPOCHS,
        "while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):",
        "while self._epochs and self._epochs[-1] >= epoch:",
        "two epochs claim the same records",
        "tests/log/test_rules_of_the_log.py::test_an_epoch_without_records_gives_way_to_the_next",
    ),
    Mutant(
        "epoch-never-had",
        _EPOCHS,
        "return self._epochs[index - 1], self._starts[index]",
        "return epoch, self._starts[index]",
        "a leader says of an epoch that it never had where it ended",
        "tests/log/test_rules_of_the_log.py::test_an_epoch_without_records_gives_way_to_the_next",
    ),
    Mutant(
        "recovers-bad-bytes",
        _RECOVERY,
        "if len(data) < size or not crc_matches(data, at_zero):",
        "if len(data) < size:",
        "torn batches are served after a crash",
        "tests/log/test_recovery.py::test_a_file_cut_or_scribbled_on_behind_the_recovery_point[2]",
    ),
    Mutant(
        "recovers-over-a-hole",
        _RECOVERY,
        "if segment.base_offset > end_offset >= cleaned_to and not log.config.cleanup_compact:",
        "if segment.base_offset < 0:",
        "the log has a hole where a segment lost its unsynced end",
        "tests/log/test_recovery.py::test_a_power_loss_that_takes_the_end_of_one_segment_leaves_no_hole[False]",
    ),
    Mutant(
        "recovers-behind-a-tear",
        _RECOVERY,
        "_drop_from(log, index + 1)",
        "pass",
        "segments behind a torn one stay",
        "tests/log/test_recovery.py::test_a_file_cut_or_scribbled_on_behind_the_recovery_point[1]",
    ),
    Mutant(
        "snapshot-of-the-torn",
        _RECOVERY,
        "if offset > segments[first].base_offset:",
        "if offset < 0:",
        "producers are known by batches that turned out to be torn",
        "tests/log/test_rules_of_the_log.py::test_a_snapshot_behind_a_torn_batch_names_no_end",
    ),
    Mutant(
        "start-forgotten",
        _RECOVERY,
        "if end_offset < log_start_offset:",
        "if end_offset < 0:",
        "deleted records come back after a crash",
        "tests/log/test_recovery.py::test_data_before_a_checkpointed_log_start_does_not_come_back",
    ),
    Mutant(
        "recovered-epochs-unsaved",
        _RECOVERY,
        "log.epochs.store_now()  # the next recovery begins where this one ends, and rebuilds no epoch from before",
        "pass",
        "a second crash loses the epochs that the first recovery found",
        "tests/log/test_checkpoints.py::test_leader_epochs_survive_two_crashes",
    ),
    Mutant(
        "index-of-two-lives",
        _RECOVERY,
        "segment.txn_index.reset()",
        "pass",
        "a recovery adds its aborted transactions to those of the file before",
        "tests/log/test_recovery.py::test_an_unclean_stop_with_sound_files_loses_nothing",
    ),
    Mutant(
        "half-a-swap-kept",
        _RECOVERY,
        "if name.endswith(SWAP_SUFFIX) and _offset(name) >= lowest:",
        "if name.endswith(SWAP_SUFFIX) and _offset(name) < 0:",
        "a compaction that was interrupted is finished with half of its files",
        "tests/log/test_rules_of_the_log.py::test_a_swap_that_had_not_begun_for_all_is_undone_for_all",
    ),
    Mutant(
        "swap-takes-too-much",
        _RECOVERY,
        "if low <= offset < high:",
        "if low <= offset:",
        "finishing a swap deletes the segments behind it",
        "tests/log/test_compaction.py::test_a_crash_at_each_step_of_the_swap_loses_nothing",
    ),
    Mutant(
        "start-above-hw",
        _LOG,
        "offset = min(offset, self.high_watermark)",
        "offset = int(offset)",
        "the log begins behind what is committed",
        "tests/log/test_rules_of_the_log.py::test_a_log_never_begins_behind_what_is_committed",
    ),
    Mutant(
        "stable-above-hw",
        _LOG,
        "if unstable is None or unstable > self.high_watermark:",
        "if unstable is None:",
        "the last stable offset passes the high watermark",
        "tests/log/test_rules_of_the_log.py::test_the_last_stable_offset_is_never_above_the_high_watermark",
    ),
    Mutant(
        "compaction-forgets-producers",
        _COMPACTION,
        "return _emptied(header) if retain_empty else None",
        "return None",
        "a producer whose last batch was compacted away is unknown after a start",
        "tests/log/test_compaction.py::test_the_last_sequence_of_a_producer_survives",
        "self.records_kept += len(kept)",
    ),
]
