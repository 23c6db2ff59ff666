"""What is meant to differ from Apache Kafka in answers to the same requests; docs/differences.md has each line too."""

from __future__ import annotations

from tests.support.differential.sides import Meant

MEANT: list[Meant] = [
    Meant(
        r"CREATE_ACLS any (type|operation|permission|pattern) .*|CREATE_ACLS a pattern by match .*",
        "An access control entry about any type, operation, permission or pattern is INVALID_REQUEST, not "
        "UNKNOWN_SERVER_ERROR.",
    ),
    Meant(
        r"(DESCRIBE|DELETE)_ACLS (a type|an operation) that is none .*",
        "DescribeAcls and DeleteAcls of an unknown type, operation or permission are INVALID_REQUEST; Kafka hangs up.",
    ),
    Meant(
        r"\S+ .* (topics|results)\S*configs\[tiering\.max\.lag\.ms\]",
        "`tiering.max.lag.ms` is a config of ours.",
    ),
    Meant(
        r"\S+ .* (topics|results)\S*configs\[lake\.[a-z.]+\]",
        "Configs that begin with `lake.` are ours.",
    ),
    Meant(
        r"\S+ .* (topics|results)\S*configs\[remote\.storage\.enable\]\S*",
        "`remote.storage.enable` is on by default.",
    ),
    Meant(
        r"\S+ .* (topics|results)\S*configs\[min\.insync\.replicas\]\S*",
        "A new cluster of Kafka sets `min.insync.replicas` for all brokers; here it has its default.",
    ),
    Meant(
        r"(METADATA|DESCRIBE_CLUSTER) .* brokers\[0\]\.rack",
        "The rack of a broker without `broker.rack` is its node.",
    ),
    Meant(
        r"LIST_OFFSETS .*, -6 \S*(offset|leader_epoch)",
        "Topics are tiered by default, so the first offset that is not uploaded is known.",
    ),
    Meant(
        r"INCREMENTAL_ALTER_CONFIGS an operation that is none .*",
        "A config operation that does not exist is INVALID_REQUEST, not UNKNOWN_SERVER_ERROR.",
    ),
    Meant(
        r"INCREMENTAL_ALTER_CONFIGS a broker's key that is none .*",
        "A config of a broker that does not exist is INVALID_CONFIG; Kafka stores it.",
    ),
    Meant(
        r"(METADATA by nothing|DESCRIBE_TOPIC_PARTITIONS an empty name) .*",
        "A topic without name and id is refused by itself; Kafka answers UNKNOWN_SERVER_ERROR to the whole request.",
    ),
    Meant(
        r"ELECT_LEADERS all .*",
        "ElectLeaders for all partitions names only topics with a result; Kafka names every topic.",
    ),
    Meant(
        r"ELECT_LEADERS an election type that is none replica_election_results.*",
        "An election type that does not exist is one error for all; Kafka repeats it for each partition.",
    ),
    Meant(
        r"PRODUCE no partitions .*",
        "A topic without partitions in a produce request is in the answer, too; Kafka leaves it out.",
    ),
    Meant(
        r"PRODUCE .* \S*log_append_time_ms",
        "The answer to a batch that was there already tells no append time; Kafka tells the time of its last record.",
    ),
    Meant(
        r"PRODUCE .* \S*log_start_offset",
        "The answer to a batch that is refused tells no log start; Kafka tells it for some errors.",
    ),
    Meant(
        r"FIND_COORDINATOR (a group's|an empty group's|a transaction's|an empty transaction's) error_message",
        "FindCoordinator before version 4 says no text where there is no error; Kafka says `NONE`.",
    ),
    Meant(
        r"OFFSET_DELETE (again|nothing) .*",
        "A group without members is gone with its last offset; Kafka's goes with the next look.",
    ),
    Meant(
        r"DESCRIBE_PRODUCERS .* \S*last_timestamp",
        "A producer's last timestamp is the time of its last append.",
    ),
    Meant(
        r"DESCRIBE_QUORUM the quorum (topics|nodes).*",
        "The active controller is the one voter of the metadata, brokers are observers; times of fetches are not kept.",
    ),
    Meant(
        r"UPDATE_FEATURES .* results\[0\]\.error_message",
        "UpdateFeatures says no text where there is no error; Kafka says `NONE`.",
    ),
    Meant(
        r"METADATA another request before .*|SASL_HANDSHAKE once more .*",
        "A request out of turn ends a connection whose client is not known yet; Kafka answers it with an error first.",
    ),
    Meant(
        r"DESCRIBE_SHARE_GROUP_OFFSETS (handed out|some|all|good and bad) \S*(start_offset|lag)",
        "A share group's start is written down with the first read, and moves with the write that ends what lies "
        "before it; Kafka's is a write late.",
    ),
    Meant(
        r"DESCRIBE_SHARE_GROUP_OFFSETS after that \S*lag",
        "A share group's lag is never below 0; Kafka's is where the start lies behind the end.",
    ),
    Meant(
        r"DESCRIBE_SHARE_GROUP_OFFSETS no group .*",
        "DescribeShareGroupOffsets without a group id is INVALID_GROUP_ID, not UNKNOWN_SERVER_ERROR.",
    ),
    Meant(
        r"SHARE_FETCH (of )?a topic that is missing .*",
        "A topic id that nobody has is UNKNOWN_TOPIC_ID by itself in ShareFetch, and where there is an authorizer in "
        "ShareAcknowledge; Kafka answers UNKNOWN_SERVER_ERROR to the whole request.",
    ),
    Meant(
        r"SHARE_(FETCH|ACKNOWLEDGE) no group .*",
        "ShareFetch and ShareAcknowledge without a group id are INVALID_REQUEST; Kafka takes an empty one for a group.",
    ),
    Meant(
        r"SHARE_FETCH a mode that is none .*",
        "An acquire mode that does not exist is INVALID_REQUEST, not UNKNOWN_SERVER_ERROR.",
    ),
    Meant(
        r"SHARE_ACKNOWLEDGE a partition of which it has none .*",
        "What is said of records that nobody has had is INVALID_RECORD_STATE, also where none of the partition were "
        "handed out; Kafka then answers UNKNOWN_TOPIC_OR_PARTITION.",
    ),
    Meant(
        r"\S+_SHARE_GROUP_STATE\S* no group .*",
        "The state of a share group without an id is INVALID_REQUEST for each partition; Kafka leaves them out.",
    ),
    Meant(
        r"DELETE_SHARE_GROUP_STATE (a partition that is missing|a topic that is missing|no topic) .*",
        "The state of a share group's partition may be deleted when its topic is gone; Kafka answers "
        "UNKNOWN_TOPIC_OR_PARTITION.",
    ),
    Meant(
        r"API_VERSIONS .* api_keys\[\d+\]\S*",
        "Not all APIs are served, and some in older versions, too.",
    ),
]
