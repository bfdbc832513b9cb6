"""Wrong rules must be noticed: a few of those that `make prove-mutants` tries, and that the list is up to date."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing.mutants.catalogue import MUTANTS
from penstock.testing.mutants.model import Copy, Mutant, Stale, mutated, stale

NAMED_FIRST = (
    "hw-ignores-joining",
    "joins-before-epoch-start",
    "older-life-fetches",
    "isr-change-without-lives",
    "later-epoch-appended",
)
"""They once survived a hundred seeds each."""


@pytest.fixture(scope="module")
def copy() -> Iterator[Copy]:
    made = Copy()
    yield made
    made.remove()


def test_the_list_speaks_of_the_code_as_it_is() -> None:
    assert stale(MUTANTS) == []
    assert len(MUTANTS) >= 60
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert sum(mutant.is_equivalent for mutant in MUTANTS) <= 5
    assert set(NAMED_FIRST) <= {mutant.name for mutant in MUTANTS}


def test_a_line_that_is_gone_or_stands_twice_is_told() -> None:
    mutant = Mutant("m", "f.py", "b = 1", "b = 2", "", "")
    assert mutated("a\n  b = 1\nc", mutant) == "a\n  b = 2\nc"
    for source in ("a", "b = 1\nb = 1"):
        with pytest.raises(Stale):
            mutated(source, mutant)
    second = mutant._replace(within="def g")
    assert mutated("def f\n b = 1\ndef g\n b = 1", second) == "def f\n b = 1\ndef g\n b = 2"


@pytest.mark.parametrize("name", NAMED_FIRST)
def test_a_wrong_rule_is_noticed(copy: Copy, name: str) -> None:
    (mutant,) = (one for one in MUTANTS if one.name == name)
    verdict = copy.judge(mutant, [mutant.killer])
    assert verdict.killed, f"{mutant.killer} does not notice: {mutant.breaks}"
