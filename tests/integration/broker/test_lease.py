"""A broker that hears nothing from a controller stops answering for its partitions, and begins again when it does."""

from __future__ import annotations

import time
from pathlib import Path

from appliance.base.errors import ErrorCode
from appliance.client.connection import CallTimedOut, Connection, ConnectionLost
from appliance.wire.messages.api_versions import ApiVersionsRequest
from appliance.wire.messages.create_topics import CreatableTopicResult
from tests.support.broker import RunningCluster, running_cluster, start_controller
from tests.support.requests import batch_of, list_offset, new_topic, produce

WAIT_S = 15
SHORT_LEASE = {
    "broker.lease.ms": "700",
    "broker.lease.margin.ms": "200",
    "broker.heartbeat.interval.ms": "100",
    "broker.loop.stall.max.ms": "200",
}


def outcome(cluster: RunningCluster, topic: CreatableTopicResult) -> str:
    """What becomes of one produce request on a fresh connection."""
    try:
        with Connection("127.0.0.1", cluster.brokers[1].port, timeout_ms=5_000) as connection:
            return ErrorCode(produce(connection, topic, batch_of(b"x")).error_code).name
    except (ConnectionLost, CallTimedOut) as error:
        return type(error).__name__


def becomes(cluster: RunningCluster, topic: CreatableTopicResult, wanted: str) -> list[str]:
    seen: list[str] = []
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        seen.append(outcome(cluster, topic))
        if seen[-1] == wanted:
            return seen
        time.sleep(0.02)
    raise AssertionError(f"{wanted} was never answered, but {sorted(set(seen))}")


def test_without_a_controller_the_lease_ends_and_with_one_it_begins_again(tmp_path: Path) -> None:
    with running_cluster(tmp_path, properties=SHORT_LEASE) as cluster:
        with Connection("127.0.0.1", cluster.brokers[1].port, timeout_ms=10_000) as connection:
            topic = new_topic(connection)
            assert produce(connection, topic, batch_of(b"x")).error_code == 0
        cluster.controller.stop()
        seen = becomes(cluster, topic, "NOT_LEADER_OR_FOLLOWER")
        assert seen[0] == "NONE", "the lease does not end with the controller"
        assert set(seen) <= {"NONE", "NOT_LEADER_OR_FOLLOWER", "ConnectionLost"}
        acknowledged = 1 + seen.count("NONE")
        with Connection("127.0.0.1", cluster.brokers[1].port, timeout_ms=10_000) as connection:
            assert (
                connection.call(
                    ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3
                ).error_code
                == 0
            ), "what needs no lease is answered"
        address = cluster.controller.address
        # The brokers know this address; nobody else may have taken it meanwhile.
        cluster.controller = start_controller(tmp_path, cluster.properties, port=int(address.rpartition(":")[2]))
        becomes(cluster, topic, "NONE")
        with Connection("127.0.0.1", cluster.brokers[1].port, timeout_ms=10_000) as connection:
            end = list_offset(connection, topic, -1).offset
        # What was not acknowledged may be there all the same, as after any lost answer; what was is.
        assert end >= acknowledged + 1
