"""Who is asked for what, and whose pushes are taken."""

from __future__ import annotations

import uuid

import pytest

from appliance.base.config import BrokerConfig
from appliance.base.config_resources import CLIENT_METRICS, validate_resource_config
from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import METADATA_TOPIC_ID, ZERO_UUID, uuid_to_text
from appliance.telemetry import clients
from appliance.telemetry.clients import Client, ClientTelemetry
from appliance.telemetry.otlp import Pushed, Series
from appliance.telemetry.subscriptions import About, wanted_of

ME = About("me", "librdkafka", "2.16.0", "10.0.0.7", "4711", "User:me")
ID = uuid.UUID(int=0x1234_5678_9ABC_4DEF_8123_4567_89AB_CDEF)
SUBSCRIBED = {"one": {"metrics": "a.,b.", "interval.ms": "1000", "match": "client_id=me"}}
THROTTLED, UNKNOWN = ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.UNKNOWN_SUBSCRIPTION_ID


def telemetry(configs: dict[str, dict[str, str]] | None = None) -> ClientTelemetry:
    made = ClientTelemetry(1_000, uuid.uuid4)
    made.subscriptions_changed(SUBSCRIBED if configs is None else configs)
    return made


def asked(made: ClientTelemetry, now_ms: int, instance_id: uuid.UUID = ID, about: About = ME) -> Client:
    found = made.ask(instance_id, about, now_ms)
    assert isinstance(found, Client), found
    return found


def push(
    made: ClientTelemetry,
    client: Client,
    now_ms: int,
    *,
    last: bool = False,
    codec: int = 0,
    size: int = 9,
    id_: int = 0,
) -> ErrorCode:
    found = made.may_push(
        client.instance_id,
        ME,
        now_ms,
        subscription_id=id_ or client.wanted.subscription_id,
        terminating=last,
        codec=codec,
        size=size,
    )
    return found if isinstance(found, ErrorCode) else ErrorCode.NONE


def test_a_client_is_asked_for_what_those_want_that_meet_it() -> None:
    more = {
        "two": {"metrics": "c.", "interval.ms": "500", "match": "client_software_name=lib.*,client_source_port=47.."},
        "others": {"metrics": "x.", "match": "client_id=m"},
        "nobody": {"metrics": "y.", "interval.ms": "100", "match": r"client_id=(?<!x)me"},
    }
    found = asked(telemetry(SUBSCRIBED | more), 0)
    assert found.wanted.metrics == ("a.", "b.", "c.")
    assert found.wanted.interval_ms == 500
    every = {"all": {"metrics": "*", "match": f"client_instance_id={uuid_to_text(ID)},client_source_address=10[.].*"}}
    assert asked(telemetry(SUBSCRIBED | every), 0).wanted.metrics == ("*",)
    assert asked(telemetry({}), 0).wanted[1:] == (300_000, ())


def test_the_number_of_a_subscription_is_kafkas() -> None:
    """CRC-32C of `[*]300000`, mixed with Java's hash of the id."""
    subscriptions = ClientTelemetry(1, uuid.uuid4)
    subscriptions.subscriptions_changed({"all": {"metrics": "*"}})
    assert wanted_of(subscriptions._subscriptions, uuid.UUID(int=0), ME).subscription_id == CRC_OF_ALL
    mixed = wanted_of(subscriptions._subscriptions, uuid.UUID(int=5 << 96 | 3), ME).subscription_id
    assert mixed == CRC_OF_ALL ^ 5 ^ 3


CRC_OF_ALL = 1_012_207_395


def test_each_client_gets_an_id_and_keeps_it() -> None:
    made = telemetry()
    first, second = asked(made, 0, ZERO_UUID), asked(made, 0, ZERO_UUID)
    assert first.instance_id != second.instance_id
    assert asked(made, 1_000, first.instance_id) is first


def test_who_asks_too_early_is_told_so() -> None:
    made = telemetry()
    asked(made, 0)
    assert made.ask(ID, ME, 999) == THROTTLED
    assert isinstance(made.ask(ID, ME, 1_000), Client)
    assert made.throttled == 1


def test_the_first_push_may_come_at_once_and_the_next_ones_after_the_interval() -> None:
    made = telemetry()
    client = asked(made, 0)
    assert [push(made, client, at) for at in (1, 1_000, 1_001, 1_500, 2_001)] == [0, THROTTLED, 0, THROTTLED, 0]


def test_the_last_push_comes_at_any_time_and_none_comes_after_it() -> None:
    made = telemetry()
    client = asked(made, 0)
    assert [push(made, client, 1), push(made, client, 2, last=True)] == [0, 0]
    assert push(made, client, 5_000) == ErrorCode.INVALID_REQUEST


def test_a_push_of_another_subscription_makes_its_client_ask_again_at_once() -> None:
    made = telemetry()
    client = asked(made, 0)
    made.subscriptions_changed({"other": {"metrics": "z."}})
    assert push(made, client, 10, id_=12345) == UNKNOWN
    assert asked(made, 11).wanted.metrics == ("z.",)
    assert push(made, client, 12) == ErrorCode.NONE
    assert made.ask(ID, ME, 13) == THROTTLED


def test_pushes_that_cannot_be_are_refused() -> None:
    made = telemetry()
    client = asked(made, 0)
    assert push(made, client, 1, codec=5) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert push(made, client, 2_000, size=1_001) == ErrorCode.TELEMETRY_TOO_LARGE
    assert [push(made, client, 3_000 + 1_000 * codec, codec=codec) for codec in range(5)] == [0] * 5
    for reserved in (ZERO_UUID, METADATA_TOPIC_ID):
        found = made.may_push(reserved, ME, 0, subscription_id=0, terminating=False, codec=0, size=0)
        assert found == ErrorCode.INVALID_REQUEST


def test_a_broker_that_has_never_seen_a_client_takes_its_push() -> None:
    client = asked(telemetry(), 0)
    assert push(telemetry(), client, 5) == ErrorCode.NONE


def pushed(count: int) -> Pushed:
    return Pushed((), tuple(Series("n", (), number) for number in range(count)), 0)


def test_the_newest_push_is_kept_until_its_client_is_silent() -> None:
    made = telemetry()
    client = asked(made, 0)
    for count in (3, 2):
        made.take(client, pushed(count))
    assert [len(each.pushed.series) for each in made.clients(60_000)] == [2]
    assert made.clients(60_001) == []
    assert asked(made, 70_000).pushed == pushed(0)


def test_so_many_clients_are_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "CLIENTS_MAX", 3)
    made = telemetry()
    ids = [uuid.UUID(int=number) for number in range(2, 12)]
    for instance_id in ids:
        asked(made, 0, instance_id)
    assert [client.instance_id for client in made.clients(0)] == ids[-3:]


def test_so_many_values_are_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "SERIES_KEPT_MAX", 10)
    made = telemetry()
    for number in range(2, 6):
        made.take(asked(made, 0, uuid.UUID(int=number)), pushed(4))
    assert [len(client.pushed.series) for client in made.clients(0)] == [0, 0, 4, 4]


@pytest.mark.parametrize(
    "match", ["client_id", "group_id=x", "client_id=[", "client_id=a=b", f"client_id={1_001 * 'a'}"]
)
def test_patterns_that_cannot_be_are_refused(match: str) -> None:
    with pytest.raises(KafkaError, match="match"):
        validate_resource_config(CLIENT_METRICS, {"match": match}, BrokerConfig())
    validate_resource_config(CLIENT_METRICS, {"match": "client_id=a.*,client_source_port=1|2"}, BrokerConfig())
