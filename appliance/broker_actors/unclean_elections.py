"""Before an unclean election: ask the replicas that live how long their logs are (rule P10, KIP-966).

Nobody is elected before each of them has answered, has been fenced, or `unclean.recovery.timeout.ms` is over. What is
known decides: it is kept here, and `Outcome.settle` looks at it whenever something happens to such a partition.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Protocol

from appliance.base.background import Background, Timer
from appliance.base.clock import Clock
from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode
from appliance.broker_actors.broker_link import BrokerLink
from appliance.broker_actors.commit_pump import OWN_OPERATION_TIMEOUT_MS, Done
from appliance.controller.commits import Commit
from appliance.controller.decisions import UNUSABLE, LogEnd, Operation, Rules
from appliance.controller.image import MetadataImage
from appliance.controller.log_ends import Part, elect_longest, survey, without_leader
from appliance.controller.records import NO_LEADER, PartitionChanged, ProducerIdsAllocated
from appliance.wire.messages.internal_metadata import (
    ReplicaLogEndsPartition,
    ReplicaLogEndsRequest,
    ReplicaLogEndsResponse,
    ReplicaLogEndsTopic,
)
from appliance.wire.schema import Struct

_log = logging.getLogger(__name__)

TIMEOUT = "unclean.recovery.timeout.ms"
VERSION = 0
PARTITIONS_PER_REQUEST = 1_000
ASK_AGAIN_MS = 50
ANSWER_TIMEOUT_MS = 1_000
"""Of one request; a broker that does not answer is asked again for as long as the whole may take."""


class ElectingController(Protocol):
    """What this needs of its controller."""

    config: BrokerConfig
    clock: Clock
    rules: Rules

    @property
    def image(self) -> MetadataImage: ...
    @property
    def background(self) -> Background: ...

    def link_to(self, address: tuple[str, int]) -> BrokerLink:
        """A new connection to a broker."""

    def submit(self, operation: Operation, done: Done, timeout_ms: int) -> None: ...


class UncleanElections:
    """All methods are called on the loop's thread."""

    def __init__(self, controller: ElectingController, ends: dict[tuple[uuid.UUID, int, int], LogEnd]) -> None:
        self._controller = controller
        self._ends = ends
        """`Rules.log_ends` of this controller."""
        self._leaderless: dict[Part, None] = {}
        self._asked: dict[tuple[int, int], _AskedBroker] = {}
        """By broker id and epoch."""
        self._operators: list[tuple[list[Part], Callable[[], None]]] = []
        """Unclean elections that operators ask for, and what goes on when all has been heard."""
        self._electing = False
        self._elect_again = False

    def took_over(self) -> None:
        """This controller is active from here on."""
        self._leaderless = dict.fromkeys(without_leader(self._controller.image))
        self._look()

    def committed(self, commit: Commit) -> None:
        """The image has these records."""
        for record in commit.records:
            if isinstance(record, PartitionChanged):
                part = (record.topic_id, record.state.partition)
                if record.state.leader == NO_LEADER:
                    self._leaderless[part] = None
                elif part in self._leaderless:
                    self._forget(part)
        if self._leaderless and not all(isinstance(record, ProducerIdsAllocated) for record in commit.records):
            self._look()

    def when_asked(self, parts: Iterable[Part], then: Callable[[], None]) -> None:
        """An operator elects leaders of these partitions uncleanly: ask first."""
        self._operators.append(([part for part in parts if part in self._leaderless], then))
        self._look()

    def close(self) -> None:
        for broker in self._asked.values():
            broker.close()
        self._asked.clear()

    def _look(self) -> None:
        """Ask whom nobody has asked yet, ask nobody in vain, and elect where all is known."""
        image, rules = self._controller.image, self._controller.rules
        for part in [part for part in self._leaderless if image.partition_by_id(*part) is None]:
            self._forget(part)
        found = survey(image, rules, self._leaderless)
        unasked = found.unasked
        waiting, self._operators = self._operators, []
        for parts, then in waiting:
            missing = survey(image, rules, parts, by_operator=True).unasked
            for broker_id, questions in missing.items():
                unasked.setdefault(broker_id, {}).update(questions)
            if missing:
                self._operators.append((parts, then))
            else:
                then()
        wanted = {(broker_id, image.brokers[broker_id].broker_epoch): unasked[broker_id] for broker_id in unasked}
        for key in [key for key in self._asked if key not in wanted]:
            self._asked.pop(key).close()
        for key, questions in wanted.items():
            asked = self._asked.get(key)
            if asked is None:
                broker = image.brokers[key[0]]
                link = self._controller.link_to((broker.host, broker.port))
                asked = self._asked[key] = _AskedBroker(self._controller, key, link, partial(self._told, key))
            asked.ask(questions)
        if found.complete:
            self._elect()

    def _forget(self, part: Part) -> None:
        del self._leaderless[part]
        for key in [key for key in self._ends if key[:2] == part]:
            del self._ends[key]

    def _told(self, broker: tuple[int, int], ends: dict[Part, LogEnd]) -> None:
        for part, end in ends.items():
            self._ends[*part, broker[0]] = end
        self._look()

    def _elect(self) -> None:
        """Once at a time; what is complete by then is looked at afterwards."""
        if self._electing:
            self._elect_again = True
            return
        self._electing = True
        controller = self._controller

        def done(result: Struct | Exception | None) -> None:
            self._electing = False
            if self._elect_again:
                self._elect_again = False
                controller.background.schedule(ASK_AGAIN_MS, self._look)

        controller.submit(
            lambda image: elect_longest(image, controller.rules, list(self._leaderless)),
            done,
            OWN_OPERATION_TIMEOUT_MS,
        )


