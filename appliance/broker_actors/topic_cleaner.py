"""The active controller removes what deleted topics have left in the tier. When: `controller/deleted_topics.py`."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from functools import partial

from appliance.base.background import Background
from appliance.base.clock import Clock
from appliance.base.object_store import ObjectStore
from appliance.controller.decisions import Decision, Operation
from appliance.controller.deleted_topics import DeletedTopics
from appliance.controller.image import MetadataImage
from appliance.controller.records import TopicObjectsGone
from appliance.tiering.sweep import Removed, delete_topic_objects

_log = logging.getLogger(__name__)

TICK_MS = 500


class TopicCleaner:
    """All methods are called on the loop's thread; the store is asked in a helper thread.

    Args:
        background: threads for this alone; a store that hangs must hold up nothing else.
        decide: commits what nobody asked for.
    """

    def __init__(
        self,
        store: ObjectStore,
        background: Background,
        clock: Clock,
        delay_ms: int,
        image: Callable[[], MetadataImage],
        decide: Callable[[Operation], None],
    ) -> None:
        self._store = store
        self._background = background
        self._clock = clock
        self._image = image
        self._decide = decide
        self._known: Mapping[uuid.UUID, str] = {}
        self._topics = DeletedTopics(delay_ms)
        self._closed = False

    def start(self) -> None:
        """From now on; the epoch is claimed."""
        if self._closed:
            return
        self._background.schedule(TICK_MS, self.start)
        self.tick()

    def close(self) -> None:
        """No round begins any more."""
        self._closed = True

    @property
    def removed(self) -> int:
        """Objects so far."""
        return self._topics.removed

    def waits_for(self) -> str:
        """What the removal waits for; empty when there is nothing to remove."""
        self._learn()
        return self._topics.waits_for(self._clock.monotonic_ms())

    def tick(self) -> None:
        """Begin a round if one is due."""
        self._learn()
        if not self._known:
            return
        topic_id = self._topics.next(self._clock.monotonic_ms())
        if topic_id is not None:
            self._background.run(
                partial(delete_topic_objects, self._store, topic_id), lambda result: self._done(topic_id, result)
            )

    def _learn(self) -> None:
        deleted = self._image().deleted_topics
        if deleted is not self._known:
            self._known = deleted
            self._topics.know(deleted, self._clock.monotonic_ms())

    def _done(self, topic_id: uuid.UUID, result: Removed | Exception) -> None:
        if self._closed:
            return
        now_ms = self._clock.monotonic_ms()
        if isinstance(result, Exception):
            _log.warning("objects of deleted topic %s stay for now: %s", self._known.get(topic_id, topic_id), result)
            self._topics.failed(topic_id, str(result), now_ms)
            return
        if result.objects:
            _log.info("removed %d objects of deleted topic %s", result.objects, self._known.get(topic_id, topic_id))
        if self._topics.done(topic_id, result.objects, result.is_all, now_ms):
            self._decide(lambda image: forget(topic_id, image))
        if not result.is_all:
            self.tick()


def forget(topic_id: uuid.UUID, image: MetadataImage) -> Decision:
    """Nothing of the topic is left."""
    return Decision([TopicObjectsGone(topic_id)]) if topic_id in image.deleted_topics else Decision()
