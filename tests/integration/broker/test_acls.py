"""Brokers, a controller and a gateway with an authorizer, secured by SASL among themselves."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.authorizer.authorizer import Authorizer
from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.client.connection import Connection
from appliance.client.results import NewTopic
from appliance.client.retries import RetryPolicy
from appliance.client.security import ClientSecurity, inter_broker_security
from appliance.http_ingest.service import serve
from appliance.records.builder import build_batch
from appliance.security.sasl_client import SaslClient
from appliance.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from appliance.wire.messages.create_acls import AclCreation, CreateAclsRequest
from appliance.wire.messages.describe_acls import DescribeAclsRequest
from appliance.wire.messages.find_coordinator import FindCoordinatorRequest
from appliance.wire.messages.internal_access import ActAsRequest
from appliance.wire.messages.internal_metadata import ControllerStatusRequest
from tests.support.broker import RunningCluster, running_cluster, start_controller
from tests.support.running import wait_for
from tests.support.services import running_service

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PROPERTIES = {
    "listeners": "INSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.inside.plain.sasl.jaas.config": f'{PLAIN} username="broker" password="b" user_broker="b" '
    'user_alice="alice-secret" user_carol="carol-secret";',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:broker",
    "auto.create.topics.enable": "false",
}
PATIENCE = RetryPolicy(retry_limit=30)
TOPIC, CLUSTER, GROUP = 2, 4, 3
READ, WRITE, ALTER, DESCRIBE, CLUSTER_ACTION = 3, 4, 7, 8, 9


def brokers_own() -> ClientSecurity:
    return inter_broker_security(BrokerConfig(PROPERTIES))


def alices() -> ClientSecurity:
    return ClientSecurity(sasl=SaslClient("PLAIN", "alice", "alice-secret"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("acls"), 2, PROPERTIES) as running:
        yield running


@pytest.fixture
def root(cluster: RunningCluster) -> Iterator[Client]:
    with Client(cluster.bootstrap_servers, security=brokers_own(), retries=PATIENCE) as client:
        yield client


def allow(root: Client, name: str, operation: int, who: str = "User:alice", kind: int = TOPIC) -> None:
    row = AclCreation(
        resource_type=kind, resource_name=name, principal=who, host="*", operation=operation, permission_type=3
    )
    answer = root.call(CreateAclsRequest(creations=[row]))
    assert [result.error_code for result in answer.results] == [ErrorCode.NONE]


def count(client: Client) -> int:
    everything: dict[str, Any] = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    numbers = dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), 1)
    answer = client.call(DescribeAclsRequest(**everything, **numbers))
    assert answer.error_code == ErrorCode.NONE
    return sum(len(resource.acls) for resource in answer.resources)


def batch() -> bytes:
    return build_batch([(1_700_000_000_000, b"k", b"v", [])])


def test_replicas_meet_and_what_is_allowed_holds_on_every_broker_at_once(cluster: RunningCluster, root: Client) -> None:
    root.create_topics([NewTopic("both", 2, 2)])
    places = [TopicPartition("both", 0), TopicPartition("both", 1)]
    with Client(cluster.bootstrap_servers, security=alices(), retries=PATIENCE) as alice:
        for place in places:
            with pytest.raises(KafkaError) as refused:
                alice.produce(place, batch())
            assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        allow(root, "both", WRITE)
        # Each partition has another leader, and both replicas have it before the answer comes.
        assert [alice.produce(place, batch()).base_offset for place in places] == [0, 0]


def test_a_request_of_a_known_shape_asks_nobody_until_the_lists_change(
    cluster: RunningCluster, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.create_topics([NewTopic("often", 1, 2)])
    allow(root, "often", WRITE)
    place, asked, decide = TopicPartition("often", 0), [], Authorizer.allows

    def counted(self: Authorizer, principal: str, *rest: Any) -> bool:
        if principal == "User:alice":
            asked.append(rest)
        return decide(self, principal, *rest)

    monkeypatch.setattr(Authorizer, "allows", counted)
    with Client(cluster.bootstrap_servers, security=alices(), retries=PATIENCE) as alice:
        alice.produce(place, batch())
        alice.produce(place, batch())
        before = len(asked)
        for _ in range(50):
            alice.produce(place, batch())
        assert len(asked) == before
        allow(root, "another", WRITE)
        alice.produce(place, batch())
        assert len(asked) > before


def test_a_controller_talks_to_brokers_alone(cluster: RunningCluster) -> None:
    host, _, port = cluster.controller.address.rpartition(":")
    with Connection(host, int(port), security=alices()) as alice:
        answer = alice.call(ControllerStatusRequest(), 0)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with Connection(host, int(port), security=brokers_own()) as broker:
        assert broker.call(ControllerStatusRequest(), 0).error_code == ErrorCode.NONE


def test_nobody_but_a_super_user_acts_as_somebody_else(cluster: RunningCluster, root: Client) -> None:
    address = cluster.brokers[1].address
    host, _, port = str(address).rpartition(":")
    # A broker's work is not everything.
    allow(root, "kafka-cluster", CLUSTER_ACTION, "User:carol", CLUSTER)
    with Connection(host, int(port), security=ClientSecurity(sasl=SaslClient("PLAIN", "carol", "carol-secret"))) as one:
        assert one.call(ActAsRequest(principal="User:broker"), 0).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with Connection(host, int(port), security=alices()) as alice:
        assert alice.call(ActAsRequest(principal="User:broker"), 0).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with Connection(host, int(port), security=brokers_own()) as broker:
        assert broker.call(ActAsRequest(principal="alice"), 0).error_code == ErrorCode.INVALID_REQUEST
        assert broker.call(ActAsRequest(principal="User:alice"), 0).error_code == ErrorCode.NONE
        assert (
            broker.call(ActAsRequest(principal="User:broker"), 0).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )


def test_http_requests_are_a_user_of_their_own(cluster: RunningCluster, root: Client, tmp_path: Path) -> None:
    root.create_topics([NewTopic("web", 1, 1), NewTopic("closed", 1, 1)])
    allow(root, "web", WRITE, "User:ANONYMOUS")
    with running_service(serve, "http", cluster.bootstrap_servers, tmp_path, properties=PROPERTIES) as url:

        def post(topic: str) -> int:
            connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
            headers = {"Content-Type": "application/json"}
            connection.request("POST", f"/v1/topics/{topic}/records", b'{"value": 1}', headers)
            status = connection.getresponse().status
            connection.close()
            return status

        assert post("web") == 200
        assert post("closed") == 403
        assert post("no-such-topic") == 403


def test_lists_outlive_the_controller(cluster: RunningCluster, root: Client) -> None:
    allow(root, "kept", WRITE)
    before = count(root)
    assert before
    port = int(cluster.controller.address.rpartition(":")[2])
    cluster.controller.stop()
    cluster.controller = start_controller(cluster.folder, PROPERTIES, port=port)
    # Decided by the new controller, from what the old one has left.
    wait_for(lambda: _added(root, "kept-too"), 60)
    assert count(root) == before + 1


def _added(root: Client, name: str) -> bool:
    row = AclCreation(
        resource_type=TOPIC, resource_name=name, principal="User:alice", host="*", operation=WRITE, permission_type=3
    )
    answer = root.call(CreateAclsRequest(creations=[row]))
    return [result.error_code for result in answer.results] == [ErrorCode.NONE]


def test_a_regular_expression_finds_topics_that_its_member_may_describe(root: Client) -> None:
    names = ("seen-by-alice", "seen-by-nobody")
    root.create_topics([NewTopic(name, 1, 1) for name in names])
    allow(root, "patterns", READ, kind=GROUP)
    allow(root, names[0], DESCRIBE)
    who = {"group_id": "patterns", "member_id": "m"}

    def coordinator() -> Any:
        (found,) = root.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["patterns"])).coordinators
        return found if found.error_code == ErrorCode.NONE else None

    at = wait_for(coordinator, 30)
    with Connection(at.host, at.port, security=alices()) as connection:
        joins = {"subscribed_topic_regex": "seen-by-.*", "rebalance_timeout_ms": 60_000, "topic_partitions": []}

        def joined() -> Any:
            answer = connection.call(ConsumerGroupHeartbeatRequest(member_epoch=0, **who, **joins))
            return answer if answer.error_code == ErrorCode.NONE else None

        epoch = wait_for(joined, 30).member_epoch
        assigned: list[int] = []

        def beat() -> bool:
            nonlocal epoch
            answer = connection.call(ConsumerGroupHeartbeatRequest(member_epoch=epoch, **who))
            assert answer.error_code == ErrorCode.NONE, answer
            epoch = answer.member_epoch
            if answer.assignment is not None:
                assigned[:] = [number for row in answer.assignment.topic_partitions for number in row.partitions]
            return bool(assigned)

        wait_for(beat, 30)
        assert assigned == [0]
