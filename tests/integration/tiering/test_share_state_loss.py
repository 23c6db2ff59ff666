"""All disks are lost: members of a share group go on where they were, as the backup of its state has it."""

from __future__ import annotations

from pathlib import Path

from appliance.base.errors import ErrorCode
from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.client.connection import Connection
from appliance.coordinator.backup import parse_backup
from appliance.coordinator.loader import load, replaying
from appliance.share_groups.share_partition import ACCEPT, RELEASE
from appliance.share_groups.state_records import decode_record
from appliance.share_groups.state_stored import StoredStates
from tests.support.broker import RunningCluster
from tests.support.requests import batch_of, new_topic, produce
from tests.support.share_member import ShareMember, configure_group, until
from tests.support.total_loss import cluster_over, lose_disks, tier

GROUP = "share"
LATEST_TIERED = -5
PROPERTIES = {
    "share.coordinator.state.topic.num.partitions": "2",
    "group.share.assignment.interval.ms": "0",
    "restore.offset.gap": "1000",
}
CONFIGS = {"segment.bytes": "1048576", "retention.ms": "-1", "segment.ms": "200"}


def start_offsets(store: Path) -> list[int]:
    """Of all partitions of share groups that are in the backups."""
    stored = StoredStates()
    for path in store.glob("groups/*/*"):
        head, batches = parse_backup(path.read_bytes())
        if head.topic == "__share_group_state":
            load(batches, replaying(decode_record, stored))
    return [state.start_offset for state in stored.states.values()]


def member_of(cluster: RunningCluster, topic: str) -> ShareMember:
    member = ShareMember(("127.0.0.1", cluster.brokers[1].port), GROUP, topic)
    until(lambda: member.join() is None)
    return member


def test_what_is_done_with_stays_done_and_what_was_in_hand_comes_again(tmp_path: Path) -> None:
    store = tmp_path / "bucket"
    with cluster_over(tmp_path / "first", store, 1, PROPERTIES) as cluster:
        with Connection("127.0.0.1", cluster.brokers[1].port) as connection:
            topic = new_topic(connection, configs=CONFIGS)
            assert produce(connection, topic, batch_of(*(b"%d" % number for number in range(10)))).error_code == 0
            configure_group(connection, GROUP, auto_offset_reset="earliest")
        member = member_of(cluster, topic.name)
        assert len(member.take()) == 10
        assert member.say({(0, 4): ACCEPT, (5, 5): RELEASE, (7, 7): ACCEPT}) is ErrorCode.NONE
        with (
            Connection("127.0.0.1", cluster.brokers[1].port) as connection,
            Client(cluster.bootstrap_servers) as client,
        ):
            place = TopicPartition(topic.name, 0)

            def is_uploaded() -> bool:
                """A segment goes when the next one has begun."""
                produce(connection, topic, batch_of(b"x"))
                return client.list_offsets({place: LATEST_TIERED})[place].offset >= 10

            until(is_uploaded)
        until(lambda: start_offsets(store) == [5])
        member.close()
    lose_disks(tmp_path / "first")
    with cluster_over(tmp_path / "second", store, 1, PROPERTIES) as cluster:
        code, rows = tier("restore", store.as_uri(), "--bootstrap-server", cluster.bootstrap_servers)
        assert code == 0, rows
        assert {row["source"] for row in rows if row["topic"] == "__share_group_state"} == {"backup of groups"}
        member = member_of(cluster, topic.name)
        taken = member.take(max_wait_ms=10_000)
        assert sorted(taken)[:4] == [5, 6, 8, 9]
        member.close()
