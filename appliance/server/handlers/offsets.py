"""OffsetCommit 0-10, OffsetFetch 0-10, OffsetDelete 0: topics are looked up here, a coordinator does the rest.

- A partition that does not exist is answered with UNKNOWN_TOPIC_OR_PARTITION, an unknown topic id with
  UNKNOWN_TOPIC_ID (from v10, KIP-848); the other partitions of the request go on.
- OffsetFetch before v8 is about one group and has its errors elsewhere: in v0 and v1 at every partition. In v0 a
  partition without an offset is UNKNOWN_TOPIC_OR_PARTITION. (Brokers before 0.8.2 kept such offsets in ZooKeeper.)
- From v7 on a reader may ask for stable offsets only (`require_stable`, KIP-447).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import cast

from appliance.base.errors import ErrorCode
from appliance.base.ids import ZERO_UUID
from appliance.groups.refusals import refused_commit
from appliance.server.context import Broker
from appliance.server.handlers.group_calls import answer_or_wait, call_of, coordinators_of, topic_name
from appliance.server.requests import Pending, Request
from appliance.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from appliance.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from appliance.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from appliance.wire.schema import Struct

TOPIC_IDS_SINCE = 10
MANY_GROUPS_SINCE = 8
GROUP_ERROR_SINCE = 2
NO_OFFSET = -1
NO_OFFSET_IS_NO_ERROR_SINCE = 1


def commit(broker: Broker, request: Request) -> Struct | Pending:
    body = cast(OffsetCommitRequest, request.body)
    known: list[OffsetCommitRequestTopic] = []
    response = OffsetCommitResponse()
    of_known: list[OffsetCommitResponseTopic] = []
    for topic in body.topics:
        name, topic_id, error = _resolved(broker, request.api_version, topic.name, topic.topic_id)
        part = OffsetCommitResponseTopic(name=name, topic_id=topic_id)
        response.topics.append(part)
        there = []
        for partition in topic.partitions:
            if not error and broker.image.partition(name, partition.partition_index) is not None:
                there.append(partition)
            else:
                code = error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                part.partitions.append(
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                )
        if there:
            known.append(OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=there))
            of_known.append(part)
    if not known and body.topics:
        return response

    def start(answer: Callable[[Struct], None]) -> None:
        def decided(answered: Struct) -> None:
            for part, topic in zip(of_known, cast(OffsetCommitResponse, answered).topics, strict=True):
                part.partitions = topic.partitions + part.partitions
            answer(response)

        call = call_of(request, _with_topics(body, known))
        coordinators_of(broker).submit(body.group_id, call, decided)

    return answer_or_wait(request, start)


def _with_topics(body: OffsetCommitRequest, topics: list[OffsetCommitRequestTopic]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=body.group_id,
        generation_id_or_member_epoch=body.generation_id_or_member_epoch,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
        retention_time_ms=body.retention_time_ms,
        topics=topics,
    )


def commit_failed(request: Request, code: ErrorCode, message: str | None) -> OffsetCommitResponse:
    """The answer when everything failed alike."""
    return refused_commit(cast(OffsetCommitRequest, request.body), code)


def _resolved(broker: Broker, version: int, name: str, topic_id: uuid.UUID) -> tuple[str, uuid.UUID, ErrorCode | None]:
    """Name and id of a topic in a commit, or the error of all its partitions."""
    if version >= TOPIC_IDS_SINCE:
        found = topic_name(broker, topic_id)
        return (found or "", topic_id, None if found else ErrorCode.UNKNOWN_TOPIC_ID)
    state = broker.image.topics.get(name)
    if state is None:
        return name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return name, state.topic_id, None


def fetch(broker: Broker, request: Request) -> Struct:
    body = cast(OffsetFetchRequest, request.body)
    if request.api_version >= MANY_GROUPS_SINCE:
        return OffsetFetchResponse(groups=[_fetch_group(broker, request, group) for group in body.groups])
    topics = None
    if body.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in body.topics
        ]
    group = OffsetFetchRequestGroup(group_id=body.group_id, topics=topics)
    found = _fetch_group(broker, request, group)
    if found.error_code != ErrorCode.NONE:
        return fetch_failed(request, ErrorCode(found.error_code), None)
    if request.api_version < NO_OFFSET_IS_NO_ERROR_SINCE:
        for partition in (partition for topic in found.topics for partition in topic.partitions):
            if partition.committed_offset == NO_OFFSET and not partition.error_code:
                partition.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in found.topics
        ]
    )


def _fetch_group(broker: Broker, request: Request, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    require_stable = cast(OffsetFetchRequest, request.body).require_stable
    view = coordinators_of(broker).view(group.group_id)
    if isinstance(view, ErrorCode):
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=view)
    by_id = request.api_version >= TOPIC_IDS_SINCE
    if group.topics is None:
        found = view.fetch_offsets(group, require_stable=require_stable)
        if by_id:
            found.topics = [topic for topic in found.topics if _give_id(broker, topic)]
        return found
    known: list[OffsetFetchRequestTopics] = []
    unknown: list[OffsetFetchResponseTopics] = []
    for topic in group.topics:
        name = topic_name(broker, topic.topic_id) if by_id else topic.name
        if name is None:
            unknown.append(no_offsets(topic, ErrorCode.UNKNOWN_TOPIC_ID))
            continue
        state = broker.image.topics.get(name)
        topic_id = state.topic_id if state is not None else ZERO_UUID
        known.append(OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=topic.partition_indexes))
    found = view.fetch_offsets(
        OffsetFetchRequestGroup(
            group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=known
        ),
        require_stable=require_stable,
    )
    if found.error_code == ErrorCode.NONE:
        found.topics += unknown
    return found


def _give_id(broker: Broker, topic: OffsetFetchResponseTopics) -> bool:
    """Add a topic's id; false if there is none, so that a client that knows ids only cannot be told of it."""
    state = broker.image.topics.get(topic.name)
    if state is None:
        return False
    topic.topic_id = state.topic_id
    return True


