"""Images, deltas, their bytes, and the broker that takes them in."""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster.image import (
    BrokerRegistration,
    Endpoint,
    ImageDelta,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    delta_between,
)
from penstock.cluster.image_codec import (
    FORMAT,
    IMAGE_FEATURE,
    ImageFormatError,
    ImagePush,
    ImagePushAnswer,
    decode_answer,
    decode_push,
    encode_answer,
    encode_push,
    format_for,
)
from penstock.cluster.image_holder import ImageHolder
from penstock.protocol.errors import ErrorCode

ids = st.integers(1, 5)
id_lists = st.lists(ids, unique=True, max_size=4).map(tuple)
partitions = st.builds(
    PartitionRegistration,
    replicas=id_lists,
    isr=id_lists,
    leader=st.integers(-1, 5),
    leader_epoch=st.integers(0, 9),
    partition_epoch=st.integers(-1, 9),
    adding=id_lists,
    removing=id_lists,
    offline=id_lists,
    recovering=st.booleans(),
)
brokers = st.builds(
    BrokerRegistration,
    broker_id=ids,
    epoch=st.integers(1, 99),
    endpoints=st.dictionaries(
        st.sampled_from(["PLAINTEXT", "INTERNAL"]),
        st.builds(Endpoint, st.sampled_from(["h", "::1"]), st.integers(1, 65535), st.just("SSL")),
    ),
    rack=st.sampled_from([None, "a"]),
    shutting_down=st.booleans(),
    features=st.dictionaries(st.just("f"), st.just((0, 2))),
)
topics = st.builds(
    TopicImage,
    name=st.sampled_from(["a", "b", "c"]),
    topic_id=st.uuids(),
    partitions=st.dictionaries(st.integers(0, 3), partitions, max_size=3),
)
configs = st.dictionaries(
    st.tuples(st.sampled_from(["topic", "broker"]), st.sampled_from(["a", ""])),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), min_size=1, max_size=2),
)


@st.composite
def images(draw: st.DrawFn) -> MetadataImage:
    named = {t.name: t for t in draw(st.lists(topics, max_size=3))}
    return MetadataImage(
        cluster_id="c",
        controller_id=1,
        controller_epoch=draw(st.integers(1, 3)),
        version=draw(st.integers(0, 99)),
        brokers={b.broker_id: b for b in draw(st.lists(brokers, max_size=3))},
        topics=named,
        configs=draw(configs),
        topic_names={t.topic_id: t.name for t in named.values()},
    )


@settings(max_examples=60, deadline=None)
@given(images(), images())
def test_the_difference_of_two_images_leads_from_one_to_the_other(old: MetadataImage, new: MetadataImage) -> None:
    # Partitions never go while a topic lives: give the old image only what a delta can undo.
    old = replace(
        old,
        topics={n: t for n, t in old.topics.items() if n not in new.topics or t.topic_id != new.topics[n].topic_id},
    )
    old = replace(old, topic_names={t.topic_id: n for n, t in old.topics.items()})
    assert old.apply(delta_between(old, new)) == new
    assert delta_between(new, new).is_empty


@settings(max_examples=60, deadline=None)
@given(images())
def test_images_survive_the_wire(image: MetadataImage) -> None:
    push = ImagePush("c", 1, image.controller_epoch, 7, full=image)
    assert decode_push(encode_push(push)) == push
    delta = delta_between(MetadataImage(cluster_id="c"), image)
    assert decode_push(encode_push(ImagePush("c", 1, 2, 7, delta=delta))).delta == delta


def test_a_newer_controller_may_add_keys_that_an_older_broker_ignores() -> None:
    push = ImagePush("c", 1, 1, 7, full=MetadataImage("c", 1, 1, 1))
    body = json.loads(encode_push(push, 0))
    body["later"] = {"x": 1}
    body["full"]["later"] = True
    assert decode_push(json.dumps(body).encode()) == push


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"format":99}', b'{"format":0}', b'{"format":0,"cluster_id":"c"}', b"\x78\x01cut"]
)
def test_bytes_that_are_no_push(data: bytes) -> None:
    with pytest.raises(ImageFormatError):
        decode_push(data)


def test_the_newest_format_that_both_sides_know_is_used() -> None:
    push = ImagePush("c", 1, 1, 7, full=MetadataImage("c", 1, 1, 1))
    old = BrokerRegistration(1, 1, {})
    new = BrokerRegistration(2, 1, {}, features={IMAGE_FEATURE: (0, FORMAT)})
    newer = BrokerRegistration(3, 1, {}, features={IMAGE_FEATURE: (0, FORMAT + 5)})
    assert [format_for(broker) for broker in (old, new, newer)] == [0, FORMAT, FORMAT]
    assert encode_push(push, 0).startswith(b"{") and not encode_push(push, 1).startswith(b"{")
    assert decode_push(encode_push(push, 0)) == decode_push(encode_push(push, 1)) == push


def test_answers_survive_the_wire() -> None:
    answer = ImagePushAnswer(11, 3, 9, True)
    assert decode_answer(encode_answer(answer)) == answer
    assert FORMAT >= 0


# --- the broker's side ---

T = uuid.UUID(int=5)


