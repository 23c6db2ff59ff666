"""The second follower that waits for the same gets the same bytes, and nothing else is ever taken for the same."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.partition.replica_sessions import Followed, ReplicaSession
from appliance.server.handlers.fetch_answer import encode_with_ranges
from appliance.server.handlers.shared_answer import SharedAnswer
from appliance.server.requests import OutputItem
from appliance.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

TOPIC = uuid.UUID(int=7)
VERSION = 18
RECORDS = b"records" * 20


class Hosted(SimpleNamespace):
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class World:
    """A partition with one record more than its two followers have, who both wait."""

    def __init__(self) -> None:
        self.hosted: Any = Hosted(
            leader=SimpleNamespace(followers={2: None, 3: None}),
            leader_epoch=5,
            recovering=False,
            offline="",
            log_end_offset=11,
            high_watermark=10,
            log_start_offset=1,
            tiered_end=4,
            config=SimpleNamespace(leader_replication_throttled_replicas=()),
        )
        self.body = FetchRequest(max_bytes=1 << 20)
        self.shared = SharedAnswer()
        self.first, self.second = self.session(2, 1_002), self.session(3, 1_003)

    def session(self, replica_id: int, session_id: int) -> ReplicaSession:
        session = ReplicaSession(session_id, replica_id, broker_epoch=9)
        followed = session.follow((TOPIC, 3))
        followed.hosted, followed.fetch_offset, followed.current_leader_epoch = self.hosted, 10, 5
        followed.max_bytes = 1 << 20
        return session

    def response(self, session: ReplicaSession, error: int = 0) -> FetchResponse:
        hosted = self.hosted
        row = PartitionData(
            partition_index=3,
            error_code=error,
            high_watermark=hosted.high_watermark,
            log_start_offset=hosted.log_start_offset,
            tiered_end_offset=hosted.tiered_end,
            records=RECORDS,
        )
        return FetchResponse(
            session_id=session.session_id, responses=[FetchableTopicResponse(topic_id=TOPIC, partitions=[row])]
        )

    def answer_first(self, error: int = 0) -> None:
        followed(self.first).awaited = True
        response = self.response(self.first, error)
        items = encode_with_ranges(response, VERSION, 77)
        self.shared.keep(response, self.first, self.body, VERSION, items)

    def ask(self) -> list[OutputItem] | None:
        return self.shared.for_another(self.second, self.body, VERSION, 88)


def followed(session: ReplicaSession) -> Followed:
    return session.partitions[TOPIC, 3]


def test_it_is_what_would_have_been_encoded() -> None:
    world = World()
    world.answer_first()
    assert world.ask() == encode_with_ranges(world.response(world.second), VERSION, 88)


def test_the_session_knows_what_was_told() -> None:
    world = World()
    world.answer_first()
    world.ask()
    other = followed(world.second)
    assert other.awaited and not world.second.ready
    assert (other.told_high_watermark, other.told_log_start_offset, other.told_tiered_end) == (10, 1, 4)
    assert world.ask() is None, "nothing more before it names its new position"


def test_at_first_there_is_nothing() -> None:
    assert World().ask() is None


def _throttle(world: World) -> None:
    world.hosted.config.leader_replication_throttled_replicas = ("*",)


def _news(world: World) -> None:
    world.second.news[Followed(world.second, (TOPIC, 4))] = None


def _more(world: World) -> None:
    world.second.follow((TOPIC, 4))


CHANGES: dict[str, Callable[[World], object]] = {
    "more was appended": lambda world: setattr(world.hosted, "log_end_offset", 12),
    "higher high watermark": lambda world: setattr(world.hosted, "high_watermark", 11),
    "higher log start": lambda world: setattr(world.hosted, "log_start_offset", 2),
    "more is tiered": lambda world: setattr(world.hosted, "tiered_end", 5),
    "another position": lambda world: setattr(followed(world.second), "fetch_offset", 9),
    "fewer bytes wanted": lambda world: setattr(followed(world.second), "max_bytes", 100),
    "fewer bytes in all": lambda world: setattr(world, "body", FetchRequest(max_bytes=100)),
    "an older leader epoch": lambda world: setattr(followed(world.second), "current_leader_epoch", 4),
    "a newer leader epoch": lambda world: setattr(world.hosted, "leader_epoch", 6),
    "no leader any more": lambda world: setattr(world.hosted, "leader", None),
    "no replica any more": lambda world: world.hosted.leader.followers.pop(3),
    "recovering": lambda world: setattr(world.hosted, "recovering", True),
    "offline": lambda world: setattr(world.hosted, "offline", "disk"),
    "another partition": lambda world: setattr(followed(world.second), "hosted", World().hosted),
    "no partition": lambda world: setattr(followed(world.second), "hosted", None),
    "sent something already": lambda world: setattr(followed(world.second), "awaited", True),
    "throttled": _throttle,
    "news of another partition": _news,
    "another partition is ready, too": _more,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_differs_is_read_and_encoded_anew(change: Callable[[World], object]) -> None:
    world = World()
    world.answer_first()
    change(world)
    ready = list(world.second.ready)
    assert world.ask() is None
    assert list(world.second.ready) == ready


def test_another_version_is_encoded_anew() -> None:
    world = World()
    world.answer_first()
    assert world.shared.for_another(world.second, world.body, 17, 88) is None


def test_an_error_is_told_to_one() -> None:
    world = World()
    world.answer_first(ErrorCode.KAFKA_STORAGE_ERROR)
    assert world.ask() is None
