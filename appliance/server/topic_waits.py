"""Waiting until this broker's image shows what the controller has committed.

A client that was told that its topic exists asks for it at once. So the answer waits a moment for this broker to have
seen it, and for the partitions that it leads to be open; the wait is bounded and its end is no error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from appliance.server.context import Broker

SETTLE_MAX_MS = 2_000
"""How long an answer waits for the image of its own broker."""


def when_topics_are_there(broker: Broker, names: Iterable[str], done: Callable[[], None]) -> None:
    """Call `done` when all topics are in the image and what this broker leads of them is open, or after the limit."""
    wanted = list(names)
    _when(broker, lambda: all(_is_open(broker, name) for name in wanted), done)


def when_topics_are_gone(broker: Broker, names: Iterable[str], done: Callable[[], None]) -> None:
    """Call `done` when none of the topics is in the image any more, or after the limit."""
    unwanted = list(names)
    _when(broker, lambda: not any(name in broker.image.topics for name in unwanted), done)


def _is_open(broker: Broker, name: str) -> bool:
    topic = broker.image.topics.get(name)
    if topic is None:
        return False
    return all(
        broker.partitions.get_by_id(topic.topic_id, partition.partition) is not None
        for partition in topic.partitions
        if partition.leader == broker.broker_id
    )


def _when(broker: Broker, settled: Callable[[], bool], done: Callable[[], None]) -> None:
    if settled():
        done()
        return

    def finish() -> None:
        timer.cancel()
        stop()
        done()

    timer = broker.background.schedule(SETTLE_MAX_MS, finish)
    stop = broker.on_image(lambda image: finish() if settled() else None)
