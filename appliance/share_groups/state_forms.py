"""The five requests to a share coordinator, alike but for their fields: one partition taken out, one answer made."""

from __future__ import annotations

from typing import Any

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Call
from appliance.share_groups.state_stored import StateKey
from appliance.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from appliance.wire.schema import Struct

_FORMS: dict[type[Struct], tuple[Any, Any, Any]] = {
    initialize_share_group_state.InitializeShareGroupStateRequest: (
        initialize_share_group_state.InitializeShareGroupStateResponse,
        initialize_share_group_state.InitializeStateResult,
        initialize_share_group_state.PartitionResult,
    ),
    read_share_group_state.ReadShareGroupStateRequest: (
        read_share_group_state.ReadShareGroupStateResponse,
        read_share_group_state.ReadStateResult,
        read_share_group_state.PartitionResult,
    ),
    write_share_group_state.WriteShareGroupStateRequest: (
        write_share_group_state.WriteShareGroupStateResponse,
        write_share_group_state.WriteStateResult,
        write_share_group_state.PartitionResult,
    ),
    delete_share_group_state.DeleteShareGroupStateRequest: (
        delete_share_group_state.DeleteShareGroupStateResponse,
        delete_share_group_state.DeleteStateResult,
        delete_share_group_state.PartitionResult,
    ),
    read_share_group_state_summary.ReadShareGroupStateSummaryRequest: (
        read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
        read_share_group_state_summary.ReadStateSummaryResult,
        read_share_group_state_summary.PartitionResult,
    ),
}
"""Response, its topics, their partitions."""
STATE_REQUESTS = tuple(_FORMS)


def key_of(request: Any) -> StateKey:
    """The one partition that a request names."""
    topic = request.topics[0]
    return StateKey(request.group_id, topic.topic_id, topic.partitions[0].partition)


def answer_to(request: Struct, key: StateKey, **values: Any) -> Struct:
    """The answer about one partition."""
    response, topic, partition = _FORMS[type(request)]
    row = topic(topic_id=key.topic_id, partitions=[partition(partition=key.partition, **values)])
    answer: Struct = response(results=[row])
    return answer


def refuse(call: Call, error: ErrorCode, text: str | None = None) -> Struct:
    """The answer to `call` that says nothing but `error`."""
    return answer_to(call.request, key_of(call.request), error_code=error, error_message=text)


def result_of(response: Any) -> Any:
    """The one partition that an answer is about."""
    return response.results[0].partitions[0]


def split(request: Any) -> list[Struct]:
    """A request for each partition that is named."""
    kind = type(request)
    singles: list[Struct] = []
    for topic in request.topics:
        for partition in topic.partitions:
            singles.append(
                kind(group_id=request.group_id, topics=[type(topic)(topic_id=topic.topic_id, partitions=[partition])])
            )
    return singles


def joined(request: Any, answers: list[Any]) -> Struct:
    """The answers of all partitions as one, in the order of the request."""
    response, topic_kind, _ = _FORMS[type(request)]
    results: list[Any] = []
    left = iter(answers)
    for topic in request.topics:
        results.append(
            topic_kind(topic_id=topic.topic_id, partitions=[result_of(next(left)) for _ in topic.partitions])
        )
    made: Struct = response(results=results)
    return made


def refuse_all(request: Any, error: ErrorCode, text: str | None = None) -> Struct:
    """The same error for each partition."""
    return joined(request, [refuse(Call(each), error, text) for each in split(request)])
