"""What ShareFetch and ShareAcknowledge have in common: sessions, and what members say of records."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol, cast

from appliance.authorizer.bindings import Operation, ResourceType
from appliance.base.errors import ErrorCode
from appliance.server.access import Access
from appliance.server.context import Broker
from appliance.server.leaders import leader_hint
from appliance.server.requests import Request
from appliance.share_groups.config import PartitionLimits
from appliance.share_groups.heartbeat import MEMBER_ID_MAX
from appliance.share_groups.runs import Said
from appliance.share_groups.sessions import FIRST_EPOCH, Place, ShareSession, ShareSessions
from appliance.share_groups.share_partition import RENEW
from appliance.wire.schema import Struct

PROTOCOL = "share"
LOADING = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""A partition whose state cannot be had just now has no news; its reader waits."""
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class Led(Protocol):
    """One partition of one group, at its leader."""

    hosted: Any
    machine: Any
    error: ErrorCode
    ended: bool
    is_reading: bool
    waiters: dict[Any, None]

    @property
    def limits(self) -> PartitionLimits: ...

    def acknowledge(self, member_id: str, said: list[Said], done: Callable[[ErrorCode], None]) -> None: ...

    def fit_to_log(self) -> None: ...

    def pump(self) -> None: ...

    def arm(self) -> None: ...

    def wake(self) -> None: ...


class SharePartitions(Protocol):
    """`broker.shares.partitions`: what members of share groups have of the partitions that this broker leads."""

    sessions: ShareSessions

    def get(self, group_id: str, topic_id: uuid.UUID, partition: int) -> Led | ErrorCode: ...

    def known(self, group_id: str, topic_id: uuid.UUID, partition: int) -> Led | None: ...

    def open_session(self, group_id: str, member_id: str, owner: Any) -> ShareSession | ErrorCode: ...

    def end_session(self, session: ShareSession) -> None: ...

    def limits_of(self, group_id: str) -> PartitionLimits: ...

    def entries(self, group_id: str) -> Any: ...

    def now_ms(self) -> int: ...


def partitions_of(broker: Broker) -> SharePartitions:
    """What members of share groups have here."""
    return cast(SharePartitions, cast(Any, broker).shares.partitions)


def refusal(body: Any) -> tuple[ErrorCode, str] | None:
    """What is wrong with the request by itself."""
    if not body.group_id:
        return ErrorCode.INVALID_REQUEST, "The group id must be set."
    if not body.member_id or len(body.member_id) > MEMBER_ID_MAX:
        return ErrorCode.INVALID_REQUEST, f"The member id must have 1 to {MEMBER_ID_MAX} characters."
    return None


def session_for(broker: Broker, request: Request, *, may_open: bool) -> ShareSession | ErrorCode:
    """The session that the request opens, goes on with or ends."""
    body: Any = request.body
    shares = partitions_of(broker)
    epoch = body.share_session_epoch
    if epoch == FIRST_EPOCH:
        if not may_open:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        return shares.open_session(body.group_id, body.member_id, request.connection)
    session = shares.sessions.next(body.group_id, body.member_id, epoch)
    if isinstance(session, ShareSession):
        session.owner = request.connection
    return session


class Sayings:
    """What a member says in one request, and what comes of it."""

    def __init__(self, broker: Broker, request: Request, done: Callable[[], None]) -> None:
        """`done` is called once, when all outcomes are there."""
        self.results: dict[Place, ErrorCode] = {}
        self._broker = broker
        self._request = request
        self._done = done
        self._open = 1

    @property
    def is_open(self) -> bool:
        return self._open > 0

    def begin(self) -> None:
        """Take over everything that the request says."""
        body: Any = self._request.body
        shares = partitions_of(self._broker)
        is_renewing = getattr(body, "is_renew_ack", False)
        for place, rows in said_in(body):
            self.results[place] = ErrorCode.NONE
            said = [Said(row.first_offset, row.last_offset, row.acknowledge_types) for row in rows]
            if not is_renewing and any(RENEW in each.types for each in said):
                self.results[place] = ErrorCode.INVALID_REQUEST
                continue
            refused = may_read(self._broker, self._request.access, place[0])
            if refused is not None:
                self.results[place] = refused
                continue
            led = shares.get(body.group_id, *place)
            if isinstance(led, ErrorCode):
                self.results[place] = led
                continue
            self._open += 1
            led.acknowledge(body.member_id, said, partial(self._came, place))
        self._close_one()

    def _came(self, place: Place, error: ErrorCode) -> None:
        self.results[place] = error
        self._close_one()

    def _close_one(self) -> None:
        self._open -= 1
        if not self._open:
            self._done()


def said_in(body: Any) -> Iterable[tuple[Place, list[Any]]]:
    """Partitions of which the request says something."""
    for topic in body.topics:
        for partition in topic.partitions:
            if partition.acknowledgement_batches:
                yield (topic.topic_id, partition.partition_index), partition.acknowledgement_batches


def may_read(broker: Broker, access: Access | None, topic_id: uuid.UUID) -> ErrorCode | None:
    """READ of the topic; None: allowed, or there is no such topic, of which others tell."""
    topic = broker.image.topics_by_id.get(topic_id)
    if access is None or topic is None or access.may(Operation.READ, ResourceType.TOPIC, topic.name):
        return None
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED


def add_hint(broker: Broker, request: Request, response: Any, row: Any, place: Place, kinds: tuple[Any, Any]) -> None:
    """Tell a reader where the leader is now."""
    codes = (row.error_code, getattr(row, "acknowledge_error_code", 0))
    if not any(code in _MOVED for code in codes):
        return
    state = broker.image.topics_by_id.get(place[0])
    hint = leader_hint(broker, request.connection.listener.name, state.name if state is not None else "", place[1])
    if hint is None:
        return
    leader, endpoint = kinds
    row.current_leader = leader(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
    if all(one.node_id != hint.leader_id for one in response.node_endpoints):
        response.node_endpoints.append(endpoint(node_id=hint.leader_id, host=hint.host, port=hint.port, rack=hint.rack))


def add_row(responses: list[Any], topic_kind: type[Struct], topic_id: uuid.UUID, row: Any) -> None:
    """Put a partition into its topic, which is made when it is the first one."""
    for topic in responses:
        if topic.topic_id == topic_id:
            topic.partitions.append(row)
            return
    responses.append(topic_kind(topic_id=topic_id, partitions=[row]))
