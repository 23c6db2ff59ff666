from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.authorizer.authorizer import Authorizer
from appliance.authorizer.bindings import AclBinding, Operation, PatternType, Permission, ResourceType
from appliance.security.principals import Principal
from appliance.server import access as module
from appliance.server.access import Access, AccessControl
from tests.support.tiering_kit import ManualClock

TOPIC = ResourceType.TOPIC
LOG = "appliance.security.log"


def having(clock: ManualClock, host: str = "10.0.0.1") -> Access:
    authorizer = Authorizer()
    allowed = (Operation.READ, Operation.CREATE)
    authorizer.update(
        dict.fromkeys(
            AclBinding(TOPIC, "t", PatternType.LITERAL, "User:alice", "10.0.0.1", one, Permission.ALLOW)
            for one in allowed
        )
    )
    connection: Any = SimpleNamespace(principal=Principal("User", "alice"), host=host)
    return AccessControl(authorizer, clock).of(connection, "Fetch")


def test_a_denial_is_noted_with_who_and_what_and_the_same_one_not_at_once_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    access = having(clock)
    with caplog.at_level(logging.INFO, LOG):
        assert not access.may(Operation.WRITE, TOPIC, "t")
        assert not access.may(Operation.WRITE, TOPIC, "t")
        assert not access.could(Operation.DELETE, TOPIC, "t")
        assert caplog.messages == ["denied: User:alice at 10.0.0.1: WRITE on TOPIC t for Fetch"]
        clock.elapsed_ms += module.DENIALS_AGAIN_MS
        assert not access.may(Operation.WRITE, TOPIC, "t")
        assert len(caplog.messages) == 2


def test_a_change_that_is_allowed_is_noted_and_a_look_is_not(caplog: pytest.LogCaptureFixture) -> None:
    access = having(ManualClock())
    with caplog.at_level(logging.INFO, LOG):
        assert access.may(Operation.READ, TOPIC, "t")
        assert access.may(Operation.CREATE, TOPIC, "t")
    assert caplog.messages == ["allowed: User:alice at 10.0.0.1: CREATE on TOPIC t for Fetch"]


def test_an_address_that_comes_by_way_of_ipv6_is_still_that_address() -> None:
    assert having(ManualClock(), "::ffff:10.0.0.1").may(Operation.READ, TOPIC, "t")
    assert not having(ManualClock(), "::1").may(Operation.READ, TOPIC, "t")
