"""Options are those of Spark's Kafka source; what is wrong is named."""

from __future__ import annotations

import pytest

from appliance.base.ids import TopicPartition
from spark.options import EARLIEST, LATEST, AtTimestamp, OptionError, parse_options
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
    with pytest.raises(OptionError, match="a batch has no triggers"):
        parse_options({**SERVERS, "subscribe": "a", "maxOffsetsPerTrigger": "9"})


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
