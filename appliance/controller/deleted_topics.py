"""When the objects of deleted topics are removed from the tier. Pure.

Only ids whose deletion is committed come here. Running readers get `tiering.delete.delay.ms`; then the objects go, one
bounded round after the other, one topic at a time. A leader that has not heard of the deletion may still upload, so a
topic is forgotten only after two lists a day apart were empty. A new controller begins with the ids of the image and
counts the times anew.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

BACKOFF_MS = 5_000
BACKOFF_MAX_MS = 300_000
LOOK_AGAIN_MS = 24 * 3_600_000


@dataclass(slots=True)
class _Topic:
    name: str
    due_ms: int
    was_empty: bool = False
    """The last look found nothing."""
    failures: int = 0
    reason: str = ""


class DeletedTopics:
    """Which topic's objects are removed next."""

    def __init__(self, delay_ms: int, look_again_ms: int = LOOK_AGAIN_MS) -> None:
        self._delay_ms = delay_ms
        self._look_again_ms = look_again_ms
        self._topics: dict[uuid.UUID, _Topic] = {}
        self._under_way: uuid.UUID | None = None
        self.removed = 0
        """Objects so far."""

    def know(self, deleted: Mapping[uuid.UUID, str], now_ms: int) -> None:
        """The ids that the image has now. `now_ms` is the monotonic clock."""
        for topic_id, name in deleted.items():
            if topic_id not in self._topics:
                self._topics[topic_id] = _Topic(name, now_ms + self._delay_ms)
        for topic_id in [known for known in self._topics if known not in deleted]:
            del self._topics[topic_id]

    def next(self, now_ms: int) -> uuid.UUID | None:
        """The topic of which a round is to be done now; None when there is none, or one is under way."""
        if self._under_way is not None:
            return None
        due = [(topic.due_ms, topic_id) for topic_id, topic in self._topics.items() if topic.due_ms <= now_ms]
        self._under_way = min(due)[1] if due else None
        return self._under_way

    def done(self, topic_id: uuid.UUID, objects: int, is_all: bool, now_ms: int) -> bool:
        """A round has removed `objects`; true when the topic can be forgotten."""
        self._under_way = None
        self.removed += objects
        topic = self._topics.get(topic_id)
        if topic is None:
            return False
        topic.failures, topic.reason = 0, ""
        if not is_all:
            topic.due_ms = now_ms
            return False
        if not objects and topic.was_empty:
            return True
        topic.was_empty = not objects
        topic.due_ms = now_ms + self._look_again_ms
        return False

    def failed(self, topic_id: uuid.UUID, reason: str, now_ms: int) -> None:
        """The store gave no answer: the rest of the round comes later."""
        self._under_way = None
        topic = self._topics.get(topic_id)
        if topic is not None:
            topic.due_ms = now_ms + min(BACKOFF_MAX_MS, BACKOFF_MS << min(topic.failures, 10))
            topic.failures += 1
            topic.reason = reason

    def waits_for(self, now_ms: int) -> str:
        """The first thing that the removal waits for, in words; empty when nothing waits."""
        failed = [topic for topic in self._topics.values() if topic.reason]
        if failed:
            return f"{failed[0].name}: {failed[0].reason}"
        if self._under_way is not None and self._under_way in self._topics:
            return f"{self._topics[self._under_way].name}: objects are being removed"
        if not self._topics:
            return ""
        first = min(self._topics.values(), key=lambda topic: topic.due_ms)
        what = "a second look finds nothing" if first.was_empty else "the next round"
        return f"{first.name}: {what}, in {max(0, first.due_ms - now_ms) // 1_000} s"
