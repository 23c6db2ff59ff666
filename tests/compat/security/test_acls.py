"""Access control lists as unmodified clients find them: denied first, then allowed. Ours and Apache Kafka's alike."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.support.differential.acls import AUTHORIZER
from tests.support.java_tools import tool
from tests.support.secured import SERVER_KIND, SecuredServer, secured_server

pytestmark = [pytest.mark.xdist_group("security-acls"), pytest.mark.java]

PATIENCE_S = 30
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.BROKER
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
READ, WRITE, CREATE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DESCRIBE
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    """CLEAR is SASL_PLAINTEXT; whoever comes in at PLAINTEXT is a super user."""
    more = {} if SERVER_KIND == "kafka" else {"group.initial.rebalance.delay.ms": "0"}
    folder = tmp_path_factory.mktemp(SERVER_KIND)
    with secured_server(SERVER_KIND, folder, {"CLEAR": "SASL_PLAINTEXT"}, {**AUTHORIZER, **more}) as running:
        yield running


@pytest.fixture(scope="module")
def root(server: SecuredServer) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.at("PLAINTEXT")})


@pytest.fixture
def topic(root: AdminClient) -> str:
    name = f"t-{uuid.uuid4()}"
    root.create_topics([NewTopic(name, 1, 1)])[name].result(PATIENCE_S)
    return name


def config(server: SecuredServer, user: str, **more: Any) -> dict[str, Any]:
    """For librdkafka."""
    return {
        "bootstrap.servers": server.at("CLEAR"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def binding(
    kind: Any, name: str, user: str, operation: Any, *, pattern: Any = LITERAL, permission: Any = ALLOW
) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, permission)


def grant(root: AdminClient, *bindings: AclBinding) -> None:
    for future in root.create_acls(list(bindings)).values():
        future.result(PATIENCE_S)


def deny_again(root: AdminClient, *bindings: AclBinding) -> None:
    filters = [
        AclBindingFilter(
            one.restype,
            one.name,
            one.resource_pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for one in bindings
    ]
    for future in root.delete_acls(filters).values():
        assert len(future.result(PATIENCE_S)) == 1


def everything_about(topic: str) -> AclBindingFilter:
    any_pattern = ResourcePatternType.MATCH
    return AclBindingFilter(TOPIC, topic, any_pattern, None, None, AclOperation.ANY, AclPermissionType.ANY)


def until(fact: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def produced(producer: Producer, topic: str, value: bytes = b"v") -> KafkaError | None:
    """Send one record; what became of it."""
    outcome: list[KafkaError | None] = []
    producer.produce(topic, value, on_delivery=lambda error, _: outcome.append(error))
    until(lambda: producer.poll(0.1) or outcome)
    return outcome[0]


def code_of(error: KafkaError | None) -> int | None:
    return None if error is None else error.code()


def first_message(consumer: Consumer) -> tuple[int | None, bytes | None]:
    """The first record, or the first error that is not a passing one."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            return code_of(message.error()), None if message.error() else message.value()
    raise AssertionError("neither a record nor an error")


@pytest.mark.parametrize("idempotent", [False, True])
def test_who_may_write_writes_at_once_and_no_more_when_it_may_not(
    server: SecuredServer, root: AdminClient, topic: str, idempotent: bool
) -> None:
    allowed = binding(TOPIC, topic, "writer", WRITE)
    # Metadata is kept by clients: who may not see a topic looks again only now and then.
    seen = binding(TOPIC, topic, "writer", DESCRIBE)
    grant(root, seen)
    if not idempotent:
        producer = Producer(config(server, "writer"))
        assert code_of(produced(producer, topic)) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        grant(root, allowed)
        # librdkafka remembers the error of a topic.
        producer = Producer(config(server, "writer"))
    else:
        # Whoever may write to some topic may be idempotent (KIP-679).
        grant(root, allowed)
        producer = Producer(config(server, "writer", enable_idempotence=True))
    for number in range(20):
        # From the second on these take the short way.
        assert produced(producer, topic, b"%d" % number) is None
    deny_again(root, allowed)
    assert code_of(produced(producer, topic)) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    deny_again(root, seen)