def no_offsets(topic: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    """A topic whose partitions all have the same error."""
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=partition, committed_offset=NO_OFFSET, error_code=error)
            for partition in topic.partition_indexes
        ],
    )


def fetch_failed(request: Request, code: ErrorCode, message: str | None) -> OffsetFetchResponse:
    """The answer when everything failed alike."""
    body = cast(OffsetFetchRequest, request.body)
    if request.api_version >= MANY_GROUPS_SINCE:
        groups = [OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in body.groups]
        return OffsetFetchResponse(groups=groups)
    if request.api_version >= GROUP_ERROR_SINCE:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(topics=[no_offsets_of_one(topic, code) for topic in body.topics or []])


def no_offsets_of_one(topic: OffsetFetchRequestTopic, error: ErrorCode) -> OffsetFetchResponseTopic:
    """Before v8: a topic whose partitions all have the same error."""
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(partition_index=partition, committed_offset=NO_OFFSET, error_code=error)
            for partition in topic.partition_indexes
        ],
    )


def delete(broker: Broker, request: Request) -> Struct | Pending:
    body = cast(OffsetDeleteRequest, request.body)
    known: list[OffsetDeleteRequestTopic] = []
    unknown: list[OffsetDeleteResponseTopic] = []
    for topic in body.topics:
        indexes = dict.fromkeys(partition.partition_index for partition in topic.partitions)
        there = [index for index in indexes if broker.image.partition(topic.name, index) is not None]
        missing = [index for index in indexes if index not in there]
        if there:
            partitions = [partition for partition in topic.partitions if partition.partition_index in there]
            known.append(OffsetDeleteRequestTopic(name=topic.name, partitions=partitions))
        if missing:
            unknown.append(_not_deleted(topic.name, missing))

    def start(answer: Callable[[Struct], None]) -> None:
        def decided(answered: Struct) -> None:
            response = cast(OffsetDeleteResponse, answered)
            if response.error_code == ErrorCode.NONE:
                response.topics = _merged([*response.topics, *unknown])
            answer(response)

        call = call_of(request, OffsetDeleteRequest(group_id=body.group_id, topics=known))
        coordinators_of(broker).submit(body.group_id, call, decided, after_writes=True)

    return answer_or_wait(request, start)


def _not_deleted(name: str, partitions: Iterable[int]) -> OffsetDeleteResponseTopic:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetDeleteResponseTopic(
        name=name,
        partitions=[OffsetDeleteResponsePartition(partition_index=each, error_code=error) for each in partitions],
    )


def _merged(topics: list[OffsetDeleteResponseTopic]) -> list[OffsetDeleteResponseTopic]:
    by_name: dict[str, OffsetDeleteResponseTopic] = {}
    for topic in topics:
        if topic.name in by_name:
            by_name[topic.name].partitions += topic.partitions
        else:
            by_name[topic.name] = topic
    return list(by_name.values())
