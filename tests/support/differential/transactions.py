"""Cases about transactions."""

from __future__ import annotations

import time
from typing import Any

from appliance.wire.api import ApiKey
from appliance.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from appliance.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from appliance.wire.messages.describe_transactions import DescribeTransactionsRequest
from appliance.wire.messages.end_txn import EndTxnRequest
from appliance.wire.messages.init_producer_id import InitProducerIdRequest
from appliance.wire.messages.list_transactions import ListTransactionsRequest
from appliance.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from appliance.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from appliance.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.differential.groups import Joined
from tests.support.differential.sides import PATIENCE_S, CreatedTopic, Side, case

TRANSACTION = 1


class Begun:
    """A producer with a transactional id."""

    def __init__(self, side: Side, what: str = "id") -> None:
        self.name = side.named(what)
        side.find_coordinator(self.name, TRANSACTION)
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        answer = side.set_up(request, 4)
        assert answer.error_code == 0, (side.name, answer)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    @property
    def ids(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    def add(self, side: Side, topic: CreatedTopic) -> None:
        answer = side.set_up(self.request([(topic.name, 0)]), 3)
        (row,) = answer.results_by_topic_v3_and_below[0].results_by_partition
        assert row.partition_error_code == 0, (side.name, answer)

    def wait_for_markers(self, side: Side) -> None:
        """Until what was decided stands in all partitions."""
        deadline = time.monotonic() + PATIENCE_S
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        while time.monotonic() < deadline:
            (state,) = side.set_up(request).transaction_states
            if not state.transaction_state.startswith("Prepare"):
                return
            time.sleep(0.02)

    def request(self, partitions: list[tuple[str, int]], **ids: Any) -> AddPartitionsToTxnRequest:
        given = {**self.ids, **ids}
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=given["transactional_id"],
            v3_and_below_producer_id=given["producer_id"],
            v3_and_below_producer_epoch=given["producer_epoch"],
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=[number]) for name, number in partitions
            ],
        )


@case(ApiKey.ADD_PARTITIONS_TO_TXN, versions=range(4))
def add_partitions_to_txn(side: Side) -> None:
    topic, begun = side.new_topic("t", partitions=2), Begun(side)

    def ask(label: str, *partitions: tuple[str, int], **ids: Any) -> None:
        side.ask(label, begun.request(list(partitions), **ids))

    ask("added", (topic.name, 0))
    ask("added again", (topic.name, 0))
    ask("another one", (topic.name, 1))
    ask("a topic that is missing", (side.named("missing"), 0))
    ask("good and bad", (topic.name, 0), (side.named("missing"), 0))
    ask("a partition that is missing", (topic.name, 7))
    ask("nothing")
    ask("an old epoch", (topic.name, 0), producer_epoch=begun.epoch - 1)
    ask("an epoch to come", (topic.name, 0), producer_epoch=begun.epoch + 1)
    ask("a foreign producer", (topic.name, 0), producer_id=begun.producer_id + 77)
    ask("an unknown id", (topic.name, 0), transactional_id=side.named("unknown"))
    ask("an empty id", (topic.name, 0), transactional_id="")


@case(ApiKey.ADD_PARTITIONS_TO_TXN, versions=range(4, 6), is_for_compat=True)
def add_partitions_to_txns_of_many(side: Side) -> None:
    """As brokers ask: of several transactions, to add partitions or only to see that they are in."""
    topic, begun, other = side.new_topic("t", partitions=3), Begun(side), Begun(side, "other")
    begun.add(side, topic)

    def wanted(of: Begun, *partitions: int, name: str = topic.name, only: bool = True, **ids: Any) -> Any:
        return AddPartitionsToTxnTransaction(
            verify_only=only, topics=[AddPartitionsToTxnTopic(name=name, partitions=[*partitions])], **{**of.ids, **ids}
        )

    def ask(label: str, *transactions: Any) -> None:
        side.ask(label, AddPartitionsToTxnRequest(transactions=list(transactions)))

    ask("is in", wanted(begun, 0))
    ask("is not in", wanted(begun, 1))
    ask("one is in, one is not", wanted(begun, 0, 1))
    ask("nothing is in", wanted(other, 0))
    ask("added", wanted(begun, 2, only=False))
    ask("is in by now", wanted(begun, 2))
    ask("two transactions", wanted(begun, 0), wanted(other, 0))
    ask("an old epoch", wanted(begun, 0, producer_epoch=begun.epoch - 1))
    ask("a foreign producer", wanted(begun, 0, producer_id=begun.producer_id + 77))
    ask("an unknown id", wanted(begun, 0, transactional_id=side.named("unknown")))
    ask("an empty id", wanted(begun, 0, transactional_id=""))
    ask("a topic that is missing", wanted(begun, 0, name=side.named("missing"), only=False))
    ask("a partition that is missing", wanted(begun, 9, only=False))


