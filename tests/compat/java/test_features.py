"""kafka-features raises and lowers the levels of features, here as on Apache Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.support.compat import Server, wait_until
from tests.support.java_tools import tool

pytestmark = [pytest.mark.java, pytest.mark.compat]


@pytest.fixture
def at(server: Server) -> Iterator[tuple[str, str]]:
    """Other tests need all features afterwards."""
    yield "--bootstrap-server", server.bootstrap_servers
    tool("FeatureCommand", "--bootstrap-server", server.bootstrap_servers, "upgrade", "--release-version", "4.3")


def levels(at: tuple[str, str]) -> dict[str, tuple[str, ...]]:
    """Lowest, highest and present level of each."""
    told = tool("FeatureCommand", *at, "describe")
    rows = re.findall(
        r"Feature: (\S+)\s+SupportedMinVersion: (\S+)\s+SupportedMaxVersion: (\S+)\s+FinalizedVersionLevel: (\S+)", told
    )
    return {name: tuple(row) for name, *row in rows}


def test_all_features_of_the_release_are_told_and_may_be_asked_for(at: tuple[str, str]) -> None:
    tool("FeatureCommand", *at, "upgrade", "--release-version", "4.3")
    wait_until(lambda: levels(at)["kraft.version"] == ("0", "1", "1"))
    assert levels(at) == {
        "eligible.leader.replicas.version": ("0", "1", "1"),
        "group.version": ("0", "1", "1"),
        "kraft.version": ("0", "1", "1"),
        "metadata.version": ("3.3-IV3", "4.3-IV0", "4.3-IV0"),
        "share.version": ("0", "1", "1"),
        "streams.version": ("0", "1", "1"),
        "transaction.version": ("0", "2", "2"),
    }


def test_a_feature_is_lowered_disabled_and_raised(at: tuple[str, str]) -> None:
    lower = ("downgrade", "--feature", "streams.version=0")
    assert "can be downgraded to 0" in tool("FeatureCommand", *at, *lower, "--dry-run")
    assert levels(at)["streams.version"][2] == "1"
    assert "was downgraded to 0" in tool("FeatureCommand", *at, *lower)
    wait_until(lambda: levels(at)["streams.version"][2] == "0")
    assert "was upgraded to 1" in tool("FeatureCommand", *at, "upgrade", "--feature", "streams.version=1")
    assert "was disabled" in tool("FeatureCommand", *at, "disable", "--feature", "streams.version")


def test_what_cannot_be_is_refused(at: tuple[str, str]) -> None:
    for command, level in (
        ("upgrade", "no.feature=1"),
        ("upgrade", "share.version=7"),
        ("upgrade", "transaction.version=1"),
        ("downgrade", "metadata.version=28"),
    ):
        assert "1 out of 1 operation(s) failed" in tool("FeatureCommand", *at, command, "--feature", level, code=1)
    assert "failed" in tool("FeatureCommand", *at, "disable", "--feature", "metadata.version", code=1)
