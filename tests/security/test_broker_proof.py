"""The proof between brokers by itself: what it accepts, and everything that it must not."""

from __future__ import annotations

import json

import pytest

from penstock.security.broker_proof import BrokerSecrets, Dialler, ProofFailed, Receiver, read_message

SECRETS = BrokerSecrets.generate()


def receiver(secrets: BrokerSecrets = SECRETS, own_id: int = 2, cluster_id: str = "c") -> Receiver:
    return Receiver(secrets.find, cluster_id, own_id)


def dialler(secrets: BrokerSecrets = SECRETS, own_id: int = 1, peer_id: int = 2, cluster_id: str = "c") -> Dialler:
    return Dialler(secrets, cluster_id, own_id, peer_id)


def prove(one: Dialler, other: Receiver) -> int:
    return other.check(read_message(one.finish(other.greet(read_message(one.hello())))))


def test_two_brokers_of_a_cluster_know_each_other() -> None:
    assert prove(dialler(), receiver()) == 1


def test_the_last_secret_is_valid_beside_the_new_one() -> None:
    rotated = SECRETS.rotated()
    assert prove(dialler(SECRETS), receiver(rotated)) == 1
    assert prove(dialler(rotated), receiver(rotated)) == 1
    with pytest.raises(ProofFailed, match="another secret"):
        prove(dialler(SECRETS), receiver(rotated.rotated()))


def test_a_stranger_without_the_secret_is_refused() -> None:
    with pytest.raises(ProofFailed):
        prove(dialler(BrokerSecrets.generate()), receiver())


def test_a_false_broker_cannot_answer_for_the_true_one() -> None:
    """It does not know the secret, so that it can only make its MAC up."""
    asked = dialler()
    asked.hello()
    with pytest.raises(ProofFailed, match="not broker 2"):
        asked.finish(json.dumps({"nonce": "00" * 32, "mac": "00" * 32}).encode())


def test_another_cluster_another_target_and_our_own_id_are_refused() -> None:
    with pytest.raises(ProofFailed):
        prove(dialler(cluster_id="d"), receiver())
    with pytest.raises(ProofFailed, match="this is broker 2"):
        prove(dialler(peer_id=3), receiver())
    with pytest.raises(ProofFailed, match="this is broker 2"):
        prove(dialler(own_id=2), receiver())


def test_nothing_can_be_sent_back_or_sent_again() -> None:
    other = receiver()
    greeting = read_message(other.greet(read_message(dialler().hello())))
    with pytest.raises(ProofFailed, match="wrong"):  # our own MAC, reflected
        other.check({"mac": greeting["mac"]})
    one, other = dialler(), receiver()
    proof = read_message(one.finish(other.greet(read_message(one.hello()))))
    assert other.check(proof) == 1
    with pytest.raises(ProofFailed, match="wrong"):
        other.check(proof)
    fresh = receiver()
    fresh.greet(read_message(one.hello()))
    with pytest.raises(ProofFailed, match="wrong"):  # recorded, for another nonce
        fresh.check(proof)


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b"\xff", b"null", b"{}", b'{"from":-1}', b'{"from":"1","to":2}', b"x" * 5000]
    + [json.dumps({"from": 1, "to": 2, "nonce": nonce}).encode() for nonce in (None, 5, "zz", "00", "00" * 33)],
)  # fmt: skip
def test_garbage_is_refused_and_breaks_nothing(data: bytes) -> None:
    with pytest.raises(ProofFailed):
        receiver().greet(read_message(data))


def test_secrets_are_not_shown() -> None:
    assert SECRETS.newest.hex() not in repr(SECRETS) and repr(SECRETS.newest) not in repr(SECRETS)
