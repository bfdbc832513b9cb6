"""Users with SCRAM credentials as administrators see and change them: checks in Kafka's order. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.protocol.errors import ErrorCode
from penstock.security.scram import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS, ScramCredential

__all__ = ["MECHANISM_NUMBERS", "Deletion", "Upsertion", "described", "planned"]

MECHANISM_NUMBERS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_NUMBER_OF = {name: number for number, name in MECHANISM_NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class Deletion:
    name: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class Upsertion:
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes = field(repr=False)


def described(config: Mapping[str, str]) -> list[tuple[int, int]]:
    """(mechanism, iterations) of one user; empty: there is no such user."""
    found = []
    for mechanism in MECHANISMS:
        if mechanism in config:
            try:
                found.append((_NUMBER_OF[mechanism], ScramCredential.parse(config[mechanism]).iterations))
            except ValueError:
                continue
    return found


Outcome = tuple[ErrorCode, str | None]


def planned(
    deletions: Sequence[Deletion], upsertions: Sequence[Upsertion], configs: Mapping[str, Mapping[str, str]]
) -> tuple[dict[str, dict[str, str]], dict[str, Outcome]]:
    """New configs of the users that change, and an outcome for each user that is named."""
    outcomes: dict[str, Outcome] = {}
    both: list[Deletion | Upsertion] = [*deletions, *upsertions]
    for one in both:
        outcomes.setdefault(one.name, (ErrorCode.NONE, None))
        if not one.name:
            outcomes[one.name] = (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
        elif one.mechanism not in MECHANISM_NUMBERS:
            outcomes[one.name] = (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    for change in upsertions:
        problem = _problem(change)
        if problem is not None and outcomes[change.name][0] == ErrorCode.NONE:
            outcomes[change.name] = (ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)
    for (name, _), count in Counter((one.name, one.mechanism) for one in both).items():
        if count > 1:
            outcomes[name] = (
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            )
    for removal in deletions:
        mechanism_name = MECHANISM_NUMBERS.get(removal.mechanism)
        if outcomes[removal.name][0] == ErrorCode.NONE and mechanism_name not in configs.get(removal.name, {}):
            outcomes[removal.name] = (
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
    return _changed(deletions, upsertions, configs, outcomes), outcomes


def _problem(change: Upsertion) -> str | None:
    if change.iterations < MIN_ITERATIONS:
        return "Too few iterations"
    if change.iterations > MAX_ITERATIONS:
        return "Too many iterations"
    if not change.salt or not change.salted_password:
        return "Salt and salted password must not be empty"
    return None


def _changed(
    deletions: Sequence[Deletion],
    upsertions: Sequence[Upsertion],
    configs: Mapping[str, Mapping[str, str]],
    outcomes: Mapping[str, Outcome],
) -> dict[str, dict[str, str]]:
    changed: dict[str, dict[str, str]] = {}
    good = {name for name, (code, _) in outcomes.items() if code == ErrorCode.NONE}
    for removal in deletions:
        if removal.name in good:
            config = changed.setdefault(removal.name, dict(configs.get(removal.name, {})))
            config.pop(MECHANISM_NUMBERS[removal.mechanism], None)
    for change in upsertions:
        if change.name in good:
            mechanism = MECHANISM_NUMBERS[change.mechanism]
            credential = ScramCredential.from_salted_password(
                mechanism, change.salt, change.salted_password, change.iterations
            )
            changed.setdefault(change.name, dict(configs.get(change.name, {})))[mechanism] = str(credential)
    return changed
