from __future__ import annotations

import pytest

from appliance.base.config import BrokerConfig
from appliance.base.errors import UserError
from appliance.security.listeners import Listeners, SecurityProtocol, listeners_of


def of(**properties: str) -> Listeners:
    return listeners_of(BrokerConfig({name.replace("_", "."): text for name, text in properties.items()}))


def test_a_listener_is_told_at_its_own_address_unless_another_is_advertised() -> None:
    found = of(listeners="PLAINTEXT://10.0.0.1:9092,SSL://:0", advertised_listeners="PLAINTEXT://a:1,SSL://b:2")
    assert [(one.name, one.host, one.port) for one in found.bound] == [("PLAINTEXT", "10.0.0.1", 9092), ("SSL", "", 0)]
    assert [one.text for one in found.advertised_as([9092, 9093], "x")] == ["PLAINTEXT://a:1", "SSL://b:2"]
    told = of(listeners="PLAINTEXT://10.0.0.1:9092,SSL://:0").advertised_as([9092, 9555], "x")
    assert [one.text for one in told] == ["PLAINTEXT://10.0.0.1:9092", "SSL://x:9555"]


def test_names_stand_for_protocols_and_controllers_are_left_out() -> None:
    found = of(
        listeners="INSIDE://[::1]:1,outside://:2,CONTROLLER://:3",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL,CONTROLLER:PLAINTEXT",
        inter_broker_listener_name="INSIDE",
        controller_listener_names="CONTROLLER",
    )
    assert [(one.name, one.protocol) for one in found.bound] == [
        ("INSIDE", SecurityProtocol.PLAINTEXT),
        ("OUTSIDE", SecurityProtocol.SASL_SSL),
    ]
    assert found.bound[0].host == "::1" and found.bound[0].text == "INSIDE://[::1]:1"


def test_brokers_use_the_listener_that_is_named_or_has_their_protocol_or_is_the_only_one() -> None:
    assert of(listeners="SSL://:1,PLAINTEXT://:2").inter_broker == "PLAINTEXT"
    assert of(listeners="SSL://:1,PLAINTEXT://:2", security_inter_broker_protocol="SSL").inter_broker == "SSL"
    assert of(listeners="SSL://:1").inter_broker == "SSL"
    named = of(listeners="SSL://:1,PLAINTEXT://:2", inter_broker_listener_name="SSL")
    assert [one.name for one in named.advertised_as([1, 2], "h")] == ["SSL", "PLAINTEXT"]


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"listeners": "FAST://:9092"}, "no protocol"),
        ({"listeners": "PLAINTEXT://host"}, "NAME://host:port"),
        ({"listeners": "PLAINTEXT://:70000"}, "NAME://host:port"),
        ({"listeners": "CONTROLLER://:9093"}, "no listener for clients"),
        ({"listeners": "PLAINTEXT://:9092,SSL://:9092"}, "port of its own"),
        ({"listeners": "SSL://:1,SSL://:2"}, "name of its own"),
        ({"listeners": "SSL://:1", "advertised.listeners": "PLAINTEXT://a:1"}, "not in listeners"),
        ({"listeners": "SSL://:1", "advertised.listeners": "SSL://0.0.0.0:1"}, "nobody can connect"),
        ({"listeners": "SSL://:1", "inter.broker.listener.name": "PLAINTEXT"}, "not an advertised listener"),
        (
            {"listeners": "SSL://:1", "inter.broker.listener.name": "SSL", "security.inter.broker.protocol": "SSL"},
            "not both",
        ),
        ({"listeners": "SSL://:1,SASL_SSL://:2"}, "say with inter.broker.listener.name"),
        ({"listeners": "SSL://:1", "listener.security.protocol.map": "SSL:TLS"}, "names no listener and protocol"),
        ({"listeners": "SSL://:1", "listener.security.protocol.map": "SSL:SSL,ssl:SSL"}, "twice"),
    ],
)
def test_what_cannot_be_is_refused(properties: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        listeners_of(BrokerConfig(properties))
