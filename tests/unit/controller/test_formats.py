"""The bytes of the metadata log. The golden files are what version 1 wrote; they stay readable for ever."""

from __future__ import annotations

import uuid
from dataclasses import replace

import msgspec
import pytest

from appliance.base.errors import InvariantBroken
from appliance.controller.commits import (
    NO_NONCE,
    Commit,
    LogCorrupt,
    Pointer,
    Snapshot,
    decode_commit,
    decode_pointer,
    decode_snapshot,
    encode_commit,
    encode_pointer,
    encode_snapshot,
)
from appliance.controller.delta import MetadataDelta, image_of
from appliance.controller.image import MetadataImage
from appliance.controller.log_reader import LogPosition
from appliance.controller.records import (
    BrokerConfigSet,
    BrokerFenced,
    BrokerRegistered,
    BrokerUnfenced,
    ClusterCreated,
    ControllerClaimed,
    FeatureLevelSet,
    LeaderRecoveryState,
    Listener,
    LogState,
    PartitionChanged,
    PartitionState,
    ProducerIdsAllocated,
    Record,
    TopicConfigSet,
    TopicCreated,
    TopicDeleted,
    commit_number_of,
    decode_records,
    encode_records,
    position_of,
)
from appliance.controller.snapshots import load_snapshot, records_of, snapshot_body
from tests.support.repo import REPO

GOLDEN = REPO / "tests" / "golden" / "controller"
TOPIC, GONE = uuid.UUID(int=5, version=4), uuid.UUID(int=6, version=4)

RECORDS: tuple[Record, ...] = (
    ControllerClaimed(1, 7, "10.0.0.7", 9093),
    ClusterCreated("AAAAAAAAAAAAAAAAAAAAAQ"),
    FeatureLevelSet("appliance.metadata.version", 1),
    BrokerRegistered(
        1,
        uuid.UUID(int=11, version=4),
        (Listener("PLAINTEXT", "broker-1", 9092), Listener("SSL", "broker-1", 9094, 1)),
        "rack-a",
        "node-a",
        (uuid.UUID(int=12, version=4),),
        LogState.UNCLEAN,
    ),
    BrokerRegistered(2, uuid.UUID(int=21, version=4), (Listener("PLAINTEXT", "broker-2", 9092),)),
    BrokerUnfenced(1, position_of(0, 3)),
    BrokerFenced(2, position_of(0, 4), dead=True),
    TopicCreated("t", TOPIC),
    TopicConfigSet(TOPIC, "retention.ms", "-1"),
    PartitionChanged(
        TOPIC, PartitionState(0, 1, 3, 4, (1, 2), (1,), (2,), LeaderRecoveryState.RECOVERING, data_lost=False)
    ),
    PartitionChanged(TOPIC, PartitionState(1, -1, 5, 6, (2,), (2,), data_lost=True)),
    TopicCreated("gone", GONE),
    TopicDeleted(GONE),
    BrokerConfigSet("", "log.retention.ms", "1"),
    BrokerConfigSet("2", "log.retention.ms", "2"),
    ProducerIdsAllocated(1, position_of(0, 3), 3_000),
)
COMMIT = Commit(0, 1, 7, 1_700_000_000_000, bytes(range(16)), NO_NONCE, RECORDS)
POINTER = Pointer(snapshot=41, trimmed=-1, controller_epoch=3, writer_id=7, nonce=bytes(range(16)))


def snapshot() -> Snapshot:
    body = snapshot_body(image_of(RECORDS), ((0, 1_700_000_000_000),))
    return Snapshot(0, 1, 7, 1_700_000_000_000, bytes(range(16)), body)


def test_version_1_of_each_object_is_read_and_written_as_ever() -> None:
    assert (GOLDEN / "commit-1-replicas").read_bytes() == encode_commit(COMMIT)
    assert decode_commit((GOLDEN / "commit-1-replicas").read_bytes()) == COMMIT
    assert (GOLDEN / "pointer-1").read_bytes() == encode_pointer(POINTER)
    assert decode_pointer((GOLDEN / "pointer-1").read_bytes()) == POINTER
    assert (GOLDEN / "snapshot-1-deleted-topics").read_bytes() == encode_snapshot(snapshot())
    assert decode_snapshot((GOLDEN / "snapshot-1-deleted-topics").read_bytes()) == snapshot()


def test_what_was_written_before_partitions_had_reassignments_is_read_as_ever() -> None:
    assert decode_commit((GOLDEN / "commit-1").read_bytes()) == COMMIT
    image, times = load_snapshot(snapshot())
    for name in ("snapshot-1", "snapshot-1-replicas"):
        earlier = decode_snapshot((GOLDEN / name).read_bytes())
        assert load_snapshot(earlier) == (replace(image, deleted_topics={}), times)


def test_a_snapshot_rebuilds_the_image() -> None:
    image = image_of(RECORDS)
    rebuilt, times = load_snapshot(snapshot())
    assert rebuilt == image
    assert times == ((0, 1_700_000_000_000),)
    assert rebuilt.brokers[1].broker_epoch == position_of(0, 3)