@case(ApiKey.WRITE_TXN_MARKERS, is_for_compat=True)
def write_txn_markers(side: Side) -> None:
    """As coordinators ask."""
    topic = side.new_topic("t", partitions=2)

    def marker(partition: int = 0, name: str = topic.name, **fields: Any) -> WritableTxnMarker:
        rows = [WritableTxnMarkerTopic(name=name, partition_indexes=[partition])]
        given = {"producer_id": 9_000_001, "producer_epoch": 5, "transaction_result": True, "coordinator_epoch": 3}
        return WritableTxnMarker(topics=rows, **{**given, **fields})

    def ask(label: str, *markers: WritableTxnMarker) -> None:
        side.ask(label, WriteTxnMarkersRequest(markers=list(markers)))

    ask("of a producer that nobody knew", marker())
    ask("again", marker())
    ask("an abort", marker(transaction_result=False))
    ask("an older epoch", marker(producer_epoch=4))
    ask("a newer epoch", marker(producer_epoch=6))
    ask("an older coordinator", marker(producer_epoch=6, coordinator_epoch=2))
    ask("a newer coordinator", marker(producer_epoch=6, coordinator_epoch=4))
    ask("a partition that is missing", marker(7))
    ask("a topic that is missing", marker(name=side.named("missing")))
    ask("two producers", marker(1), marker(1, producer_id=9_000_002))
    ask("nothing")


@case(ApiKey.ADD_OFFSETS_TO_TXN)
def add_offsets_to_txn(side: Side) -> None:
    begun = Begun(side)
    side.find_coordinator(side.named("g"))

    def ask(label: str, group_id: str, **ids: Any) -> None:
        side.ask(label, AddOffsetsToTxnRequest(group_id=group_id, **{**begun.ids, **ids}))

    ask("added", side.named("g"))
    ask("added again", side.named("g"))
    ask("no group", "")
    ask("an old epoch", side.named("g"), producer_epoch=begun.epoch - 1)
    ask("a foreign producer", side.named("g"), producer_id=begun.producer_id + 77)
    ask("an unknown id", side.named("g"), transactional_id=side.named("unknown"))


@case(ApiKey.END_TXN, versions=range(5))
def end_txn(side: Side) -> None:
    topic, begun = side.new_topic("t"), Begun(side)

    def ask(label: str, *, committed: bool = True, **ids: Any) -> None:
        side.ask(label, EndTxnRequest(committed=committed, **{**begun.ids, **ids}))

    ask("nothing to end")
    begun.add(side, topic)
    ask("an old epoch", producer_epoch=begun.epoch - 1)
    ask("an epoch to come", producer_epoch=begun.epoch + 1)
    ask("a foreign producer", producer_id=begun.producer_id + 77)
    ask("committed")
    ask("committed again")
    ask("aborted after it was committed", committed=False)
    begun.add(side, topic)
    ask("aborted", committed=False)
    ask("aborted again", committed=False)
    ask("committed after it was aborted")
    ask("an unknown id", transactional_id=side.named("unknown"))
    ask("an empty id", transactional_id="")


@case(ApiKey.END_TXN, versions=range(5, 6))
def end_txn_of_the_second_kind(side: Side) -> None:
    topic, begun = side.new_topic("t"), Begun(side)

    def end(label: str, *, committed: bool = True, **ids: Any) -> None:
        answer = side.ask(label, EndTxnRequest(committed=committed, **{**begun.ids, **ids}))
        if answer.error_code == 0 and answer.producer_epoch >= 0:
            begun.producer_id, begun.epoch = answer.producer_id, answer.producer_epoch
        begun.wait_for_markers(side)

    begun.add(side, topic)
    before = begun.epoch
    end("committed")
    end("committed again with the epoch before", producer_epoch=before)
    begun.add(side, topic)
    end("aborted", committed=False)
    end("an epoch of long ago", producer_epoch=before)
    end("nothing to abort", committed=False)
    end("nothing to commit")


