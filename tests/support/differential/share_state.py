"""Cases about the state of share groups (KIP-932), which brokers keep with each other's share coordinators."""

from __future__ import annotations

import uuid
from typing import Any

from appliance.base.ids import uuid_to_text
from appliance.wire.api import ApiKey
from appliance.wire.messages import delete_share_group_state as deletion
from appliance.wire.messages import initialize_share_group_state as beginning
from appliance.wire.messages import read_share_group_state as reading
from appliance.wire.messages import read_share_group_state_summary as summing
from appliance.wire.messages import write_share_group_state as writing
from tests.support.differential.sides import Side, case
from tests.support.differential.topics import NO_TOPIC

SHARE = 2
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


class State:
    """A partition of a group of one's own, and requests about it."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.group = side.named("g")
        self.topic_id = side.new_topic(partitions=2).topic_id
        for topic_id, partition in ((self.topic_id, 0), (self.topic_id, 1), (self.topic_id, 7), (NO_TOPIC, 0)):
            side.find_coordinator(f"{self.group}:{uuid_to_text(topic_id)}:{partition}", SHARE)

    def request(self, module: Any, request: Any, topic: Any, **values: Any) -> Any:
        group, topic_id = values.pop("group", self.group), values.pop("topic_id", self.topic_id)
        row = module.PartitionData(partition=values.pop("partition", 0), **values)
        return request(group_id=group, topics=[topic(topic_id=topic_id, partitions=[row])])

    def begin(self, state_epoch: int = 1, start_offset: int = 0, **values: Any) -> Any:
        given = {"state_epoch": state_epoch, "start_offset": start_offset, **values}
        return self.request(
            beginning, beginning.InitializeShareGroupStateRequest, beginning.InitializeStateData, **given
        )

    def read(self, leader_epoch: int = 0, **values: Any) -> Any:
        given = {"leader_epoch": leader_epoch, **values}
        return self.request(reading, reading.ReadShareGroupStateRequest, reading.ReadStateData, **given)

    def write(self, *batches: tuple[int, int, int, int], **values: Any) -> Any:
        rows = [
            writing.StateBatch(first_offset=low, last_offset=high, delivery_state=state, delivery_count=count)
            for low, high, state, count in batches
        ]
        given = {"state_epoch": 1, "leader_epoch": 0, "start_offset": 0, "state_batches": rows, **values}
        return self.request(writing, writing.WriteShareGroupStateRequest, writing.WriteStateData, **given)

    def delete(self, **values: Any) -> Any:
        return self.request(deletion, deletion.DeleteShareGroupStateRequest, deletion.DeleteStateData, **values)

    def summary(self, leader_epoch: int = 0, **values: Any) -> Any:
        given = {"leader_epoch": leader_epoch, **values}
        return self.request(summing, summing.ReadShareGroupStateSummaryRequest, summing.ReadStateSummaryData, **given)

    def wrong(self, make: Any) -> None:
        """What is wrong with any of these requests."""
        self.side.ask("a partition that is missing", make(partition=7))
        self.side.ask("a topic that is missing", make(topic_id=NO_TOPIC))
        self.side.ask("no topic", make(topic_id=uuid.UUID(int=0)))
        self.side.ask("no group", make(group=""))
        self.side.ask("a negative partition", make(partition=-1))
        whole = make()
        whole.topics = []
        self.side.ask("nothing", whole)


@case(ApiKey.INITIALIZE_SHARE_GROUP_STATE, is_for_compat=True)
def initialize_share_group_state(side: Side) -> None:
    state = State(side)
    side.ask("begins", state.begin(3, 5))
    side.ask("what there is", state.read(), 0)
    side.ask("begins again", state.begin(3, 6))
    side.ask("in a later epoch", state.begin(4, 7))
    side.ask("in an earlier one", state.begin(2, 8))
    side.ask("what there is then", state.summary(), 1)
    side.ask("nowhere yet", state.begin(1, -1, partition=1))
    side.ask("the other one", state.summary(partition=1), 1)
    state.wrong(state.begin)


@case(ApiKey.READ_SHARE_GROUP_STATE, is_for_compat=True)
def read_share_group_state(side: Side) -> None:
    state = State(side)
    side.ask("what has not begun", state.read())
    side.set_up(state.begin(1, 3))
    side.ask("new", state.read())
    side.set_up(state.write((3, 5, ACKNOWLEDGED, 1), (6, 7, AVAILABLE, 2)))
    side.ask("written", state.read())
    side.ask("by a later leader", state.read(4))
    side.ask("by an earlier one", state.read(2))
    side.ask("by the later one again", state.read(4))
    state.wrong(state.read)


@case(ApiKey.WRITE_SHARE_GROUP_STATE, is_for_compat=True)
def write_share_group_state(side: Side) -> None:
    state = State(side)
    side.ask("what has not begun", state.write((0, 1, ACKNOWLEDGED, 1)))
    side.set_up(state.begin(1, 0))
    side.ask("written", state.write((0, 4, ACKNOWLEDGED, 1), (5, 9, AVAILABLE, 1)))
    side.ask("laid over it", state.write((3, 6, ARCHIVED, 3), (20, 29, AVAILABLE, 1)))
    side.ask("what there is", state.read(), 0)
    side.ask("a later start", state.write((7, 7, ACKNOWLEDGED, 2), start_offset=5, delivery_complete_count=2))
    side.ask("what there is then", state.read(), 0)
    side.ask("in short", state.summary(), 1)
    side.ask("by a later leader", state.write((8, 8, ACKNOWLEDGED, 2), leader_epoch=3, start_offset=-1))
    side.set_up(state.read(3))
    side.ask("by an earlier one", state.write((9, 9, ACKNOWLEDGED, 2), leader_epoch=1))
    side.ask("of an earlier state", state.write((9, 9, ACKNOWLEDGED, 2), leader_epoch=3, state_epoch=0))
    side.ask("nothing new", state.write(leader_epoch=3, start_offset=-1))
    side.ask("what there is at last", state.read(3), 0)
    state.wrong(state.write)


@case(ApiKey.DELETE_SHARE_GROUP_STATE, is_for_compat=True)
def delete_share_group_state(side: Side) -> None:
    state = State(side)
    side.ask("what has not begun", state.delete())
    side.set_up(state.begin(1, 0))
    side.ask("deleted", state.delete())
    side.ask("is gone", state.read(), 0)
    side.ask("deleted again", state.delete())
    state.wrong(state.delete)


@case(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, is_for_compat=True)
def read_share_group_state_summary(side: Side) -> None:
    state = State(side)
    side.ask("what has not begun", state.summary())
    side.set_up(state.begin(2, 3))
    side.ask("new", state.summary())
    side.set_up(state.write((3, 5, ACKNOWLEDGED, 1), state_epoch=2, start_offset=-1, delivery_complete_count=3))
    side.ask("written", state.summary())
    side.ask("by a later leader", state.summary(4))
    side.ask("by an earlier one", state.summary(-1))
    state.wrong(state.summary)