def full_image(version: int = 1, epoch: int = 1) -> MetadataImage:
    topic = TopicImage("t", T, {0: PartitionRegistration((1,), (1,), 1, 0, 0)})
    return MetadataImage("c", 1, epoch, version, {}, {"t": topic}, {}, {T: "t"})


def delta(base: int, epoch: int = 1, leader: int = 2) -> ImageDelta:
    changed = TopicImage("t", T, {0: PartitionRegistration((1, 2), (1, 2), leader, base + 1, base + 1)})
    return ImageDelta(1, epoch, base, base + 1, topics_changed={"t": changed})


def push(holder: ImageHolder, **what: object) -> ImagePushAnswer:
    envelope = {"cluster_id": "c", "controller_id": 1, "controller_epoch": 1, "broker_epoch": 7, **what}
    return asyncio.run(holder.receive(ImagePush(**envelope)))  # type: ignore[arg-type]


def holder() -> ImageHolder:
    made = ImageHolder("c")
    made.broker_epoch = 7
    return made


def test_a_broker_follows_full_image_and_deltas_and_tells_everybody_both() -> None:
    taker = holder()
    seen: list[tuple[int, int]] = []
    taker.subscribe(lambda delta, image: seen.append((delta.version, image.version)))
    assert push(taker, full=full_image()) == ImagePushAnswer(ErrorCode.NONE, 1, 1)
    assert push(taker, delta=delta(1)) == ImagePushAnswer(ErrorCode.NONE, 1, 2)
    assert seen == [(1, 1), (2, 2)]
    assert taker.image.topics["t"].partitions[0].leader == 2


def test_a_broker_that_missed_some_asks_for_everything() -> None:
    taker = holder()
    assert push(taker, delta=delta(1)).needs_full
    push(taker, full=full_image())
    assert push(taker, delta=delta(3)).needs_full
    assert taker.image.version == 1
    assert push(taker, full=full_image(version=4)) == ImagePushAnswer(ErrorCode.NONE, 1, 4)


def test_doubled_and_late_messages_change_nothing() -> None:
    taker = holder()
    push(taker, full=full_image())
    push(taker, delta=delta(1))
    seen: list[int] = []
    taker.subscribe(lambda _, image: seen.append(image.version))
    assert seen == [2], "who comes late is told what is there"
    assert push(taker, delta=delta(1, leader=9)) == ImagePushAnswer(ErrorCode.NONE, 1, 2)
    assert push(taker, full=full_image()) == ImagePushAnswer(ErrorCode.NONE, 1, 2)
    assert seen == [2] and taker.image.topics["t"].partitions[0].leader == 2


def test_a_large_delta_is_taken_in_parts() -> None:
    taker = holder()
    push(taker, full=full_image())
    many = {i: PartitionRegistration((1,), (1,), 1, 0, 0) for i in range(100)}
    seen: list[ImageDelta] = []
    taker.subscribe(lambda part, _: seen.append(part))
    seen.clear()
    big = ImageDelta(
        1,
        1,
        1,
        2,
        brokers_removed=(4,),
        topics_removed={"t": T},
        topics_changed={"u": TopicImage("u", uuid.UUID(int=6), many)},
    )
    push(taker, delta=big)
    assert len(seen) > 3 and max(len(part.topics_changed["u"].partitions) for part in seen) <= 16
    assert sorted(i for part in seen for i in part.topics_changed["u"].partitions) == list(range(100))
    assert [part.topics_removed for part in seen] == [{"t": T}] + [{}] * (len(seen) - 1)
    assert [part.brokers_removed for part in seen] == [()] * (len(seen) - 1) + [(4,)]
    assert taker.image.topics.keys() == {"u"}


def test_zombies_are_refused() -> None:
    taker = holder()
    push(taker, controller_epoch=5, full=full_image(epoch=5))
    assert push(taker, controller_epoch=4, full=full_image(99, 4)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert push(taker, controller_epoch=5, broker_epoch=6, full=full_image(9, 5)).error_code == (
        ErrorCode.STALE_BROKER_EPOCH
    )
    assert push(taker, cluster_id="other", full=full_image(9, 5)).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert taker.image.version == 1


def test_a_new_controller_begins_with_a_full_image_whatever_its_version() -> None:
    taker = holder()
    push(taker, full=full_image(version=50))
    assert push(taker, controller_epoch=2, delta=delta(50, epoch=2)).needs_full
    assert push(taker, controller_epoch=2, full=full_image(1, 2)) == ImagePushAnswer(ErrorCode.NONE, 2, 1)


def test_one_failing_part_does_not_keep_the_others_from_learning(caplog: pytest.LogCaptureFixture) -> None:
    taker = holder()

    def fails(_: ImageDelta, __: MetadataImage) -> None:
        raise RuntimeError("a bug")

    seen: list[int] = []
    taker.subscribe(fails)
    taker.subscribe(lambda _, image: seen.append(image.version))
    push(taker, full=full_image())
    assert seen == [1]
    assert "failed to take in" in caplog.text


def test_waiting_for_a_state_of_the_image() -> None:
    async def story() -> None:
        taker = holder()
        waiting = asyncio.ensure_future(taker.wait_until(lambda image: "t" in image.topics, 20))
        assert not await taker.wait_until(lambda image: "t" in image.topics, 0.01)
        await taker.receive(ImagePush("c", 1, 1, 7, full=full_image()))
        assert await waiting

    asyncio.run(story())
