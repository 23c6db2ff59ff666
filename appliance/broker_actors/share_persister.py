"""The way to the share coordinator of a partition of a group, wherever it is (KIP-932).

Requests for a coordinator on this broker go straight to it, all others over the wire. What fails in a way that may pass
is tried again for a while. All methods are called on the loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.broker_actors.broker_links import BrokerLinks
from appliance.coordinator.calls import Call
from appliance.coordinator.partitioner import partition_for
from appliance.server.handlers.find_coordinator import SHARE_STATE_TOPIC
from appliance.share_groups.state_forms import STATE_REQUESTS, key_of, refuse, result_of
from appliance.wire.schema import Struct

REQUEST_TIMEOUT_MS = 10_000
FIRST_BACKOFF_MS = 10
BACKOFF_MAX_MS = 500
PATIENCE_MS = 10_000
"""How long a request is tried again."""
WAITING_MAX = 20_000
"""Requests under way; more are told to come again."""
_MAY_PASS = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NETWORK_EXCEPTION,
)

Done = Callable[[Any], None]
"""Gets what the answer says of the one partition, once."""
_VERSIONS: Mapping[type[Struct], int] = {each: (each.__wire__.versions or (0, 0))[1] for each in STATE_REQUESTS}


@dataclass(eq=False, slots=True)
class _Question:
    request: Struct
    done: Done
    give_up_ms: int
    backoff_ms: int = FIRST_BACKOFF_MS


class SharePersister:
    """All questions of a broker."""

    def __init__(
        self,
        broker: Any,
        submit: Callable[[Call, Callable[[Struct], None]], None],
        create_topic: Callable[[Callable[[], None]], None],
    ) -> None:
        """`submit` gives a call to a coordinator on this broker."""
        self._broker = broker
        self._submit = submit
        self._create_topic = create_topic
        self._links = BrokerLinks(broker)
        self._waiting = 0
        self._closed = False

    def ask(self, request: Struct, done: Done) -> None:
        """Ask about one partition of one group; `done` is called later, or at once."""
        question = _Question(request, done, self._broker.clock.monotonic_ms() + PATIENCE_MS)
        if self._waiting >= WAITING_MAX:
            done(self._failed(question, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self._waiting += 1
        self._place(question)

    def close(self) -> None:
        self._closed = True
        self._links.close()

    @staticmethod
    def _failed(question: _Question, error: ErrorCode) -> Any:
        return result_of(refuse(Call(question.request), error))

    def _place(self, question: _Question) -> None:
        if self._closed:
            return
        broker, request = self._broker, question.request
        topic = broker.image.topics.get(SHARE_STATE_TOPIC)
        if topic is None or not topic.partitions:
            self._create_topic(lambda: self._again(question, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        leader = topic.partitions[partition_for(key_of(request).text(), len(topic.partitions))].leader
        version = _VERSIONS[type(request)]
        if leader == broker.broker_id:
            self._submit(Call(request, version), lambda answer: self._came(question, answer))
            return
        link = self._links.to(leader) if leader >= 0 else None
        if link is None:
            self._again(question, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            link.call(request, version, REQUEST_TIMEOUT_MS, lambda answer: self._came(question, answer))  # type: ignore[arg-type]

    def _came(self, question: _Question, answer: Any) -> None:
        if self._closed:
            return
        results = getattr(answer, "results", None)
        if not results or not results[0].partitions:
            self._again(question, ErrorCode.NETWORK_EXCEPTION)
            return
        result = result_of(answer)
        if result.error_code in _MAY_PASS:
            self._again(question, ErrorCode(result.error_code))
        else:
            self._finish(question, result)

    def _again(self, question: _Question, error: ErrorCode) -> None:
        if self._closed:
            return
        if self._broker.clock.monotonic_ms() >= question.give_up_ms:
            self._finish(question, self._failed(question, error))
            return
        delay_ms, question.backoff_ms = question.backoff_ms, min(question.backoff_ms * 2, BACKOFF_MAX_MS)
        self._broker.background.schedule(delay_ms, lambda: self._place(question))

    def _finish(self, question: _Question, result: Any) -> None:
        self._waiting -= 1
        question.done(result)
