"""Readers and writers at a listener with TLS and passwords, by the options of Spark's Kafka source."""

from __future__ import annotations

import contextlib
import io
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from appliance.base.errors import UserError
from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.client.results import NewTopic
from appliance.client.security import NotAuthenticated
from appliance.records.builder import build_batch
from spark.jobs.common import arguments_of, options_of
from spark.option_values import OptionError
from spark.options import parse_options
from spark.planning import plan_batch
from spark.reading import read_split
from spark.sink_options import parse_sink_options
from spark.sink_task import write_exactly_once
from spark.stream import ApplianceStreamReader
from tests.support.certificates import Authority
from tests.support.secured import secured_server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240), pytest.mark.xdist_group("spark")]

PASSWORD = "what nobody may read, ;'=ü"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@dataclass
class Secured:
    """A broker whose listener for readers asks for TLS and a password; a topic of 200 records."""

    servers: str
    authority: Authority

    @property
    def options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.servers,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{LOGIN} username="alice" password="{PASSWORD}";',
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self.authority.ca),
        }

    def numbers(self, topic: str, **options: str) -> list[int]:
        """What a batch read without a session finds."""
        parsed = parse_options({**self.options, "subscribe": topic, **options})
        return sorted(
            int(value)
            for split in plan_batch(parsed).splits
            for rows in read_split(parsed, ("value",), split)
            for value in rows["value"].to_pylist()
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    authority = Authority(tmp_path_factory.mktemp("keys"))
    properties = {
        "sasl.enabled.mechanisms": "PLAIN",
        "connection.failed.authentication.delay.ms": "10",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker", CN="broker")),
        "listener.name.closed.plain.sasl.jaas.config": f'{LOGIN} user_alice="{PASSWORD}";',
    }
    folder = tmp_path_factory.mktemp("secured")
    with secured_server("appliance", folder, {"CLOSED": "SASL_SSL"}, properties) as server:
        with Client(server.at("PLAINTEXT")) as client:
            configs = {"retention.ms": "-1"}
            client.create_topics(
                [NewTopic(name, 2, configs=configs) for name in ("closed", "copy", "streamed", "written")]
            )
            for partition in (0, 1):
                rows = [(n, None, b"%d" % n, []) for n in range(partition, 200, 2)]
                client.produce(TopicPartition("closed", partition), build_batch(rows))
        yield Secured(server.at("CLOSED"), authority)


def test_batches_and_streams_come_in_with_a_password(secured: Secured) -> None:
    assert secured.numbers("closed") == list(range(200))
    options = parse_options({**secured.options, "subscribe": "closed", "startingOffsets": "earliest"}, streaming=True)
    reader = pickle.loads(pickle.dumps(ApplianceStreamReader(options, ("value",))))
    assert reader.initialOffset() == {"closed": {"0": 0, "1": 0}}
    splits = reader.partitions({"closed": {"0": 0, "1": 0}}, {"closed": {"0": 10, "1": 5}})
    assert sum(rows.num_rows for split in splits for rows in reader.read(split)) == 15


def test_a_sink_comes_in_with_a_password(secured: Secured) -> None:
    options = parse_sink_options({**secured.options, "topic": "written", "delivery": "exactly_once"})
    rows = (("written", None, (n, b"%d" % n, b"%d" % n, ())) for n in range(50))
    assert write_exactly_once(options, rows, "secured", 0) == 50
    assert secured.numbers("written", isolationLevel="read_committed") == list(range(50))


def test_spark_reads_and_writes_there_and_prints_no_secret(secured: Secured, spark: SparkSession) -> None:
    batch = spark.read.format("appliance").options(**secured.options, subscribe="closed").load()
    writer = batch.select("value").write.format("appliance").options(**secured.options, topic="copy")
    writer.option("delivery", "exactly_once").mode("append").save()
    assert secured.numbers("copy", isolationLevel="read_committed") == list(range(200))
    stream = spark.readStream.format("appliance").options(**secured.options, subscribe="closed").load()
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        batch.explain(True)
        batch.explain("formatted")
        stream.explain(True)
    assert "nobody" not in told.getvalue() + repr(batch) + repr(stream)


@pytest.mark.soak
def test_a_query_comes_in_with_a_password_and_its_checkpoint_holds_no_secret(
    secured: Secured, spark: SparkSession, tmp_path: Path
) -> None:
    stream = spark.readStream.format("appliance").options(
        **secured.options, subscribe="closed", startingOffsets="earliest"
    )
    writer = stream.load().select("value").writeStream.format("appliance").options(**secured.options, topic="streamed")
    writer = writer.option("delivery", "exactly_once").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert secured.numbers("streamed", isolationLevel="read_committed") == list(range(200))
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        query.explain(True)
    kept = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())
    assert "nobody" not in told.getvalue() + kept + str(query.lastProgress)


def test_secrets_are_in_no_text_of_the_options_and_in_no_error(secured: Secured) -> None:
    options = parse_options({**secured.options, "subscribe": "closed"})
    assert "nobody" not in repr(options)
    assert "nobody" not in repr(parse_sink_options({**secured.options, "topic": "copy"}))
    wrong = {
        "kafka.sasl.jaas.config": f'{LOGIN} username="alice" password="{PASSWORD}-not";',
        "kafka.ssl.truststore.location": str(secured.authority.folder / "nobody-knows.pem"),
        "kafka.sasl.mechanism": "GSSAPI",
        "kafka.ssl.truststore.type": "JKS",
    }
    for name, value in wrong.items():
        with pytest.raises((NotAuthenticated, UserError, OSError)) as raised:
            plan_batch(parse_options({**secured.options, "subscribe": "closed", name: value}))
        assert "may read" not in str(raised.value)


def test_a_broken_jaas_entry_is_named_without_its_text(secured: Secured) -> None:
    for entry in (PASSWORD, f"{LOGIN} password={PASSWORD}", f'{LOGIN} password="{PASSWORD}'):
        options = parse_options({**secured.options, "subscribe": "closed", "kafka.sasl.jaas.config": entry})
        with pytest.raises(UserError, match=r"sasl\.jaas\.config") as raised:
            plan_batch(options)
        assert "nobody" not in str(raised.value)


def test_other_options_of_sasl_are_not_passed_over() -> None:
    with pytest.raises(OptionError, match=r"kafka\.sasl\.login\.class is not known"):
        parse_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t", "kafka.sasl.login.class": "x"})


def test_jobs_take_the_file_that_kafkas_tools_take(secured: Secured, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    lines = [f"{name.removeprefix('kafka.')}={text}" for name, text in secured.options.items() if "boot" not in name]
    file.write_text("\n".join([*lines, "client.id=passed over"]))
    given = ["--bootstrap-servers", secured.servers, "--topics", "closed", "--command-config", str(file)]
    options = options_of(arguments_of("job", "").parse_args(given))
    assert options == {**secured.options, "subscribe": "closed"}
    assert plan_batch(parse_options(options)).splits
