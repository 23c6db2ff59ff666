"""Fetch sessions: the same requests, one after the other, to Apache Kafka and to us, and the same answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.wire.messages.create_topics import CreatableTopicResult
from appliance.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from appliance.wire.messages.fetch import FetchResponse, ForgottenTopic
from tests.support.broker import RunningCluster
from tests.support.kafka_peer import KafkaPeer
from tests.support.requests import batch_of, fetch, fetch_request, new_topic, produce, values_of

Told = tuple[int, int, int, int, int]
"""Partition, error code, high watermark, log start offset, number of records."""

pytestmark = pytest.mark.java


@dataclass
class Script:
    """A reader with a session, and everything that it was answered."""

    connection: Connection
    version: int
    topic: CreatableTopicResult
    session_id: int = 0
    epoch: int = 0
    answers: list[tuple[int, bool, list[Told]]] = field(default_factory=list)

    def ask(
        self,
        offsets: Mapping[int, int] | None = None,
        forgotten: tuple[int, ...] = (),
        *,
        session_id: int | None = None,
        epoch: int | None = None,
        version: int | None = None,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
    ) -> FetchResponse:
        request = fetch_request(
            self.topic,
            offsets or {},
            max_bytes=max_bytes,
            partition_max_bytes=partition_max_bytes,
            session_id=self.session_id if session_id is None else session_id,
            session_epoch=self.epoch if epoch is None else epoch,
        )
        if not offsets:
            request.topics = []
        if forgotten:
            request.forgotten_topics_data = [
                ForgottenTopic(topic=self.topic.name, topic_id=self.topic.topic_id, partitions=list(forgotten))
            ]
        response = self.connection.call(request, version or self.version)
        told = [
            (
                data.partition_index,
                data.error_code,
                data.high_watermark,
                data.log_start_offset,
                len(values_of(whole_batches(data.records))),
            )
            for topic in response.responses
            for data in topic.partitions
        ]
        self.answers.append((response.error_code, response.session_id != 0, told))
        if not response.error_code:
            if self.epoch == 0:
                self.session_id = response.session_id
            self.epoch += 1
        return response

    def produce(self, partition: int, count: int = 1, value: bytes = b"x") -> None:
        for _ in range(count):
            assert produce(self.connection, self.topic, batch_of(value), partition=partition).error_code == 0

    def delete_below(self, partition: int, offset: int) -> None:
        wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
        topic = DeleteRecordsTopic(name=self.topic.name, partitions=[wanted])
        (done,) = self.connection.call(DeleteRecordsRequest(topics=[topic], timeout_ms=5_000)).topics
        assert done.partitions[0].error_code == 0


def whole_batches(records: object) -> bytes:
    """Kafka cuts the last batch off where the limit lies; a reader throws that away."""
    data = bytes(records or b"")  # type: ignore[call-overload]
    at = 0
    while at + 12 <= len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if at + size > len(data):
            break
        at += size
    return data[:at]


def only_news_is_told(script: Script) -> None:
    script.ask({0: 0, 1: 0, 2: 0, 3: 0})
    script.ask()
    script.produce(1)
    script.produce(3, count=2)
    script.ask()
    script.ask()  # the offsets did not move: the same records again
    script.ask({1: 1})
    script.ask({3: 2})
    script.ask()


def who_brought_records_goes_behind(script: Script) -> None:
    for partition in range(4):
        script.produce(partition, count=3, value=b"x" * 1_000)
    offsets = dict.fromkeys(range(4), 0)
    script.ask(offsets, max_bytes=1_500)
    for _ in range(8):
        changed = {number: offsets[number] + count for number, _, _, _, count in script.answers[-1][2] if count}
        offsets.update(changed)
        script.ask(changed, max_bytes=1_500, partition_max_bytes=1_500)


def errors_are_told_each_time_and_their_end(script: Script) -> None:
    script.produce(0)
    script.ask({0: 5, 9: 0, 1: 0})
    script.ask()
    script.ask({0: 1})
    script.ask()
    script.ask(forgotten=(9,))
    script.ask()


def a_new_log_start_is_told(script: Script) -> None:
    script.produce(0, count=3)
    script.produce(1)
    script.ask({0: 3, 1: 1})
    script.ask()
    script.delete_below(0, 2)
    script.ask()
    script.ask()
    script.ask({0: 1})


def partitions_come_and_go(script: Script) -> None:
    script.ask({0: 0})
    script.produce(1)
    script.ask({1: 0})
    script.ask(forgotten=(1,))
    script.produce(1)
    script.produce(0)
    script.ask({2: 0})
    script.ask({0: 1}, forgotten=(0,))
    script.ask(forgotten=(2,))
    script.ask()


def wrong_sessions_and_epochs_are_refused(script: Script) -> None:
    script.ask({0: 0})
    script.ask(epoch=7)
    script.ask(session_id=script.session_id + 1)
    script.ask({0: 0}, version=12 if script.version >= 13 else 13)
    script.ask()
    script.ask({0: 0}, epoch=-1)
    script.ask()
    script.ask({0: 0}, session_id=0, epoch=-1)


SCRIPTS = (
    only_news_is_told,
    who_brought_records_goes_behind,
    errors_are_told_each_time_and_their_end,
    a_new_log_start_is_told,
    partitions_come_and_go,
    wrong_sessions_and_epochs_are_refused,
)


@pytest.fixture(scope="module")
def kafka(kafka_peer: KafkaPeer) -> Iterator[Connection]:
    with Connection("127.0.0.1", kafka_peer.port, client_id="test", timeout_ms=10_000) as connection:
        yield connection


def run(connection: Connection, version: int, steps: Callable[[Script], None], name: str) -> Script:
    topic = new_topic(connection, partitions=4, name=name)
    script = Script(connection, version, topic)
    deadline = time.monotonic() + 20
    while any(fetch(connection, topic, 0, partition=number).error_code for number in range(4)):
        assert time.monotonic() < deadline, "the topic has no leaders"
        time.sleep(0.05)
    steps(script)
    return script


@pytest.mark.parametrize("version", [7, 12, 13, 17])
@pytest.mark.parametrize("steps", SCRIPTS, ids=lambda steps: steps.__name__)
def test_answers_are_those_of_kafka(
    connection: Connection, kafka: Connection, version: int, steps: Callable[[Script], None]
) -> None:
    name = f"sessions-{steps.__name__}-{version}"
    theirs = run(kafka, version, steps, name).answers
    ours = run(connection, version, steps, name).answers
    for number, (mine, kafkas) in enumerate(zip(ours, theirs, strict=True)):
        assert mine == kafkas, f"answer {number}; before it {ours[max(0, number - 1)]}"
    assert any(told for _, _, told in ours)


def test_a_session_that_another_connection_went_on_with_is_refused(
    connection: Connection, cluster: RunningCluster
) -> None:
    import threading

    topic = new_topic(connection)
    script = Script(connection, 12, topic)
    script.ask({0: 0})
    found: list[FetchResponse] = []

    def wait() -> None:
        with Connection("127.0.0.1", cluster.brokers[1].port, client_id="other", timeout_ms=10_000) as other:
            request = fetch_request(topic, {}, max_wait_ms=8_000, session_id=script.session_id, session_epoch=1)
            request.topics = []
            found.append(other.call(request, 12))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    script.ask(epoch=2)
    thread.join(5)
    assert [response.error_code for response in found] == [ErrorCode.INVALID_FETCH_SESSION_EPOCH]
