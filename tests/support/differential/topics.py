"""Cases about topics, partitions and the cluster."""

from __future__ import annotations

import uuid
from typing import Any

from appliance.wire.api import ApiKey
from appliance.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from appliance.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from appliance.wire.messages.api_versions import ApiVersionsRequest
from appliance.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from appliance.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from appliance.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from appliance.wire.messages.describe_cluster import DescribeClusterRequest
from appliance.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from appliance.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from appliance.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from appliance.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from appliance.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.differential.sides import Side, case

NO_TOPIC = uuid.UUID(int=0x1234_5678_9ABC_DEF0_1234_5678_9ABC_DEF1)


def topic(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def assigned(name: str, *replicas: list[int], first: int = 0, **fields: Any) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=fields.get("partitions", -1),
        replication_factor=fields.get("replicas", -1),
        assignments=[
            CreatableReplicaAssignment(partition_index=first + number, broker_ids=ids)
            for number, ids in enumerate(replicas)
        ],
    )


@case(ApiKey.API_VERSIONS)
def api_versions(side: Side) -> None:
    side.ask("whoever asks", ApiVersionsRequest(client_software_name="differential", client_software_version="1.0"))
    side.ask("a name that is none", ApiVersionsRequest(client_software_name="-", client_software_version="1.0"))
    side.ask("no version", ApiVersionsRequest(client_software_name="differential", client_software_version=""))


@case(ApiKey.CREATE_TOPICS)
def create_topics(side: Side) -> None:
    def ask(label: str, *topics: CreatableTopic, **fields: Any) -> None:
        side.ask(label, CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, **fields))

    if side.version >= 1:
        ask("only looked at", topic(side.named("t")), validate_only=True)
        ask("only looked at, wrong", topic(side.named("t"), replicas=3), validate_only=True)
    ask("made", topic(side.named("t"), partitions=2))
    ask("made again", topic(side.named("t")))
    ask("none")
    ask("named twice", topic(side.named("twice")), topic(side.named("twice")), topic(side.named("once")))
    ask("with configs", topic(side.named("c"), retention_ms="1000", cleanup_policy="compact"))
    ask("defaults", topic(side.named("d"), -1, -1))
    ask("assigned", assigned(side.named("a"), [1], [1]))
    ask("collides", topic(f"{side.named('x.y')}"), topic(f"{side.named('x_y')}"))
    ask("collides with one that is there", topic(side.named("x_y")))
    for label, name in {
        "empty": "",
        "dot": ".",
        "dots": "..",
        "slash": "a/b",
        "long": "x" * 250,
        "blank": "a b",
    }.items():
        ask(f"a name that is {label}", topic(name))
    ask("no partitions", topic(side.named("e"), 0))
    ask("minus two partitions", topic(side.named("e"), -2))
    ask("no replicas", topic(side.named("e"), 1, 0))
    ask("minus two replicas", topic(side.named("e"), 1, -2))
    ask("too many replicas", topic(side.named("e"), 1, 2))
    ask("a config that is none", topic(side.named("e"), unknown_key="1"))
    ask("a value that is none", topic(side.named("e"), retention_ms="long"))
    ask("a value out of range", topic(side.named("e"), segment_bytes="1"))
    ask("a null value", topic(side.named("e"), retention_ms=None))
    ask("two configs of one name", CreatableTopic(
        name=side.named("e"),
        num_partitions=1,
        replication_factor=1,
        configs=[CreatableTopicConfig(name="retention.ms", value=text) for text in ("1", "2")],
    ))  # fmt: skip
    ask("assigned and counted", assigned(side.named("f"), [1], partitions=1))
    ask("assigned and replicated", assigned(side.named("f"), [1], replicas=1))
    ask("assigned with a gap", assigned(side.named("f"), [1], first=1))
    ask("assigned to nobody", assigned(side.named("f"), []))
    ask("assigned twice to one", assigned(side.named("f"), [1, 1]))
    ask("assigned to a stranger", assigned(side.named("f"), [7]))
    ask("assigned to a negative one", assigned(side.named("f"), [-1]))
    ask("assigned unevenly", assigned(side.named("f"), [1], [1, 2]))
    ask("too many partitions", topic(side.named("g"), 10_001))
    ask("an internal one", topic("__consumer_offsets_like"))


