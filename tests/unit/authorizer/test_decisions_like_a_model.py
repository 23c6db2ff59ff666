"""Decisions beside a model that looks at every binding, one after the other, as the rules are told."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.authorizer.authorizer import Authorizer
from appliance.authorizer.bindings import AclBinding, Operation, PatternType, Permission, ResourceType

NAMES = ("*", "a", "ab", "abc", "b", "ba", "a.b")
PRINCIPALS = ("User:*", "User:alice", "User:bob")
HOSTS = ("*", "127.0.0.1", "10.0.0.1")
TYPES = (ResourceType.TOPIC, ResourceType.GROUP)
OPERATIONS = tuple(one for one in Operation if one is not Operation.ANY)
ASKED = tuple(one for one in OPERATIONS if one is not Operation.ALL)

bindings = st.builds(
    AclBinding,
    st.sampled_from(TYPES).map(int),
    st.sampled_from(NAMES),
    st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)).map(int),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS).map(int),
    st.sampled_from((Permission.ALLOW, Permission.DENY, Permission.ALLOW)).map(int),
)
IMPLYING = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def concerns(one: AclBinding, kind: ResourceType, name: str) -> bool:
    if one.resource_type != kind:
        return False
    if one.pattern_type == PatternType.PREFIXED:
        return name.startswith(one.name)
    return one.name in ("*", name)


def is_about(one: AclBinding, principal: str, host: str) -> bool:
    return one.principal in ("User:*", principal) and one.host in ("*", host)


def modelled(
    acls: Sequence[AclBinding], principal: str, host: str, operation: Operation, kind: ResourceType, name: str
) -> bool | None:
    about = [one for one in acls if concerns(one, kind, name)]
    if not about:
        return None
    mine = [one for one in about if is_about(one, principal, host)]
    for one in mine:
        if one.permission == Permission.DENY and one.operation in (Operation.ALL, operation):
            return False
    enough = {Operation.ALL, operation} | IMPLYING.get(operation, set())
    return any(one.permission == Permission.ALLOW and one.operation in enough for one in mine)


def some_modelled(
    acls: Sequence[AclBinding], principal: str, host: str, operation: Operation, kind: ResourceType
) -> bool:
    mine = [
        one
        for one in acls
        if one.resource_type == kind and is_about(one, principal, host) and one.operation in (operation, Operation.ALL)
    ]
    denied = {(one.pattern_type, one.name) for one in mine if one.permission == Permission.DENY}
    allowed = {(one.pattern_type, one.name) for one in mine if one.permission == Permission.ALLOW}
    if (PatternType.LITERAL, "*") in denied:
        return False
    if (PatternType.LITERAL, "*") in allowed:
        return True
    for pattern_type, name in allowed:
        if pattern_type == PatternType.LITERAL and (pattern_type, name) in denied:
            continue
        if not any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1)):
            return True
    return False


@settings(max_examples=150, deadline=None)
@given(st.lists(bindings, max_size=12), st.lists(bindings, max_size=6), st.booleans())
def test_every_decision_is_the_models_also_after_bindings_have_come_and_gone(
    kept: list[AclBinding], gone: list[AclBinding], allow_without_acl: bool
) -> None:
    authorizer = Authorizer({"User:root"}, allow_without_acl=allow_without_acl)
    authorizer.update(dict.fromkeys(gone + kept[::2]))
    authorizer.update(dict.fromkeys(kept))
    acls = list(dict.fromkeys(kept))
    for principal in ("User:alice", "User:carol"):
        for kind in TYPES:
            for name in ("a", "abc", "abd", "c", "*"):
                for operation in (Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.CREATE):
                    expected = modelled(acls, principal, "127.0.0.1", operation, kind, name)
                    if expected is None:
                        expected = allow_without_acl
                    assert authorizer.allows(principal, "127.0.0.1", operation, kind, name) is expected


@settings(max_examples=150, deadline=None)
@given(st.lists(bindings, max_size=10))
def test_whether_something_may_be_written_at_all_is_the_models(acls: list[AclBinding]) -> None:
    authorizer = Authorizer()
    authorizer.update(dict.fromkeys(acls))
    for principal in ("User:alice", "User:carol"):
        expected = some_modelled(acls, principal, "127.0.0.1", Operation.WRITE, ResourceType.TOPIC)
        there = modelled(acls, principal, "127.0.0.1", Operation.WRITE, ResourceType.TOPIC, "hardcode")
        assert authorizer.allows_some(principal, "127.0.0.1", Operation.WRITE, ResourceType.TOPIC) is (
            expected or bool(there)
        )
