"""Quotas, configs of groups, features and the quorum, with the command-line tools of Apache Kafka 4.3."""

from __future__ import annotations

import pytest

from tests.support.compat import Server
from tests.support.java_tools import tool

pytestmark = pytest.mark.java

CONFIGS = "kafka.admin.ConfigCommand"


def test_kafka_configs_sets_shows_and_removes_quotas(server: Server, group_id: str) -> None:
    at = ("--bootstrap-server", server.bootstrap_servers)
    client = ("--entity-type", "clients", "--entity-name", group_id)
    tool(CONFIGS, *at, "--alter", "--add-config", "producer_byte_rate=123456,request_percentage=150.5", *client)
    shown = tool(CONFIGS, *at, "--describe", *client)
    assert "producer_byte_rate=123456.0" in shown
    assert "request_percentage=150.5" in shown
    tool(CONFIGS, *at, "--alter", "--delete-config", "producer_byte_rate,request_percentage", *client)
    assert "producer_byte_rate" not in tool(CONFIGS, *at, "--describe", *client)


def test_kafka_configs_sets_and_shows_a_groups_configs(server: Server, group_id: str) -> None:
    at = ("--bootstrap-server", server.bootstrap_servers)
    group = ("--entity-type", "groups", "--entity-name", group_id)
    tool(CONFIGS, *at, "--alter", "--add-config", "consumer.session.timeout.ms=50000", *group)
    shown = tool(CONFIGS, *at, "--describe", *group)
    assert "consumer.session.timeout.ms=50000" in shown


def test_features_and_the_quorum_are_told(server: Server) -> None:
    at = ("--bootstrap-server", server.bootstrap_servers)
    told = tool("FeatureCommand", *at, "describe")
    assert "transaction.version" in told
    status = tool("MetadataQuorumCommand", *at, "describe", "--status")
    assert "LeaderId:" in status
    assert "CurrentVoters:" in status
