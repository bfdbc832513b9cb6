"""Records of `__transaction_state`: Kafka's bytes, in both value versions."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.coordinator.transaction import records
from penstock.coordinator.transaction.state import Transaction, TransactionState

EMPTY = Transaction("txn-1", 1000, 3, 60_000, TransactionState.EMPTY, last_update_ms=1_700_000_000_000)
ONGOING = Transaction(
    "txn-1",
    1000,
    3,
    60_000,
    TransactionState.ONGOING,
    frozenset({("b", 1), ("a", 2), ("a", 0)}),
    last_update_ms=1_700_000_000_000,
    start_ms=1_699_999_999_999,
    client_version=2,
)


def test_the_key_is_a_type_and_the_id() -> None:
    assert records.encode_key("txn-1").hex() == "0000" + "0005" + b"txn-1".hex()
    assert records.decode_key(records.encode_key("txn-ü")) == "txn-ü"


def test_a_key_of_a_later_type_is_skipped() -> None:
    assert records.decode_key(b"\x00\x07\x00\x01a") is None


def test_an_empty_transaction_has_no_partition_list_in_either_version() -> None:
    pid_epoch_timeout = "00000000000003e8" + "0003" + "0000ea60"
    times = "0000018bcfe56800" + "ffffffffffffffff"
    assert records.encode_value(EMPTY, 0).hex() == "0000" + pid_epoch_timeout + "00" + "ffffffff" + times
    assert records.encode_value(EMPTY, 1).hex() == "0001" + pid_epoch_timeout + "00" + "00" + times + "00"


def test_an_open_transaction_lists_partitions_by_topic_and_tags_the_client_version() -> None:
    expected = (
        "0001" + "00000000000003e8" + "0003" + "0000ea60" + "01"
        "03"  # two topics
        "02" + "61" + "03" + "00000000" + "00000002" + "00"
        "02" + "62" + "02" + "00000001" + "00"
        "0000018bcfe56800" + "0000018bcfe567ff"
        "01" + "02" + "02" + "0002"  # one tag: clientTransactionVersion
    )  # fmt: skip
    assert records.encode_value(ONGOING).hex() == expected
    assert records.decode_value("txn-1", bytes.fromhex(expected)) == ONGOING


@pytest.mark.parametrize("cut", [0, 1, 5, 16, 20, 30])
def test_a_damaged_value_is_told_apart_from_a_good_one(cut: int) -> None:
    with pytest.raises(records.UnreadableRecord):
        records.decode_value("txn-1", records.encode_value(ONGOING)[:cut])


def test_a_value_of_an_unknown_version_is_refused() -> None:
    with pytest.raises(records.UnreadableRecord):
        records.decode_value("txn-1", b"\x00\x02" + records.encode_value(ONGOING)[2:])


transactions = st.builds(
    Transaction,
    st.just("id"),
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(-1, 32767),
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from([s for s in TransactionState if s is not TransactionState.EMPTY]),
    partitions=st.frozensets(st.tuples(st.text(max_size=200), st.integers(0, 2**31 - 1)), max_size=20),
    last_update_ms=st.integers(-1, 2**62),
    start_ms=st.integers(-1, 2**62),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_epoch=st.integers(-1, 32767),
    client_version=st.integers(0, 2),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(transactions)
def test_what_is_written_is_read_back(transaction: Transaction) -> None:
    assert records.decode_value("id", records.encode_value(transaction)) == transaction
