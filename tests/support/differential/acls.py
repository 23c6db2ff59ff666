"""Cases about access control lists, and sides on which somebody asks who may not do everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from appliance.client.connection import Connection
from appliance.client.security import ClientSecurity
from appliance.security.sasl_client import SaslClient
from appliance.wire.api import ApiKey
from appliance.wire.messages.create_acls import AclCreation, CreateAclsRequest
from appliance.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from appliance.wire.messages.describe_acls import DescribeAclsRequest
from tests.support.compat import wait_until
from tests.support.differential.sides import ANSWER_TIMEOUT_MS, SERVERS, Case, Side
from tests.support.secured import HOST, secured_server

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = 2, 3, 4, 5, 6, 7, 8, 9
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 10, 11, 12
DENY, ALLOW = 2, 3
USERS = ("nobody", "reader", "writer", "owner")
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:root",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.clear.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    + " ".join(f'user_{name}="{name}-secret"' for name in (*USERS, "root"))
    + ";",
}


def acl(kind: int, name: str, operation: int, who: str, *, permission: int = ALLOW, **fields: Any) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=fields.get("pattern_type", LITERAL),
        principal=f"User:{who}",
        host=fields.get("host", "*"),
        operation=operation,
        permission_type=permission,
    )


GRANTED = [
    acl(TOPIC, "*", READ, "reader"),
    acl(GROUP, "*", READ, "reader"),
    acl(TRANSACTIONAL_ID, "*", DESCRIBE, "reader"),
    acl(CLUSTER, "kafka-cluster", DESCRIBE, "reader"),
    acl(TOPIC, "*", WRITE, "writer"),
    acl(TOPIC, "*", CREATE, "writer"),
    acl(TOPIC, "*", ALTER_CONFIGS, "writer"),
    acl(GROUP, "*", DESCRIBE, "writer"),
    acl(TRANSACTIONAL_ID, "*", WRITE, "writer"),
    acl(CLUSTER, "kafka-cluster", ALTER, "writer"),
    acl(CLUSTER, "kafka-cluster", DESCRIBE_CONFIGS, "writer"),
    acl(TOPIC, "*", ALL, "owner"),
    acl(GROUP, "*", ALL, "owner"),
    acl(TRANSACTIONAL_ID, "*", ALL, "owner"),
]
"""What each user may do while the cases of all APIs run once more."""


class ActingSide(Side):
    """One on which a user asks; what a case needs beforehand comes from a super user."""

    def __init__(self, name: str, port: int, plain_port: int, user: str) -> None:
        self._security = ClientSecurity(sasl=SaslClient("PLAIN", user, f"{user}-secret"))
        self.admin = Connection(HOST, plain_port, client_id="differential", timeout_ms=ANSWER_TIMEOUT_MS)
        super().__init__(name, HOST, port)

    def connect(self) -> Connection:
        return Connection(
            self.host, self.port, client_id="differential", timeout_ms=ANSWER_TIMEOUT_MS, security=self._security
        )

    def set_up(self, request: Any, version: int | None = None) -> Any:
        key = type(request).__wire__.api_key
        return self._until_settled(request, self.served[key][1] if version is None else version, self.admin)

    def close(self) -> None:
        super().close()
        self.admin.close()


@contextmanager
def guarded_server(kind: str, folder: Path) -> Iterator[dict[str, int]]:
    """Ours or Apache Kafka with an authorizer; the ports of PLAINTEXT (a super user) and CLEAR (SASL)."""
    with secured_server(kind, folder, {"CLEAR": "SASL_PLAINTEXT"}, {**SERVERS, **AUTHORIZER}) as server:
        yield server.ports


def grant(side: Side, creations: list[AclCreation]) -> None:
    answer = side.set_up(CreateAclsRequest(creations=creations))
    assert [row.error_code for row in answer.results] == [0] * len(creations), answer


# Cases of the lists themselves


def create_acls(side: Side) -> None:
    def ask(label: str, *creations: AclCreation) -> None:
        side.ask(label, CreateAclsRequest(creations=list(creations)))

    topic = side.named("t")
    good = acl(TOPIC, topic, READ, "alice")
    ask("one", good)
    ask("again", good)
    ask("twice in a request", acl(TOPIC, topic, WRITE, "alice"), acl(TOPIC, topic, WRITE, "alice"))
    ask("nothing")
    ask("a prefix and a host", acl(TOPIC, topic, ALL, "bob", pattern_type=PREFIXED, host="10.0.0.1"))
    ask("a denial", acl(GROUP, topic, READ, "*", permission=DENY))
    ask("the cluster", acl(CLUSTER, "kafka-cluster", ALTER, side.named("u")))
    ask("a cluster of another name", acl(CLUSTER, "other", ALTER, "alice"))
    ask("no name", acl(TOPIC, "", READ, "alice"))
    ask("an operation that the type has not", acl(TOPIC, topic, CLUSTER_ACTION, "alice"))
    ask("good and bad", acl(TOPIC, topic, DELETE, "alice"), acl(TOPIC, "", READ, "alice"))
    ask("any type", acl(ANY, topic, READ, "alice"))
    ask("any operation", acl(TOPIC, topic, ANY, "alice"))
    ask("any permission", acl(TOPIC, topic, READ, "alice", permission=ANY))
    ask("any pattern", acl(TOPIC, topic, READ, "alice", pattern_type=ANY))
    ask("a pattern by match", acl(TOPIC, topic, READ, "alice", pattern_type=MATCH))
    nameless = acl(TOPIC, topic, READ, "alice")
    nameless.principal = "alice"
    ask("a principal without type", nameless)
    ask("no principal", acl(TOPIC, topic, READ, ""))
    ask("no host", acl(TOPIC, topic, READ, "alice", host=""))
    ask("a host that is no address", acl(TOPIC, topic, READ, "alice", host="example.com"))


def some(side: Side) -> None:
    topic = side.named("t")
    grant(
        side,
        [
            acl(TOPIC, topic, READ, "alice"),
            acl(TOPIC, topic, WRITE, "alice", permission=DENY),
            acl(TOPIC, topic[:-1], READ, "alice", pattern_type=PREFIXED),
            acl(TOPIC, topic + "x", READ, "alice", host="10.0.0.1"),
            acl(GROUP, topic, READ, side.named("u")),
        ],
    )
    wait_until(lambda: side.set_up(_filter(DescribeAclsRequest, principal=f"User:{side.named('u')}")).resources)


def _filter(cls: Any, **fields: Any) -> Any:
    return cls(
        resource_type_filter=fields.get("kind", ANY),
        resource_name_filter=fields.get("name"),
        pattern_type_filter=fields.get("pattern_type", ANY),
        principal_filter=fields.get("principal"),
        host_filter=fields.get("host"),
        operation=fields.get("operation", ANY),
        permission_type=fields.get("permission", ANY),
    )


def _filters(side: Side) -> dict[str, dict[str, Any]]:
    topic = side.named("t")
    return {
        "by name": {"name": topic},
        "by literal name": {"kind": TOPIC, "name": topic, "pattern_type": LITERAL},
        "by prefix": {"kind": TOPIC, "name": topic[:-1], "pattern_type": PREFIXED},
        "by match": {"kind": TOPIC, "name": topic + "x", "pattern_type": MATCH, "principal": "User:alice"},
        "by principal": {"principal": f"User:{side.named('u')}"},
        "by operation": {"name": topic, "operation": WRITE},
        "by permission": {"name": topic, "permission": DENY},
        "by host": {"name": topic + "x", "host": "10.0.0.1"},
        "nobody's": {"principal": f"User:{side.named('other')}"},
        "a type that is none": {"kind": 0},
        "an operation that is none": {"operation": 0},
    }


def describe_acls(side: Side) -> None:
    some(side)
    for label, fields in _filters(side).items():
        side.ask(label, _filter(DescribeAclsRequest, **fields))


def delete_acls(side: Side) -> None:
    some(side)
    for label, fields in _filters(side).items():
        side.ask(label, DeleteAclsRequest(filters=[_filter(DeleteAclsFilter, **fields)]))
        if side.connection.is_open:
            grant(side, [acl(TOPIC, side.named("t"), READ, "alice")])
    some(side)
    twice = {"name": side.named("t"), "kind": TOPIC}
    side.ask("two filters", DeleteAclsRequest(filters=[_filter(DeleteAclsFilter, **twice) for _ in range(2)]))
    # Apache Kafka's broker hears of it a little later than its controller.
    wait_until(lambda: not side.set_up(_filter(DescribeAclsRequest, **twice)).resources)
    side.ask("what is left", _filter(DescribeAclsRequest, name=side.named("t")), version=3)
    side.ask("nothing", DeleteAclsRequest())


ACL_CASES = [
    Case("create_acls", int(ApiKey.CREATE_ACLS), create_acls),
    Case("describe_acls", int(ApiKey.DESCRIBE_ACLS), describe_acls),
    Case("delete_acls", int(ApiKey.DELETE_ACLS), delete_acls),
]
