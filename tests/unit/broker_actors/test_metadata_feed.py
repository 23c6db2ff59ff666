from __future__ import annotations

from typing import cast

import pytest

from appliance.broker_actors.metadata_feed import SPREAD_MAX_MS, MetadataFeed
from appliance.controller.image import MetadataImage
from appliance.controller.log_reader import LogPosition
from appliance.server.requests import Pending
from appliance.wire.messages.internal_metadata import MetadataFetchRequest
from tests.support.hand_loop import HandBackground, HandClock


class World:
    """A feed whose log stands at position 7, and what those were told who wait for brokers."""

    def __init__(self) -> None:
        self.background = HandBackground(HandClock())
        self.feed = MetadataFeed(self.background, HandClock(), controller_id=100)
        self.feed.begin(LogPosition(MetadataImage(position=7)))
        self.told: list[str] = []

    def asks(self, broker_id: int, position: int) -> None:
        request = MetadataFetchRequest(broker_id=broker_id, position=position, max_wait_ms=0, max_bytes=1)
        self.feed.fetch(request, cast(Pending, None))

    def wait_for(self, *brokers: int, name: str = "told") -> None:
        self.feed.when_spread(brokers, lambda: self.told.append(name))


@pytest.fixture
def world() -> World:
    return World()


def test_an_answer_waits_until_every_broker_has_asked_for_what_comes_next(world: World) -> None:
    world.asks(1, 6)
    world.wait_for(1, 2)
    world.asks(1, 7)
    assert world.told == []
    world.asks(2, 6)
    assert world.told == []
    world.asks(2, 7)
    assert world.told == ["told"]
    world.background.advance(SPREAD_MAX_MS)
    assert world.told == ["told"]


def test_an_answer_does_not_wait_for_brokers_that_know_already(world: World) -> None:
    world.asks(1, 7)
    world.wait_for(1)
    world.wait_for()
    assert world.told == ["told", "told"]


def test_a_silent_broker_holds_an_answer_up_for_a_moment_only(world: World) -> None:
    world.wait_for(1)
    world.background.advance(SPREAD_MAX_MS - 1)
    assert world.told == []
    world.background.advance(1)
    assert world.told == ["told"]
    world.asks(1, 7)
    assert world.told == ["told"]


def test_a_broker_that_began_anew_is_behind_again(world: World) -> None:
    world.asks(1, 7)
    world.asks(1, -1)
    world.wait_for(1)
    assert world.told == []
