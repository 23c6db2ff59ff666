from __future__ import annotations

import pytest

from appliance.authorizer import authorizer as module
from appliance.authorizer.authorizer import Authorizer, operations_bits, parse_super_users
from appliance.authorizer.bindings import (
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    picked,
)
from appliance.server.operations import CLUSTER_OPERATIONS, GROUP_OPERATIONS, TOPIC_OPERATIONS

HOST = "127.0.0.1"
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL


def allow(name: str, operation: Operation, **fields: object) -> AclBinding:
    one = AclBinding(TOPIC, name, PatternType.LITERAL, "User:alice", "*", operation, Permission.ALLOW)
    return one._replace(**fields)


def deny(name: str, operation: Operation, **fields: object) -> AclBinding:
    return allow(name, operation, permission=Permission.DENY, **fields)


def having(*acls: AclBinding, allow_without_acl: bool = False) -> Authorizer:
    authorizer = Authorizer(["User:root"], allow_without_acl=allow_without_acl)
    authorizer.update(dict.fromkeys(acls))
    return authorizer


def may(authorizer: Authorizer, operation: Operation, name: str = "t", who: str = "User:alice") -> bool:
    return authorizer.allows(who, HOST, operation, TOPIC, name)


def test_without_acls_only_super_users_may_do_anything_unless_everybody_may() -> None:
    assert not may(having(), READ)
    assert may(having(), READ, who="User:root")
    assert may(having(allow_without_acl=True), READ)


def test_before_any_lists_are_known_only_super_users_may_do_anything() -> None:
    authorizer = Authorizer(["User:root"], allow_without_acl=True)
    assert not may(authorizer, READ)
    assert may(authorizer, READ, who="User:root")
    assert not authorizer.allows_some("User:alice", HOST, WRITE, TOPIC)


def test_an_acl_about_somebody_else_ends_what_everybody_may() -> None:
    authorizer = having(allow("t", READ, principal="User:bob"), allow_without_acl=True)
    assert not may(authorizer, READ)
    assert may(authorizer, READ, "another")


def test_a_denial_wins_over_every_permission_but_not_over_super_users() -> None:
    authorizer = having(allow("t", ALL), allow("*", READ), deny("t", READ, pattern_type=PatternType.PREFIXED))
    assert not may(authorizer, READ)
    assert may(authorizer, WRITE)
    assert may(having(deny("t", ALL, principal="User:*")), READ, who="User:root")


@pytest.mark.parametrize("implying", [READ, WRITE, Operation.DELETE, Operation.ALTER])
def test_who_may_do_something_to_a_topic_may_describe_it_but_a_denial_implies_nothing(implying: Operation) -> None:
    assert may(having(allow("t", implying)), DESCRIBE)
    assert may(having(allow("t", DESCRIBE), deny("t", implying)), DESCRIBE)


def test_who_may_alter_configs_may_read_them() -> None:
    assert may(having(allow("t", Operation.ALTER_CONFIGS)), Operation.DESCRIBE_CONFIGS)
    assert not may(having(allow("t", Operation.ALTER_CONFIGS)), DESCRIBE)


def test_hosts_are_compared_as_text() -> None:
    authorizer = having(allow("t", READ, host="10.0.0.1"))
    assert authorizer.allows("User:alice", "10.0.0.1", READ, TOPIC, "t")
    assert not authorizer.allows("User:alice", "10.0.0.2", READ, TOPIC, "t")


def test_a_change_of_acls_changes_decisions_that_were_made_and_raises_the_generation() -> None:
    authorizer = having(allow("t", READ))
    assert may(authorizer, READ)
    before = authorizer.generation
    assert authorizer.update({})
    assert not may(authorizer, READ)
    assert authorizer.generation == before + 1
    assert not authorizer.update({})
    assert authorizer.generation == before + 1


def test_decisions_that_are_kept_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DECISIONS_KEPT_MAX", 10)
    authorizer = having(allow("t7", READ))
    for number in range(100):
        assert may(authorizer, READ, f"t{number}") is (number == 7)
    assert len(authorizer._decisions) <= 10


def test_operations_are_told_as_bits() -> None:
    authorizer = having(allow("t", READ), allow("t", Operation.ALTER_CONFIGS))
    assert authorizer.operations("User:alice", HOST, TOPIC, "t") == operations_bits(
        READ, DESCRIBE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS
    )
    assert authorizer.operations("User:root", HOST, TOPIC, "t") == TOPIC_OPERATIONS
    assert authorizer.operations("User:root", HOST, CLUSTER) == CLUSTER_OPERATIONS
    assert authorizer.operations("User:root", HOST, ResourceType.GROUP, "g") == GROUP_OPERATIONS


def test_a_filter_by_match_finds_all_that_holds_for_a_name() -> None:
    acls = [
        allow("top", READ),
        allow("*", READ),
        allow("to", READ, pattern_type=PatternType.PREFIXED),
        allow("x", READ),
    ]
    by_match = AclFilter(name="top", pattern_type=PatternType.MATCH)
    assert picked(acls, by_match) == acls[:3]
    assert picked(acls, AclFilter(name="top")) == acls[:1]
    assert picked(acls, AclFilter(pattern_type=PatternType.PREFIXED)) == acls[2:3]
    assert picked(acls, AclFilter(principal="User:bob")) == []
    assert picked(acls, AclFilter()) == acls


def test_a_filter_that_names_one_binding_finds_it() -> None:
    acls = [allow("top", READ), allow("top", WRITE)]
    assert picked(acls, AclFilter(*acls[1])) == [acls[1]]
    assert picked(acls, AclFilter(*deny("top", READ))) == []


def test_super_users_are_principals_with_semicolons_between() -> None:
    assert parse_super_users(" User:a ;User:CN=x,O=y;") == {"User:a", "User:CN=x,O=y"}
    assert parse_super_users("") == frozenset()
    with pytest.raises(ValueError, match="but got root"):
        parse_super_users("root")