@case(ApiKey.DELETE_TOPICS)
def delete_topics(side: Side) -> None:
    def ask(label: str, *names: str) -> None:
        if side.version >= 6:
            side.ask(label, DeleteTopicsRequest(topics=[DeleteTopicState(name=n) for n in names], timeout_ms=10_000))
        else:
            side.ask(label, DeleteTopicsRequest(topic_names=list(names), timeout_ms=10_000))

    made, other = side.new_topic("t"), side.new_topic("other")
    ask("none")
    ask("deleted", other.name)
    ask("missing", side.named("missing"))
    ask("deleted, and one that is missing", made.name, side.named("missing"))
    ask("deleted again", made.name)
    twice = side.new_topic("twice")
    ask("named twice", twice.name, twice.name)
    ask("a name that is none", "a/b")
    ask("an empty name", "")
    if side.version < 6:
        return
    by_id = side.new_topic("by-id")
    for label, state in {
        "by id": DeleteTopicState(topic_id=by_id.topic_id),
        "by an id that nobody has": DeleteTopicState(topic_id=NO_TOPIC),
        "by nothing": DeleteTopicState(),
        "by both": DeleteTopicState(name=twice.name, topic_id=twice.topic_id),
        "by a missing name and an id": DeleteTopicState(name="none", topic_id=NO_TOPIC),
    }.items():
        side.ask(label, DeleteTopicsRequest(topics=[state], timeout_ms=10_000))
    again = side.new_topic("again")
    states = [DeleteTopicState(name=again.name), DeleteTopicState(topic_id=again.topic_id)]
    side.ask("by name and by id", DeleteTopicsRequest(topics=states, timeout_ms=10_000))


@case(ApiKey.CREATE_PARTITIONS)
def create_partitions(side: Side) -> None:
    def ask(label: str, *topics: CreatePartitionsTopic, **fields: Any) -> None:
        side.ask(label, CreatePartitionsRequest(topics=list(topics), timeout_ms=10_000, **fields))

    def to(name: str, count: int, *replicas: list[int]) -> CreatePartitionsTopic:
        rows = [CreatePartitionsAssignment(broker_ids=ids) for ids in replicas] or None
        return CreatePartitionsTopic(name=name, count=count, assignments=rows)

    name = side.new_topic("t").name
    ask("none")
    ask("only looked at", to(name, 2), validate_only=True)
    ask("grown", to(name, 2))
    ask("grown with an assignment", to(name, 3, [1]))
    ask("as many as there are", to(name, 3))
    ask("fewer", to(name, 1))
    ask("zero", to(name, 0))
    ask("negative", to(name, -1))
    ask("missing", to(side.named("missing"), 3))
    ask("an assignment too many", to(name, 4, [1], [1]))
    ask("an assignment too few", to(name, 5, [1]))
    ask("to nobody", to(name, 4, []))
    ask("to a stranger", to(name, 4, [9]))
    ask("twice to one", to(name, 4, [1, 1]))
    ask("named twice", to(name, 4), to(name, 5))
    empty = CreatePartitionsTopic(name=name, count=4, assignments=[])
    ask("no assignments", empty)