def test_a_reader_needs_its_topic_and_its_group(server: SecuredServer, root: AdminClient, topic: str) -> None:
    writer = Producer({"bootstrap.servers": server.at("PLAINTEXT")})
    assert produced(writer, topic, b"for reader") is None
    group = f"g-{uuid.uuid4()}"
    grant(root, binding(TOPIC, topic, "reader", READ))
    read = config(server, "reader", group_id=group, auto_offset_reset="earliest")
    consumer = Consumer(read)
    consumer.subscribe([topic])
    assert first_message(consumer)[0] == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()
    grant(root, binding(GROUP, "g-", "reader", READ, pattern=PREFIXED))
    consumer = Consumer(read)
    consumer.subscribe([topic])
    assert first_message(consumer) == (None, b"for reader")
    consumer.commit(asynchronous=False)
    # A denial for everybody wins over what is allowed. Kafka answers a fetch that waits
    # already with what comes then, so the next record is sent once the denial is felt.
    grant(root, binding(TOPIC, topic, "*", READ, permission=DENY))
    assert first_message(consumer)[0] == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer.close()
    assert produced(writer, topic, b"not for reader") is None
    consumer = Consumer(read)
    consumer.subscribe([topic])
    assert first_message(consumer)[0] == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer.close()


def test_a_transaction_needs_its_id(server: SecuredServer, root: AdminClient, topic: str) -> None:
    transactional_id = f"x-{uuid.uuid4()}"
    grant(root, binding(TOPIC, topic, "owner", WRITE))
    denied = Producer(config(server, "owner", transactional_id=transactional_id))
    with pytest.raises(KafkaException) as refused:
        denied.init_transactions(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    grant(root, binding(ResourceType.TRANSACTIONAL_ID, transactional_id, "owner", WRITE))
    producer = Producer(config(server, "owner", transactional_id=transactional_id))
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"all or nothing")
    producer.commit_transaction(PATIENCE_S)
    consumer = Consumer(
        {"bootstrap.servers": server.at("PLAINTEXT"), "group.id": "check", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    assert first_message(consumer) == (None, b"all or nothing")
    consumer.close()


def test_topics_are_made_by_who_may_create_them_and_hidden_from_who_may_not_see_them(
    server: SecuredServer, root: AdminClient, topic: str
) -> None:
    admin = AdminClient(config(server, "nobody"))
    assert admin.list_topics(timeout=PATIENCE_S).topics == {}
    named = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic]
    assert code_of(named.error) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    new = f"nobodys-{uuid.uuid4()}"
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(new, 1, 1)])[new].result(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    may_create = binding(TOPIC, "nobodys-", "nobody", CREATE, pattern=PREFIXED)
    may_see = binding(TOPIC, "nobodys-", "nobody", DESCRIBE, pattern=PREFIXED)
    grant(root, may_create, may_see)
    admin.create_topics([NewTopic(new, 1, 1)])[new].result(PATIENCE_S)
    until(lambda: set(admin.list_topics(timeout=PATIENCE_S).topics) == {new})
    deny_again(root, may_create, may_see)


def test_a_topic_is_made_on_demand_only_for_who_may_create_it(server: SecuredServer, root: AdminClient) -> None:
    new = f"ondemand-{uuid.uuid4()}"
    grant(root, binding(TOPIC, "ondemand-", "owner", WRITE, pattern=PREFIXED))
    producer = Producer(config(server, "owner", allow_auto_create_topics=True, message_timeout_ms=2_000))
    assert produced(producer, new) is not None
    assert new not in root.list_topics(timeout=PATIENCE_S).topics
    grant(root, binding(CLUSTER, "kafka-cluster", "owner", CREATE))
    producer = Producer(config(server, "owner", allow_auto_create_topics=True))
    assert produced(producer, new) is None


def test_only_who_may_alter_the_cluster_changes_lists_and_everybody_else_is_told_so(
    server: SecuredServer, root: AdminClient, topic: str
) -> None:
    admin = AdminClient(config(server, "nobody"))
    (creation,) = admin.create_acls([binding(TOPIC, topic, "nobody", READ)]).values()
    with pytest.raises(KafkaException) as refused:
        creation.result(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    grant(root, binding(TOPIC, topic, "nobody", READ))
    found = root.describe_acls(everything_about(topic)).result(PATIENCE_S)
    assert [(one.name, one.principal, one.operation) for one in found if one.name == topic] == [
        (topic, "User:nobody", READ)
    ]


def test_kafka_acls_adds_lists_and_removes(server: SecuredServer, root: AdminClient) -> None:
    at, name = ("--bootstrap-server", server.at("PLAINTEXT")), f"cli-{uuid.uuid4()}"
    acls = "org.apache.kafka.tools.AclCommand"
    who = ("--allow-principal", "User:carol", "--producer", "--topic", name)
    added = tool(acls, *at, "--add", *who)
    assert "operation=WRITE, permissionType=ALLOW" in added
    listed = tool(acls, *at, "--list", "--topic", name)
    assert listed.count("principal=User:carol") == 3, listed
    tool(acls, *at, "--remove", "--force", *who)
    left = root.describe_acls(everything_about(name)).result(PATIENCE_S)
    assert [one.principal for one in left if one.name == name] == []
