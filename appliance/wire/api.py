"""All APIs that are declared: key, name, request, response and versions.

What a server offers to its clients is the server's own table; this is what can be written and read.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from enum import IntEnum

from appliance.base.errors import invariant
from appliance.wire import messages
from appliance.wire.schema import Struct


class ApiKey(IntEnum):
    """The keys of Apache Kafka 4.3's APIs that are declared here. Keys of our own begin at 20000."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


@dataclass(frozen=True, slots=True)
class Api:
    """One API: `max_version` is the newest declared, `max_stable_version` the newest that Kafka offers to clients."""

    key: int
    name: str
    request: type[Struct]
    response: type[Struct]
    min_version: int
    max_version: int
    max_stable_version: int
    flexible_from: int | None


def _declared() -> dict[int, Api]:
    """Every module of `messages` is looked through, so that a new API needs no entry anywhere else."""
    requests: dict[int, type[Struct]] = {}
    responses: dict[int, type[Struct]] = {}
    for module_info in pkgutil.iter_modules(messages.__path__):
        module = importlib.import_module(f"{messages.__name__}.{module_info.name}")
        for declared in vars(module).values():
            if isinstance(declared, type) and issubclass(declared, Struct) and declared.__wire__.api_key is not None:
                target = requests if declared.__name__.endswith("Request") else responses
                known = target.setdefault(declared.__wire__.api_key, declared)
                invariant(known is declared, f"{known.__name__} and {declared.__name__} have the same API key")
    return {key: _api(key, requests[key], responses[key]) for key in sorted(requests)}


def _api(key: int, request: type[Struct], response: type[Struct]) -> Api:
    wire = request.__wire__
    invariant(wire.versions is not None, f"{request.__name__} says no versions")
    lowest, highest = wire.versions or (0, 0)
    stable = highest - 1 if wire.latest_version_unstable else highest
    name = request.__name__.removesuffix("Request")
    return Api(key, name, request, response, lowest, highest, stable, wire.flexible_from)


APIS: dict[int, Api] = _declared()


def api_of(key: int) -> Api | None:
    """The API with that key, if it is declared."""
    return APIS.get(key)