@case(ApiKey.METADATA)
def metadata(side: Side) -> None:
    def ask(label: str, *names: str | None, **fields: Any) -> None:
        topics = [MetadataRequestTopic(name=name) for name in names]
        if side.version >= 4:
            fields.setdefault("allow_auto_topic_creation", False)
        side.ask(label, MetadataRequest(topics=topics, **fields))

    made = side.new_topic("t", partitions=3)
    ask("known", made.name)
    ask("known twice", made.name, made.name)
    ask("an illegal name", "a/b")
    ask("illegal names", "a/b", "", ".", "x" * 250)
    if side.version >= 1:
        ask("no topics")
    if side.version >= 4:
        ask("missing", side.named("missing"))
        ask("missing and known", side.named("missing"), made.name)
    if side.version >= 8:
        ask("operations", made.name, include_topic_authorized_operations=True)
    if 8 <= side.version <= 10:
        ask("operations of the cluster", made.name, include_cluster_authorized_operations=True)
    if side.version >= 10:
        for label, wanted in {
            "by id": MetadataRequestTopic(topic_id=made.topic_id, name=None),
            "by an id that nobody has": MetadataRequestTopic(topic_id=NO_TOPIC, name=None),
            "by id and name": MetadataRequestTopic(topic_id=made.topic_id, name=made.name),
            "by nothing": MetadataRequestTopic(name=None),
        }.items():
            side.ask(label, MetadataRequest(topics=[wanted], allow_auto_topic_creation=False))
    if side.version in (0, 4, 9, 13):
        # Made by asking; the first answer says that it is not there yet, or already.
        side.set_up(MetadataRequest(topics=[MetadataRequestTopic(name=side.named("new"))]), 12)
        side.wait_for_leaders(side.named("new"), 1)
        ask("made by asking", side.named("new"))
        ask("an internal one that is not made by asking", "__transaction_state_", allow_auto_topic_creation=False) if (
            side.version >= 4
        ) else None


@case(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def describe_topic_partitions(side: Side) -> None:
    def ask(label: str, *names: str, **fields: Any) -> Any:
        return side.ask(label, DescribeTopicPartitionsRequest(topics=[TopicRequest(name=n) for n in names], **fields))

    one, two = side.new_topic("one", partitions=3), side.new_topic("two", partitions=3)
    ask("known", one.name)
    ask("two of them", two.name, one.name)
    ask("missing", side.named("missing"))
    ask("missing and known", side.named("missing"), one.name)
    ask("an illegal name", "a/b", one.name)
    ask("an empty name", "")
    ask("first page", one.name, two.name, response_partition_limit=2)
    ask("page that ends with a topic", one.name, two.name, response_partition_limit=3)
    ask("page over two topics", one.name, two.name, response_partition_limit=4)
    cursor = Cursor(topic_name=one.name, partition_index=2)
    ask("second page", one.name, two.name, response_partition_limit=2, cursor=cursor)
    ask("last page", one.name, two.name, cursor=Cursor(topic_name=two.name, partition_index=1))
    ask("cursor behind the topic", one.name, cursor=Cursor(topic_name=one.name, partition_index=3))
    ask("cursor behind all", one.name, cursor=Cursor(topic_name="zzz", partition_index=0))
    ask("cursor at a missing topic", one.name, cursor=Cursor(topic_name=side.named("missing"), partition_index=0))
    ask("negative cursor", one.name, cursor=Cursor(topic_name=one.name, partition_index=-1))
    ask("no limit", one.name, response_partition_limit=0)
    ask("negative limit", one.name, response_partition_limit=-1)
    ask("twice", one.name, one.name)


@case(ApiKey.DESCRIBE_CLUSTER)
def describe_cluster(side: Side) -> None:
    side.ask("brokers", DescribeClusterRequest())
    side.ask("operations", DescribeClusterRequest(include_cluster_authorized_operations=True))
    if side.version >= 1:
        side.ask("controllers, asked of a broker", DescribeClusterRequest(endpoint_type=2))
        side.ask("an endpoint type that is none", DescribeClusterRequest(endpoint_type=7))
    if side.version >= 2:
        side.ask("with fenced brokers", DescribeClusterRequest(include_fenced_brokers=True))


@case(ApiKey.DESCRIBE_LOG_DIRS)
def describe_log_dirs(side: Side) -> None:
    def ask(label: str, name: str, *partitions: int) -> None:
        side.ask(label, DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=name, partitions=[*partitions])]))

    made = side.new_topic("t", partitions=2)
    ask("both", made.name, 0, 1)
    ask("one", made.name, 1)
    ask("a partition that is missing", made.name, 7)
    ask("a topic that is missing", side.named("missing"), 0)
    side.ask("no topics", DescribeLogDirsRequest(topics=[]))


