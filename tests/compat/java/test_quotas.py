"""Quotas, configs of groups, features and the quorum, with the command-line tools of Apache Kafka 4.3."""

from __future__ import annotations

import secrets
import socket

import pytest

from appliance.wire.codec import encode_request
from appliance.wire.messages.api_versions import ApiVersionsRequest
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


def test_an_address_above_its_rate_of_new_connections_is_let_in_no_more(server: Server) -> None:
    at = ("--bootstrap-server", server.bootstrap_servers)
    address, host, port = f"127.0.{secrets.randbelow(250) + 1}.77", *server.bootstrap_servers.split(",")[0].split(":")
    whom = ("--entity-type", "ips", "--entity-name", address)
    tool(CONFIGS, *at, "--alter", "--add-config", "connection_creation_rate=1", *whom)
    assert "connection_creation_rate=1.0" in tool(CONFIGS, *at, "--describe", *whom)
    asked = encode_request(ApiVersionsRequest(), 0, 1, "c")

    def is_answered(source: str) -> bool:
        with socket.create_connection((host, int(port)), 30, (source, 0)) as sock:
            sock.sendall(asked)
            try:
                return sock.recv(1) != b""
            except ConnectionResetError:
                return False

    answered = [is_answered(address) for _ in range(13)]
    assert answered[:10] == [True] * 10, "as many as the windows of a burst have"
    assert not answered[10]
    assert all(is_answered("127.0.0.1") for _ in range(15))
    tool(CONFIGS, *at, "--alter", "--delete-config", "connection_creation_rate", *whom)
    assert "connection_creation_rate" not in tool(CONFIGS, *at, "--describe", *whom)
    assert is_answered(address)
