"""What share coordinators and leaders on any broker say of a group's offsets. All methods on the loop's thread."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.broker_actors.broker_links import BrokerLinks
from appliance.broker_actors.share_persister import SharePersister
from appliance.share_groups.context import Outcome, PersistJob
from appliance.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state_summary,
)
from appliance.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LIST_OFFSETS_VERSION = 7
LATEST = -1
REQUEST_TIMEOUT_MS = 5_000

Place = tuple[str, int]
Where = tuple[uuid.UUID, int]


class ShareOffsets:
    """`broker.shares.offsets`."""

    def __init__(self, broker: Any, persister: SharePersister) -> None:
        self._broker = broker
        self._persister = persister
        self._links = BrokerLinks(broker)

    def close(self) -> None:
        self._links.close()

    def summaries(self, group_id: str, places: Sequence[Where], done: Callable[[Mapping[Where, Any]], None]) -> None:
        """What the share coordinators say of each partition, however often it is named."""
        messages = read_share_group_state_summary
        found: dict[Where, Any] = {}
        wanted = dict.fromkeys(places)
        if not wanted:
            done(found)

        def came(place: Where, result: Any) -> None:
            found[place] = result
            if len(found) == len(wanted):
                done(found)

        for place in wanted:
            request = messages.ReadShareGroupStateSummaryRequest(
                group_id=group_id,
                topics=[
                    messages.ReadStateSummaryData(
                        topic_id=place[0], partitions=[messages.PartitionData(partition=place[1], leader_epoch=-1)]
                    )
                ],
            )
            self._persister.ask(request, partial(came, place))

    def persist(self, job: PersistJob, done: Callable[[Outcome], None]) -> None:
        """Begin or end states; `done` is called once."""
        outcome: dict[Where, tuple[ErrorCode, str | None]] = {}
        left = len(job.places)
        if not left:
            done(outcome)

        def came(place: Where, result: Any) -> None:
            nonlocal left
            outcome[place] = (ErrorCode(result.error_code), result.error_message)
            left -= 1
            if not left:
                done(outcome)

        for each in job.places:
            place = (each.topic_id, each.partition)
            request: Any
            if job.is_beginning:
                begin = initialize_share_group_state
                request = begin.InitializeShareGroupStateRequest(
                    group_id=job.group_id,
                    topics=[
                        begin.InitializeStateData(
                            topic_id=each.topic_id,
                            partitions=[
                                begin.PartitionData(
                                    partition=each.partition,
                                    state_epoch=job.state_epoch,
                                    start_offset=each.start_offset,
                                )
                            ],
                        )
                    ],
                )
            else:
                end = delete_share_group_state
                request = end.DeleteShareGroupStateRequest(
                    group_id=job.group_id,
                    topics=[
                        end.DeleteStateData(
                            topic_id=each.topic_id, partitions=[end.PartitionData(partition=each.partition)]
                        )
                    ],
                )
            self._persister.ask(request, partial(came, place))

    def latest(self, places: Sequence[Place], done: Callable[[Mapping[Place, int]], None]) -> None:
        """The ends of partitions, of those that could be had."""
        broker = self._broker
        found: dict[Place, int] = {}
        by_leader: dict[int, dict[str, list[int]]] = {}
        for topic, partition in places:
            state = broker.image.partition(topic, partition)
            leader = -1 if state is None else state.leader
            hosted = broker.partitions.get(topic, partition) if leader == broker.broker_id else None
            if hosted is not None:
                found[topic, partition] = hosted.high_watermark
            elif leader >= 0 and leader != broker.broker_id:
                by_leader.setdefault(leader, {}).setdefault(topic, []).append(partition)
        left = len(by_leader)
        if not left:
            done(found)

        def came(answer: object) -> None:
            nonlocal left
            if isinstance(answer, ListOffsetsResponse):
                for topic in answer.topics:
                    for row in topic.partitions:
                        if not row.error_code:
                            found[topic.name, row.partition_index] = row.offset
            left -= 1
            if not left:
                done(found)

        for leader, topics in by_leader.items():
            link = self._links.to(leader)
            if link is None:
                came(None)
                continue
            rows = [
                ListOffsetsTopic(
                    name=name,
                    partitions=[ListOffsetsPartition(partition_index=each, timestamp=LATEST) for each in partitions],
                )
                for name, partitions in topics.items()
            ]
            link.call(ListOffsetsRequest(replica_id=-1, topics=rows), LIST_OFFSETS_VERSION, REQUEST_TIMEOUT_MS, came)