@case(ApiKey.ALTER_REPLICA_LOG_DIRS)
def alter_replica_log_dirs(side: Side) -> None:
    (directory,) = side.connection.call(DescribeLogDirsRequest(topics=[])).results

    def ask(label: str, path: str, name: str, *partitions: int) -> None:
        wanted = [AlterReplicaLogDirTopic(name=name, partitions=[*partitions])]
        side.ask(label, AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=wanted)]))

    made = side.new_topic("t", partitions=2)
    ask("where it is", directory.log_dir, made.name, 0, 1)
    ask("a directory that is missing", "/nowhere", made.name, 0)
    ask("not a whole path", "nowhere", made.name, 0)
    ask("a partition that is missing", directory.log_dir, made.name, 0, 7)
    ask("a topic that is missing", directory.log_dir, side.named("missing"), 0)
    ask("both are missing", "/nowhere", side.named("missing"), 0)
    ask("a name that leaves no room", directory.log_dir, "x" * 230, 0)
    side.ask("none", AlterReplicaLogDirsRequest(dirs=[]))


@case(ApiKey.ELECT_LEADERS)
def elect_leaders(side: Side) -> None:
    def ask(label: str, name: str, *partitions: int, **fields: Any) -> None:
        wanted = [TopicPartitions(topic=name, partitions=[*partitions])]
        side.ask(label, ElectLeadersRequest(topic_partitions=wanted, timeout_ms=10_000, **fields))

    made = side.new_topic("t", partitions=2)
    ask("no election needed", made.name, 0)
    ask("a partition that is missing", made.name, 0, 7)
    ask("a topic that is missing", side.named("missing"), 0)
    side.ask("none", ElectLeadersRequest(topic_partitions=[], timeout_ms=10_000))
    side.ask("all", ElectLeadersRequest(topic_partitions=None, timeout_ms=10_000))
    if side.version >= 1:
        ask("unclean, not needed", made.name, 0, election_type=1)
        ask("an election type that is none", made.name, 0, election_type=5)


@case(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
def alter_partition_reassignments(side: Side) -> None:
    def ask(label: str, name: str, partition: int, replicas: list[int] | None, **fields: Any) -> None:
        wanted = [ReassignablePartition(partition_index=partition, replicas=replicas)]
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name, partitions=wanted)], timeout_ms=10_000, **fields
        )
        side.ask(label, request)

    made = side.new_topic("t")
    ask("where it is", made.name, 0, [1])
    ask("cancelled, with nothing under way", made.name, 0, None)
    ask("to nobody", made.name, 0, [])
    ask("to a stranger", made.name, 0, [9])
    ask("twice to one", made.name, 0, [1, 1])
    ask("to a negative one", made.name, 0, [-1])
    ask("a partition that is missing", made.name, 5, [1])
    ask("a topic that is missing", side.named("missing"), 0, [1])
    if side.version >= 1:
        ask("another number of replicas", made.name, 0, [1, 9], allow_replication_factor_change=False)


@case(ApiKey.LIST_PARTITION_REASSIGNMENTS)
def list_partition_reassignments(side: Side) -> None:
    made = side.new_topic("t")
    for label, name, partition in (
        ("nothing under way", made.name, 0),
        ("a partition that is missing", made.name, 5),
        ("a topic that is missing", side.named("missing"), 0),
    ):
        wanted = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[partition])]
        side.ask(label, ListPartitionReassignmentsRequest(topics=wanted))
    side.ask("all", ListPartitionReassignmentsRequest(topics=None))
    side.ask("none", ListPartitionReassignmentsRequest(topics=[]))
