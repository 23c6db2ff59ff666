"""Options are those of Spark's Kafka source; what is wrong is named."""

from __future__ import annotations

import pytest

from appliance.base.ids import TopicPartition
from spark.option_values import OptionError
from spark.options import EARLIEST, LATEST, AtTimestamp, parse_options, passed_over
from spark.sink_options import parse_sink_options
from spark.source import wanted_columns

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    options = parse_options({**SERVERS, "subscribe": "a, b,a"})
    assert options.subscribe == ("a", "b")
    assert (options.starting_offsets, options.ending_offsets) == (EARLIEST, LATEST)
    assert options.fail_on_data_loss and not options.include_headers and not options.read_committed
    assert options.tier == "auto" and options.object_store is None


def test_names_come_in_any_case() -> None:
    options = parse_options(
        {**SERVERS, "SUBSCRIBEPATTERN": "fl.*", "maxrecordsperpartition": "5", "FailOnDataLoss": "FALSE"}
    )
    assert options.wants("flights") and not options.wants("old-flights")
    assert options.max_records_per_partition == 5
    assert not options.fail_on_data_loss


def test_offsets_and_assignment_are_sparks_json() -> None:
    options = parse_options(
        {
            **SERVERS,
            "assign": '{"a": [1, 0]}',
            "startingOffsets": '{"a": {"0": 23, "1": -2}}',
            "endingOffsets": '{"a": {"0": 50, "1": -1}}',
        }
    )
    assert options.assign == (TopicPartition("a", 1), TopicPartition("a", 0))
    assert options.starting_offsets == {TopicPartition("a", 0): 23, TopicPartition("a", 1): EARLIEST}
    assert options.ending_offsets == {TopicPartition("a", 0): 50, TopicPartition("a", 1): LATEST}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"subscribe": "a"}, "kafka.bootstrap.servers"),
        (SERVERS, "exactly one of subscribe"),
        ({**SERVERS, "subscribe": "a", "assign": '{"a":[0]}'}, "exactly one of subscribe"),
        ({**SERVERS, "subscribe": "a", "startingOffset": "latest"}, "startingoffset"),
        ({**SERVERS, "subscribe": "a", "startingOffsets": "latest"}, "startingOffsets cannot be latest"),
        ({**SERVERS, "subscribe": "a", "endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({**SERVERS, "subscribe": "a", "startingOffsets": "7"}, "startingOffsets is earliest"),
        ({**SERVERS, "subscribe": "a", "startingOffsets": '{"a":{"0":-1}}'}, "a-0"),
        ({**SERVERS, "subscribe": "a", "tier": "cold"}, "tier is one of"),
        ({**SERVERS, "subscribe": "a", "minPartitions": "0"}, "minPartitions"),
        ({**SERVERS, "subscribe": "a", "includeHeaders": "yes"}, "includeHeaders"),
        ({**SERVERS, "subscribe": "a", "isolationLevel": "serializable"}, "isolationLevel"),
        ({**SERVERS, "subscribePattern": "("}, "subscribePattern"),
        ({**SERVERS, "assign": "[0]"}, "assign"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], named: str) -> None:
    with pytest.raises(OptionError, match=named.replace(".", r"\.")):
        parse_options(given)


def test_a_stream_begins_at_the_end_and_a_batch_at_the_beginning() -> None:
    assert parse_options({**SERVERS, "subscribe": "a"}, streaming=True).starting_offsets == LATEST
    limited = parse_options({**SERVERS, "subscribe": "a", "maxoffsetspertrigger": "9"}, streaming=True)
    assert limited.max_offsets_per_trigger == 9
    with pytest.raises(OptionError, match="a stream has no end"):
        parse_options({**SERVERS, "subscribe": "a", "endingOffsets": "latest"}, streaming=True)


@pytest.mark.parametrize("streaming", [False, True])
def test_every_option_of_sparks_kafka_source_is_known(streaming: bool) -> None:
    both = {
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "subscribe": "a",
        "startingOffsets": '{"a": {"0": 1}}',
        "startingOffsetsByTimestamp": '{"a": {"0": 1}}',
        "startingTimestamp": "1",
        "startingOffsetsByTimestampStrategy": "latest",
        "failOnDataLoss": "false",
        "fetchOffset.numRetries": "3",
        "fetchOffset.retryIntervalMs": "10",
        "groupIdPrefix": "mine",
        "includeHeaders": "true",
        "kafka.group.id": "mine",
        "kafkaConsumer.pollTimeoutMs": "120000",
        "maxOffsetsPerTrigger": "9",
        "maxRecordsPerPartition": "9",
        "maxTriggerDelay": "15m",
        "minOffsetsPerTrigger": "9",
        "minPartitions": "9",
    }
    ends = {
        "endingOffsets": '{"a": {"0": 1}}',
        "endingOffsetsByTimestamp": '{"a": {"0": 1}}',
        "endingTimestamp": "1",
    }
    assert parse_options(both if streaming else both | ends, streaming=streaming).starting_offsets == AtTimestamp(
        1, True
    )


def test_triggers_wait_as_those_of_sparks_kafka_source() -> None:
    def parsed(**given: str) -> tuple[int, int, int]:
        options = parse_options({**SERVERS, "subscribe": "a", **given}, streaming=True)
        return options.min_offsets_per_trigger, options.max_offsets_per_trigger, options.max_trigger_delay_ms

    quarter = 15 * 60_000
    assert parsed() == (0, 0, quarter)
    assert parsed(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5") == (5, 5, quarter)
    for text, expected in {
        "90s": 90_000,
        "2m": 120_000,
        " 2MIN": 120_000,
        "1h": 3_600_000,
        "70": 70,
        "1500us": 1,
    }.items():
        assert parsed(maxtriggerdelay=text)[2] == expected, text
    for text in ("soon", "1 m", "-1s", "1.5s", "3w"):
        with pytest.raises(OptionError, match="maxTriggerDelay is a number with one of the units"):
            parsed(maxTriggerDelay=text)
    with pytest.raises(OptionError, match=r"minOffsetsPerTrigger \(6\) is above maxOffsetsPerTrigger \(5\)"):
        parsed(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")


def test_a_batch_passes_over_what_is_about_triggers() -> None:
    given = {**SERVERS, "subscribe": "a", "maxOffsetsPerTrigger": "9", "maxTriggerDelay": "1s"}
    assert parse_options(given).subscribe == ("a",)
    assert passed_over(given) == ["maxoffsetspertrigger", "maxtriggerdelay"]
    assert passed_over(given, streaming=True) == []


def test_configs_of_kafkas_consumers_mean_what_they_can_mean_here() -> None:
    given = {
        **SERVERS,
        "subscribe": "a",
        "kafka.isolation.level": "read_committed",
        "kafka.request.timeout.ms": "7000",
        "kafka.check.crcs": "false",
        "kafka.client.id": "me",
        "kafkaConsumer.pollTimeoutMs": "512",
        "fetchOffset.numRetries": "0",
        "fetchOffset.retryIntervalMs": "10",
    }
    options = parse_options(given)
    assert options.read_committed and not options.verify_crc
    assert (options.request_timeout_ms, options.poll_timeout_ms, options.client_id) == (7_000, 512, "me")
    assert (options.offset_retries, options.offset_retry_interval_ms) == (0, 10)
    assert not parse_options({**given, "isolationLevel": "read_uncommitted"}).read_committed, "our name goes first"
    of_groups = {"groupIdPrefix": "x", "kafka.group.id": "y", "kafka.session.timeout.ms": "1"}
    assert parse_options({**given, **of_groups}) == options
    assert passed_over({**given, **of_groups}) == ["groupidprefix", "kafka.group.id", "kafka.session.timeout.ms"]
    sink = {**SERVERS, "topic": "a", "kafka.acks": "1", "kafka.client.id": "me", "kafka.request.timeout.ms": "7000"}
    assert (parse_sink_options(sink).client_id, parse_sink_options(sink).request_timeout_ms) == ("me", 7_000)


@pytest.mark.parametrize("name", ["auto.offset.reset", "enable.auto.commit", "key.deserializer", "interceptor.classes"])
def test_what_sparks_kafka_source_refuses_is_refused_with_a_reason(name: str) -> None:
    with pytest.raises(OptionError, match=f"option kafka.{name} is not taken: "):
        parse_options({**SERVERS, "subscribe": "a", f"kafka.{name}": "x"})
    with pytest.raises(OptionError, match=r"option kafka\.key\.serializer is not taken: "):
        parse_sink_options({**SERVERS, "topic": "a", "kafka.key.serializer": "x"})


def test_a_time_for_all_goes_before_times_for_each_and_these_before_offsets() -> None:
    given = {**SERVERS, "subscribe": "a", "startingOffsets": "earliest"}
    given["startingOffsetsByTimestamp"] = '{"a": {"0": 5}}'
    assert parse_options(given).starting_offsets == AtTimestamp({TopicPartition("a", 0): 5}, False)
    given |= {"startingTimestamp": "7", "startingOffsetsByTimestampStrategy": "latest"}
    assert parse_options(given).starting_offsets == AtTimestamp(7, True)
    assert parse_options(given | {"endingTimestamp": "9"}).ending_offsets == AtTimestamp(9, True)


def test_columns_are_named_in_the_order_of_the_rows() -> None:
    assert wanted_columns({"COLUMNS": "offset, key,offset"}) == ("offset", "key")
    assert wanted_columns({"columnsX": "key"}) is None
    for text in ("", "colour", "key,colour"):
        with pytest.raises(OptionError, match="columns takes names out of key, value"):
            wanted_columns({"columns": text})
