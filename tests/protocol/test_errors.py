"""The error table is Kafka's: codes without gaps, names as tools print them, retriable as clients expect it."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from penstock.protocol.errors import ErrorCode, error_name


def test_codes_names_and_retriability_agree_with_an_independent_table() -> None:
    ours = {(int(error), error.name, error.retriable) for error in ErrorCode}
    theirs = {(int(error.value), error.name.upper(), error.retriable) for error in KioErrorCode}
    assert theirs <= ours


def test_codes_have_no_gap() -> None:
    assert sorted(int(error) for error in ErrorCode) == list(range(-1, 134))


def test_an_error_is_its_number_and_explains_itself() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == 6
    assert ErrorCode(6).retriable
    assert not ErrorCode.PRODUCER_FENCED.retriable
    assert all(error.message.endswith(".") for error in ErrorCode)
    assert len({error.message for error in ErrorCode}) == len(ErrorCode)


def test_a_code_from_the_future_still_has_a_name() -> None:
    assert error_name(41) == "NOT_CONTROLLER"
    assert error_name(999) == "ERROR_999"