class _AskedBroker:
    """One process of a broker that is asked, again and again until it has answered or time is over."""

    def __init__(
        self,
        controller: ElectingController,
        broker: tuple[int, int],
        link: BrokerLink,
        told: Callable[[dict[Part, LogEnd]], None],
    ) -> None:
        self._controller = controller
        self._broker_id, self._broker_epoch = broker
        self._link = link
        self._told = told
        self._open: dict[Part, tuple[int, int]] = {}
        """Leader epoch and deadline of each question that waits for its answer."""
        self._timer: Timer | None = None
        self._busy = False
        self._closed = False

    def ask(self, questions: dict[Part, int]) -> None:
        """These are to be answered, and no others."""
        deadline_ms = self._now_ms() + self._controller.config.get(TIMEOUT)
        before = self._open
        self._open = {part: known for part, known in before.items() if questions.get(part) == known[0]}
        for part, leader_epoch in questions.items():
            self._open.setdefault(part, (leader_epoch, deadline_ms))
        if not self._busy and (self._timer is None or len(self._open) > len(before)):
            self._later(0)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._link.close()

    def _now_ms(self) -> int:
        return self._controller.clock.monotonic_ms()

    def _later(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._controller.background.schedule(delay_ms, self._send)

    def _send(self) -> None:
        self._timer = None
        if self._closed or self._busy or not self._open:
            return
        now_ms = self._now_ms()
        late = {part: epoch for part, (epoch, deadline_ms) in self._open.items() if now_ms >= deadline_ms}
        if late:
            _log.warning(
                "broker %d has not said in time how long its logs of %d partitions are", self._broker_id, len(late)
            )
            self._tell({part: LogEnd(epoch, self._broker_epoch) for part, epoch in late.items()})
            return
        topics: dict[uuid.UUID, ReplicaLogEndsTopic] = {}
        asked: dict[Part, int] = {}
        for part, (leader_epoch, _) in islice(self._open.items(), PARTITIONS_PER_REQUEST):
            asked[part] = leader_epoch
            topic = topics.setdefault(part[0], ReplicaLogEndsTopic(topic_id=part[0]))
            topic.partitions.append(ReplicaLogEndsPartition(partition=part[1], leader_epoch=leader_epoch))
        self._busy = True
        first_ms = min(deadline_ms for _, deadline_ms in self._open.values())
        self._link.call(
            ReplicaLogEndsRequest(topics=list(topics.values())),
            VERSION,
            max(1, min(ANSWER_TIMEOUT_MS, first_ms - now_ms)),
            partial(self._answered, asked),
        )

    def _answered(self, asked: dict[Part, int], answer: Struct | Exception) -> None:
        self._busy = False
        if self._closed:
            return
        ends: dict[Part, LogEnd] = {}
        if isinstance(answer, ReplicaLogEndsResponse) and answer.broker_epoch == self._broker_epoch:
            for topic in answer.topics:
                for row in topic.partitions:
                    part = (topic.topic_id, row.partition)
                    if part not in asked or row.error_code not in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR):
                        continue
                    end = UNUSABLE if row.error_code else row.log_end_offset
                    ends[part] = LogEnd(asked[part], self._broker_epoch, row.last_epoch, end)
        # What could not be said now is asked for again, behind what was not asked yet.
        for part in asked:
            if part in self._open:
                self._open[part] = self._open.pop(part)
        unasked = len(self._open) > len(asked)
        self._later(0 if ends and unasked else ASK_AGAIN_MS)
        if ends:
            self._tell(ends)

    def _tell(self, ends: dict[Part, LogEnd]) -> None:
        for part in ends:
            self._open.pop(part, None)
        if self._open and self._timer is None:
            self._later(0)
        self._told(ends)