@case(ApiKey.TXN_OFFSET_COMMIT)
def txn_offset_commit(side: Side) -> None:
    topic, begun, group = side.new_topic("t"), Begun(side), side.named("g")
    side.find_coordinator(group)
    side.set_up(AddOffsetsToTxnRequest(group_id=group, **begun.ids), 3)

    def ask(label: str, name: str = topic.name, partition: int = 0, metadata: str = "m", **fields: Any) -> None:
        row = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=5, committed_metadata=metadata
        )
        given = {"group_id": group, **begun.ids, **fields}
        side.ask(label, TxnOffsetCommitRequest(
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=[row])], **given
        ))  # fmt: skip

    def fetch(label: str, *, stable: bool) -> None:
        rows = [OffsetFetchRequestTopics(name=topic.name, partition_indexes=[0])]
        wanted = OffsetFetchRequestGroup(group_id=group, topics=rows)
        side.ask(label, OffsetFetchRequest(groups=[wanted], require_stable=stable), 9)

    ask("committed")
    fetch("while it is open", stable=False)
    fetch("while it is open, stable only", stable=True)
    ask("a partition that is missing", partition=9)
    ask("a topic that is missing", name=side.named("missing"))
    ask("too long metadata", metadata="x" * 5_000)
    ask("an empty group", group_id="")
    if side.version >= 3:
        ask("an unknown member", member_id="nobody", generation_id=1)
        member = Joined(side, side.named("live"), group_instance_id="i1")
        side.set_up(AddOffsetsToTxnRequest(group_id=member.group, **begun.ids), 3)
        ids = {"group_id": member.group, "member_id": member.member, "generation_id": member.generation}
        ask("a member", **ids)
        ask("an old generation", **{**ids, "generation_id": member.generation - 1})
        ask("a stranger among members", **{**ids, "member_id": "nobody"})
        ask("an unknown instance", group_instance_id="i2", **ids)
        ask("another member's instance", group_instance_id="i1", **{**ids, "member_id": "nobody"})
    side.set_up(EndTxnRequest(committed=True, **begun.ids), 3)
    rows = [OffsetFetchRequestTopics(name=topic.name, partition_indexes=[0])]
    wanted = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=rows)], require_stable=True)
    deadline = time.monotonic() + PATIENCE_S
    while side.set_up(wanted, 9).groups[0].topics[0].partitions[0].error_code and time.monotonic() < deadline:
        time.sleep(0.02)
    fetch("after it was committed", stable=True)


@case(ApiKey.DESCRIBE_TRANSACTIONS)
def describe_transactions(side: Side) -> None:
    topic, begun, idle = side.new_topic("t"), Begun(side, "open"), Begun(side, "idle")
    begun.add(side, topic)
    for label, names in {
        "an open one": [begun.name],
        "one that is idle": [idle.name],
        "both": [idle.name, begun.name],
        "an unknown one": [side.named("unknown")],
        "an empty id": [""],
        "none": [],
    }.items():
        side.ask(label, DescribeTransactionsRequest(transactional_ids=names))


@case(ApiKey.LIST_TRANSACTIONS)
def list_transactions(side: Side) -> None:
    topic, begun, idle = side.new_topic("t"), Begun(side, "open"), Begun(side, "idle")
    begun.add(side, topic)

    def ask(label: str, **fields: Any) -> None:
        answer = side.set_up(ListTransactionsRequest(**fields), side.version)
        mine = [row for row in answer.transaction_states if row.transactional_id.startswith(side.prefix + "-")]
        answer.transaction_states = mine
        side.remember(label, answer, side.version)

    ask("all")
    ask("open ones", state_filters=["Ongoing"])
    ask("idle ones", state_filters=["Empty"])
    ask("a state that is none", state_filters=["Nonsense"])
    ask("a state and one that is none", state_filters=["Ongoing", "Nonsense"])
    ask("by producer", producer_id_filters=[idle.producer_id])
    ask("by a producer that nobody is", producer_id_filters=[2**40])
    if side.version >= 1:
        ask("that run for an hour", duration_filter=3_600_000)
        ask("that run at all", duration_filter=0)
    if side.version >= 2:
        ask("by a pattern", transactional_id_pattern=".*-open")
        ask("by a pattern that is none", transactional_id_pattern="(")
        ask("by another that is none", transactional_id_pattern="[")
        ask("by an empty pattern", transactional_id_pattern="")
