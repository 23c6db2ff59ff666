"""A follower's fetch that differs in numbers only from the last one is taken for what the codec would have read."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest

from appliance.base.errors import ErrorCode
from appliance.server.handlers.fetch import FetchHandler
from appliance.server.handlers.replica_fetch import ReplicaFetchHandler
from appliance.server.handlers.replica_fetch_fast import fast_replica_fetch
from appliance.server.requests import Pending, Request
from appliance.wire.api import ApiKey
from appliance.wire.codec import decode_from, decode_request_header, encode_request, encode_response
from appliance.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState

VERSION = 18
CLIENT_ID = "broker-2-replica"
AHEAD = 7
"""Bytes of the buffer before the frame."""


def fetch(epoch: int, offset: int, high_watermark: int, *, partitions: tuple[int, ...] = (3,)) -> FetchRequest:
    rows = [
        FetchPartition(partition=n, current_leader_epoch=5, fetch_offset=offset, high_watermark=high_watermark)
        for n in partitions
    ]
    return FetchRequest(
        replica_state=ReplicaState(replica_id=2, replica_epoch=77),
        session_id=123,
        session_epoch=epoch,
        topics=[FetchTopic(topic_id=uuid.UUID(int=7), partitions=rows)],
    )


class World:
    """A connection of a follower, and a handler that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, int, int]] = []
        self.queued: list[Any] = []
        self.decoded = 0
        self.failing = False
        self.answer: Any = Pending(cast(Any, None), VERSION, 0)
        server = SimpleNamespace(fast_fetches=0)
        self.connection: Any = SimpleNamespace(
            follower_fetch=None, server=server, queue=self.queued.append, peer="127.0.0.1:1"
        )
        self.broker: Any = SimpleNamespace(partitions=SimpleNamespace(generation=1))
        self.handler = FetchHandler(cast(Any, None), 1 << 20)
        self.handler.followers = cast(ReplicaFetchHandler, self)
        self.raw = fast_replica_fetch(self.broker, self.handler.followers)

    def handle(self, broker: Any, request: Request) -> Any:
        """What the followers' handler would do."""
        if self.failing:
            raise RuntimeError("on purpose")
        body = cast(FetchRequest, request.body)
        row = body.topics[0].partitions[0]
        self.asked.append((request.correlation_id, body.session_epoch, row.fetch_offset, row.high_watermark))
        return self.answer

    def send(self, body: FetchRequest, correlation_id: int, client_id: str = CLIENT_ID) -> None:
        frame = encode_request(body, VERSION, correlation_id, client_id)
        self.connection.buffer = bytearray(AHEAD) + frame + b"what comes next"
        known = self.connection.follower_fetch is not None
        if known and self.raw(self.connection, AHEAD, AHEAD + len(frame), VERSION, correlation_id):
            return
        self.decoded += 1
        header = decode_request_header(memoryview(frame)[4:])
        read, _ = decode_from(FetchRequest, memoryview(frame)[4:], VERSION, header.body_offset)
        request = Request(ApiKey.FETCH, VERSION, correlation_id, header.client_id, read, self.connection)
        self.handler.handle(self.broker, request)


@pytest.fixture
def world() -> World:
    """The third fetch and those after it go the short way."""
    world = World()
    for number in (1, 2, 3):
        world.send(fetch(number, number * 10, number * 10 - 1), number)
    assert (world.decoded, len(world.queued)) == (2, 1)
    return world


def test_only_the_numbers_are_new(world: World) -> None:
    world.send(fetch(2**31 - 1, 2**62, 2**61), 9)
    assert world.decoded == 2
    assert world.asked == [(1, 1, 10, 9), (2, 2, 20, 19), (3, 3, 30, 29), (9, 2**31 - 1, 2**62, 2**61)]
    assert world.connection.server.fast_fetches == 2


@pytest.mark.parametrize("other", ["partition", "more partitions", "client"])
def test_whatever_else_differs_is_decoded(world: World, other: str) -> None:
    partitions = {"partition": (4,), "more partitions": (3, 4)}.get(other, (3,))
    world.send(fetch(4, 40, 39, partitions=partitions), 4, "another" if other == "client" else CLIENT_ID)
    assert world.decoded == 3 and world.asked[-1] == (4, 4, 40, 39)


def test_the_usual_one_is_known_again_after_one_of_many_partitions(world: World) -> None:
    world.send(fetch(4, 40, 39, partitions=(3, 4)), 4)
    world.send(fetch(5, 50, 49), 5)
    assert world.decoded == 3 and world.asked[-1] == (5, 5, 50, 49)


def test_when_what_may_be_asked_for_changes_it_is_looked_at_anew(world: World) -> None:
    world.broker.partitions.generation += 1
    for number in (4, 5, 6):
        world.send(fetch(number, 40, 39), number)
    assert world.decoded == 4
    assert [asked[0] for asked in world.asked] == [1, 2, 3, 4, 5, 6]


def test_a_refusal_is_answered(world: World) -> None:
    world.answer = FetchResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    world.send(fetch(4, 40, 39), 4)
    assert world.queued[-1] == encode_response(world.answer, VERSION, 4)


def test_a_mistake_of_ours_is_answered_too(world: World) -> None:
    world.failing = True
    world.send(fetch(4, 40, 39), 4)
    assert world.queued[-1] == encode_response(FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR), VERSION, 4)