def test_a_snapshot_of_a_snapshot_is_the_same() -> None:
    once = list(records_of(image_of(RECORDS)))
    assert list(records_of(image_of(once))) == once


def test_a_new_field_at_the_end_of_a_record_is_passed_over() -> None:
    plain = msgspec.msgpack.decode(encode_records([ProducerIdsAllocated(1, 2, 3)]))
    newer = msgspec.msgpack.encode([[*plain[0], "something new"]])
    assert decode_records(newer) == [ProducerIdsAllocated(1, 2, 3)]


def test_a_record_of_an_older_version_takes_the_defaults() -> None:
    older = msgspec.msgpack.encode([[5, 1, 2]])
    assert decode_records(older) == [BrokerFenced(1, 2, dead=False, shutting_down=False)]


@pytest.mark.parametrize("decode", [decode_commit, decode_snapshot, decode_pointer])
def test_damaged_bytes_are_told_and_never_crash(decode: object) -> None:
    whole = {decode_commit: encode_commit(COMMIT), decode_snapshot: encode_snapshot(snapshot())}.get(
        decode,  # type: ignore[call-overload]
        encode_pointer(POINTER),
    )
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x40
        with pytest.raises(LogCorrupt):
            decode(bytes(damaged))  # type: ignore[operator]
        with pytest.raises(LogCorrupt):
            decode(whole[:position])  # type: ignore[operator]


def test_a_position_knows_its_commit() -> None:
    assert commit_number_of(position_of(17, 3)) == 17
    assert position_of(17, 3) < position_of(17, 4) < position_of(18, 0)


def test_an_image_never_changes_once_it_is_built() -> None:
    before = image_of(RECORDS)
    kept = (dict(before.topics), dict(before.brokers), before.topics["t"].partitions, dict(before.topics["t"].configs))
    delta = MetadataDelta(before)
    delta.apply_commit(
        1,
        [
            TopicConfigSet(TOPIC, "retention.ms", None),
            PartitionChanged(TOPIC, PartitionState(2, 1, 0, 0, (1,), (1,))),
            BrokerFenced(1, position_of(0, 3)),
            TopicCreated("u", GONE),
        ],
    )
    later = delta.build()
    assert (before.topics, before.brokers, before.topics["t"].partitions, dict(before.topics["t"].configs)) == kept
    assert later.position == 1
    assert (len(later.topics["t"].partitions), dict(later.topics["t"].configs)) == (3, {})
    assert later.topics_by_id[TOPIC] is later.topics["t"]
    assert delta.changed_topics == {TOPIC, GONE}


def test_what_did_not_change_is_shared() -> None:
    before = image_of(RECORDS)
    delta = MetadataDelta(before)
    delta.apply_commit(1, [ProducerIdsAllocated(1, 1, 4_000)])
    later = delta.build()
    assert later.topics is before.topics
    assert later.brokers is before.brokers


@pytest.mark.parametrize(
    "record",
    [
        TopicDeleted(uuid.uuid4()),
        PartitionChanged(TOPIC, PartitionState(9, 1, 0, 0, (1,), (1,))),
        TopicCreated("t", uuid.uuid4()),
        BrokerFenced(1, 1),
        BrokerFenced(9, 1),
        TopicConfigSet(uuid.uuid4(), "a", "b"),
    ],
)
def test_a_record_that_does_not_fit_the_image_breaks_an_invariant_and_a_reader_stops(record: Record) -> None:
    with pytest.raises(InvariantBroken):
        MetadataDelta(image_of(RECORDS)).apply(record, position_of(1, 0))
    at = LogPosition(image_of(RECORDS), COMMIT.nonce)
    with pytest.raises(LogCorrupt):
        at.after(Commit(1, 1, 7, 0, b"n" * 16, COMMIT.nonce, (record,)))


@pytest.mark.parametrize(
    ("commit", "reason"),
    [
        (Commit(2, 1, 7, 0, b"n" * 16, COMMIT.nonce, ()), "the object says that it is 2"),
        (Commit(1, 1, 7, 0, b"n" * 16, b"x" * 16, ()), "was written after another commit"),
        (Commit(1, 0, 7, 0, b"n" * 16, COMMIT.nonce, ()), "controller epoch 0 after 1"),
        (Commit(1, 2, 7, 0, b"n" * 16, COMMIT.nonce, ()), "was never claimed"),
    ],
)
def test_a_commit_that_does_not_follow_is_refused(commit: Commit, reason: str) -> None:
    at = LogPosition(image_of(RECORDS), COMMIT.nonce)
    with pytest.raises(LogCorrupt, match=reason):
        at.after(commit)


def test_a_lookup_beyond_the_image_finds_nothing() -> None:
    image = image_of(RECORDS)
    assert image.partition("t", 2) is None
    assert image.partition("t", -1) is None
    assert image.partition("x", 0) is None
    assert image.partition_by_id(GONE, 0) is None
    assert image.partition_by_id(TOPIC, 1) == image.partition("t", 1)
    assert [broker.broker_id for broker in image.live_brokers()] == [1]
    assert MetadataImage().live_brokers() == []
