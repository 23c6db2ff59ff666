"""The short way of a follower's fetch that names the same single partition as the last and differs in numbers only.

It is not decoded again: the numbers are put into the request that was decoded before, after one comparison of all other
bytes (`FetchTemplate`). What happens then is the same.
"""

from __future__ import annotations

import copy
import logging

from appliance.base.errors import ErrorCode
from appliance.server.connection import Connection
from appliance.server.context import Broker
from appliance.server.dispatcher import RawHandler
from appliance.server.handlers.replica_fetch import ReplicaFetchHandler
from appliance.server.requests import Pending, Request
from appliance.wire.api import ApiKey
from appliance.wire.codec import encode_response
from appliance.wire.fetch_template import FetchTemplate
from appliance.wire.messages.fetch import FetchRequest, FetchResponse
from appliance.wire.schema import Struct

_log = logging.getLogger(__name__)


class FollowerShape:
    """What the decoded fetches of a follower's connection have in common."""

    __slots__ = ("body", "client_id", "generation", "key", "template", "version")

    def __init__(self, request: Request, body: FetchRequest, generation: int) -> None:
        topic = body.topics[0]
        row = topic.partitions[0]
        self.body, self.generation = body, generation
        self.version, self.client_id = request.api_version, request.client_id
        self.key = (
            *(request.api_version, request.client_id, generation),
            *(body.session_id, body.replica_state.replica_epoch, body.max_wait_ms, body.min_bytes, body.max_bytes),
            *(topic.topic_id, row.partition, row.current_leader_epoch, row.last_fetched_epoch, row.log_start_offset),
        )
        self.template: FetchTemplate | None = None

    def prepare(self) -> None:
        """From now on `request` knows fetches of this shape."""
        # The request itself may still wait for its answer.
        self.body = copy.deepcopy(self.body)
        template = FetchTemplate(self._with, self.version, self.client_id)
        self.template = template if template.usable else None

    def _with(self, session_epoch: int, fetch_offset: int, high_watermark: int) -> FetchRequest:
        body, row = self.body, self.body.topics[0].partitions[0]
        body.session_epoch, row.fetch_offset, row.high_watermark = session_epoch, fetch_offset, high_watermark
        return body

    def request(
        self, connection: Connection, position: int, frame_end: int, version: int, correlation_id: int
    ) -> Request | None:
        """The request that lies there in the connection's buffer, or None when it has to be decoded."""
        if self.template is None or version != self.version:
            return None
        numbers = self.template.numbers(connection.buffer, position, frame_end - position)
        if numbers is None:
            return None
        return Request(ApiKey.FETCH, version, correlation_id, self.client_id, self._with(*numbers), connection)


def remember(request: Request, body: FetchRequest, generation: int) -> None:
    """A follower's fetch that was decoded: one like it that comes next may go the short way."""
    connection = request.connection
    if len(body.topics) != 1 or len(body.topics[0].partitions) != 1 or body.forgotten_topics_data:
        # Others of the session have changed; the usual one comes again.
        return
    shape = FollowerShape(request, body, generation)
    last: FollowerShape | None = connection.follower_fetch
    if last is None or last.key != shape.key:
        connection.follower_fetch = shape
    elif last.template is None:
        # The same comes once more; of most partitions it does not, they are quiet.
        last.prepare()


def fast_replica_fetch(broker: Broker, followers: ReplicaFetchHandler) -> RawHandler:
    """The raw handler of Fetch for connections of which a fetch is remembered."""
    partitions = broker.partitions

    def fetch(connection: Connection, position: int, frame_end: int, version: int, correlation_id: int) -> bool:
        shape: FollowerShape = connection.follower_fetch
        request = shape.request(connection, position, frame_end, version, correlation_id)
        if request is None or shape.generation != partitions.generation:
            return False
        connection.server.fast_fetches += 1
        try:
            answer: Struct | Pending = followers.handle(broker, request)
        except Exception:
            _log.exception("%r failed", request)
            answer = FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        if isinstance(answer, Struct):
            connection.queue(encode_response(answer, version, correlation_id))
        else:
            connection.queue(answer)
        return True

    return fetch
