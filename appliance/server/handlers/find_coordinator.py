"""FindCoordinator, versions 0 to 6: the leader of the partition of `__consumer_offsets` that a group belongs to, or of
`__transaction_state` for a transactional id.

- The topic is created when the first one asks, and the answer waits for that. Where a partition has no leader it is
  COORDINATOR_NOT_AVAILABLE, with which every client tries again.
- For a partition of a share group, key "group:topic id:partition", it is the leader of the partition of
  `__share_group_state` that the key belongs to.
v4 many keys in one request (KIP-699) · v6 share groups (KIP-932)
"""

from __future__ import annotations

from typing import Any, cast

from appliance.base.errors import ErrorCode
from appliance.base.ids import uuid_from_text
from appliance.coordinator.partitioner import partition_for
from appliance.server.context import Broker
from appliance.server.handlers.group_calls import answer_or_wait, coordinators_of
from appliance.server.handlers.share_state import share_coordinators_of
from appliance.server.handlers.transaction_calls import TRANSACTION_TOPIC, transactions_of
from appliance.server.requests import Pending, Request
from appliance.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from appliance.wire.schema import Struct

GROUP, TRANSACTION, SHARE = 0, 1, 2
MANY_KEYS_SINCE = 4
OFFSETS_TOPIC = "__consumer_offsets"
SHARE_STATE_TOPIC = "__share_group_state"
TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTION_TOPIC, SHARE: SHARE_STATE_TOPIC}
SHARE_SINCE = 6
_SHARE_KEY_PARTS = 3


def handle(broker: Broker, request: Request) -> Struct | Pending:
    body = cast(FindCoordinatorRequest, request.body)
    is_missing = body.key_type in TOPICS and TOPICS[body.key_type] not in broker.image.topics
    if is_missing and (body.key_type != SHARE or any(map(_is_share_key, body.coordinator_keys))):
        coordinators: Any = {
            GROUP: coordinators_of,
            TRANSACTION: transactions_of,
            SHARE: share_coordinators_of,
        }[body.key_type](broker)
        return answer_or_wait(
            request, lambda answer: coordinators.create_topic(lambda: answer(_answer(broker, request)))
        )
    return _answer(broker, request)


def _answer(broker: Broker, request: Request) -> Struct:
    body = cast(FindCoordinatorRequest, request.body)
    if request.api_version >= MANY_KEYS_SINCE:
        return FindCoordinatorResponse(
            coordinators=[_find(broker, request, body.key_type, key) for key in body.coordinator_keys]
        )
    found = _find(broker, request, body.key_type, body.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def failed(request: Request, code: ErrorCode, message: str | None) -> FindCoordinatorResponse:
    """The answer when everything failed alike."""
    body = cast(FindCoordinatorRequest, request.body)
    if request.api_version < MANY_KEYS_SINCE:
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, port=-1)
    return FindCoordinatorResponse(coordinators=[_nobody(key, code, message) for key in body.coordinator_keys])


def _find(broker: Broker, request: Request, key_type: int, key: str) -> Coordinator:
    if key_type == SHARE and (request.api_version < SHARE_SINCE or not _is_share_key(key)):
        return _nobody(key, ErrorCode.INVALID_REQUEST, f"Invalid share group key {key!r}.")
    if key_type not in TOPICS:
        return _nobody(key, ErrorCode.INVALID_REQUEST, f"Coordinators of key type {key_type} are not served.")
    topic = broker.image.topics.get(TOPICS[key_type])
    if topic is None or not topic.partitions:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{TOPICS[key_type]} does not exist yet.")
    partition = topic.partitions[partition_for(key, len(topic.partitions))]
    leader = broker.image.brokers.get(partition.leader)
    endpoint = leader.endpoint(request.connection.listener.name) if leader is not None else None
    if leader is None or leader.fenced or endpoint is None:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator's partition has no leader.")
    return Coordinator(key=key, node_id=leader.broker_id, host=endpoint.host, port=endpoint.port, error_message="")


def _is_share_key(key: str) -> bool:
    """Group, topic id and partition; a group id may have colons, too."""
    parts = key.rsplit(":", _SHARE_KEY_PARTS - 1)
    if len(parts) != _SHARE_KEY_PARTS or not parts[0] or not parts[2].isascii() or not parts[2].isdigit():
        return False
    try:
        uuid_from_text(parts[1])
    except ValueError:
        return False
    return True


def _nobody(key: str, code: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=message)
