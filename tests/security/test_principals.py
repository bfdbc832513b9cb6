"""Principals: their text and back."""

import pytest

from penstock.security.principal import ANONYMOUS, Principal


def test_a_principal_is_written_as_kafka_writes_it():
    assert str(Principal("User", "anna")) == "User:anna"
    assert str(ANONYMOUS) == "User:ANONYMOUS"


def test_names_may_hold_colons_and_commas():
    assert Principal.parse("User:CN=a:b,O=c") == Principal("User", "CN=a:b,O=c")


@pytest.mark.parametrize("text", ["anna", "User:", ":anna", ""])
def test_half_a_principal_is_refused(text):
    with pytest.raises(ValueError, match="not a principal"):
        Principal.parse(text)
