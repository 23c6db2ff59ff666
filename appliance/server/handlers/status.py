"""BrokerStatus and ControllerStatus, ours: what `appliance status` shows.

- Neither is advertised; a client of ours asks in version 0.
- ControllerStatus is handed on to the active controller, which clients have no address of.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import cast

from appliance.base.errors import ErrorCode
from appliance.base.ids import ZERO_UUID
from appliance.log.damage import DamagedRange
from appliance.server.context import Broker
from appliance.server.forwarding import forward
from appliance.server.requests import Pending, Request
from appliance.wire.messages.internal_metadata import ControllerStatusResponse
from appliance.wire.messages.internal_status import (
    BrokerStatusDamage,
    BrokerStatusDirectory,
    BrokerStatusOffline,
    BrokerStatusRequest,
    BrokerStatusResponse,
    BrokerStatusTiering,
    BrokerStatusUncleanable,
)

ROWS_MAX = 10_000
"""Partitions in one answer."""


def broker_status(broker: Broker, request: Request) -> BrokerStatusResponse:
    body = cast(BrokerStatusRequest, request.body)
    rows = broker.tiering.status()
    shown = [row for row in rows if not body.only_behind or row.waiting_segments or row.reason]
    offline = broker.partitions.out_of_service()
    return BrokerStatusResponse(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        led_partitions=len(rows),
        runtime_problem=broker.runtime_problem,
        tiering=[
            BrokerStatusTiering(
                topic=row.topic,
                topic_id=row.topic_id,
                partition=row.partition,
                state=row.state,
                leader_epoch=row.leader_epoch,
                start_offset=row.start_offset,
                tiered_end=row.tiered_end,
                waiting_segments=row.waiting_segments,
                waiting_bytes=row.waiting_bytes,
                reason=row.reason,
            )
            for row in shown[:ROWS_MAX]
        ],
        directories=[
            BrokerStatusDirectory(
                path=str(directory.path),
                directory_id=directory.directory_id or ZERO_UUID,
                state=directory.state.value,
                reason=directory.reason,
                total_bytes=directory.total_bytes,
                free_bytes=directory.free_bytes,
                logs=len(directory.logs),
            )
            for directory in broker.logs.directories
        ],
        offline=[
            BrokerStatusOffline(topic=topic, partition=partition, reason=reason)
            for (topic, partition), reason in offline[:ROWS_MAX]
        ],
        offline_partitions=len(offline),
        uncleanable=[
            BrokerStatusUncleanable(topic=topic, partition=partition, reason=reason)
            for (topic, partition), reason in islice(sorted(broker.cleaner.uncleanable.items()), ROWS_MAX)
        ],
        damage=[
            BrokerStatusDamage(topic=topic, partition=partition, start_offset=start, end_offset=end, reason=reason)
            for topic, partition, (start, end, reason, _) in islice(_damage(broker), ROWS_MAX)
        ],
    )


def _damage(broker: Broker) -> Iterator[tuple[str, int, DamagedRange]]:
    if broker.logs.files.damage.is_empty:
        return
    for name, topic in sorted(broker.partitions.by_name.items()):
        for index, hosted in sorted(topic.partitions.items()):
            for each in hosted.log.damage:
                yield name, index, each


def controller_status(broker: Broker, request: Request) -> Pending:
    return forward(broker, request, controller_status_failed)


def controller_status_failed(request: Request, code: ErrorCode, message: str | None) -> ControllerStatusResponse:
    return ControllerStatusResponse(error_code=code)
