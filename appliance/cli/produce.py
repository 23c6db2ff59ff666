"""`appliance produce`: lines from files or standard input into a topic, each line a record.

Batches carry a producer id and sequence numbers, so that a request that is sent again is appended once. Lines go out
as they come: nothing waits for more input.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.base.errors import ErrorCode, KafkaError, UserError
from appliance.base.ids import TopicPartition
from appliance.cli.output import LOCAL_BROKER, Bootstrap, Format, OutputFormat, print_json
from appliance.cli.partitioning import Partitioner
from appliance.cli.topics import client_of

if TYPE_CHECKING:
    from appliance.client.client import Client
    from appliance.client.cluster import TopicMetadata
    from appliance.records.builder import NewRecord

READ_BYTES = 256 * 1024
LINE_MAX_BYTES = 64 * 1024 * 1024
"""A longer line is refused before more memory is taken for it."""
BATCH_MAX_BYTES = 512 * 1024
"""Half of the default `max.message.bytes`; a record that is larger goes alone, and the broker decides."""
BATCH_MAX_RECORDS = 10_000
AUTO_CREATE_TIMEOUT_S = 3.0
AUTO_CREATE_POLL_S = 0.05
_SEQUENCE_END = 2**31


class Codec(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


_CODEC_NUMBERS = {codec: number for number, codec in enumerate(Codec)}


class Acks(StrEnum):
    ALL = "all"
    LEADER = "1"
    NONE = "0"


_ACKS_NUMBERS = {Acks.ALL: -1, Acks.LEADER: 1, Acks.NONE: 0}


def produce(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files to read lines from; standard input if none.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="What stands between key and value in a line.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", help="name=value for every record; may be repeated.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="The partition of every record.")
    ] = None,
    compression: Annotated[Codec, typer.Option("--compression", "-z", help="The codec of the batches.")] = Codec.NONE,
    acks: Annotated[Acks, typer.Option("--acks", help="Whose copy is waited for.")] = Acks.ALL,
    tombstone: Annotated[bool, typer.Option("--tombstone", "-Z", help="An empty value is no value.")] = False,
    bootstrap_server: Bootstrap = LOCAL_BROKER,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Produce lines, each as one record."""
    if key is not None and key_separator is not None:
        raise typer.BadParameter("--key and --key-separator exclude each other")
    if key_separator == "":
        raise typer.BadParameter("an empty separator cannot be found", param_hint="--key-separator")
    for path in files or []:
        if not path.is_file():
            raise UserError(f"{path} is not a file")
    headers = tuple((name, value.encode()) for name, _, value in (item.partition("=") for item in header or ()))
    separator = key_separator.encode() if key_separator is not None else None
    fixed_key = key.encode() if key is not None else None
    with client_of(bootstrap_server) as client:
        sender = _Sender(client, topic, partition, _CODEC_NUMBERS[compression], _ACKS_NUMBERS[acks])
        for lines in _groups_of_lines(files or []):
            now_ms = time.time_ns() // 1_000_000
            for line in lines:
                record_key, value = _key_and_value(line, fixed_key, separator)
                sender.add((now_ms, record_key, None if tombstone and not value else value, headers))
            sender.flush()
    if output is Format.JSON:
        print_json({"topic": topic, "records": sender.records, "partitions": sender.offsets})
    else:
        print(f"{sender.records} records to {topic}", file=sys.stderr)


def _key_and_value(line: bytes, key: bytes | None, separator: bytes | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return key, line
    left, found, right = line.partition(separator)
    if not found:
        raise UserError(f"a line has no key separator: {line[:60].decode('utf-8', 'replace')!r}")
    return left, right


def _groups_of_lines(files: list[Path]) -> Iterator[list[bytes]]:
    """Lines without their ends, as many at once as could be read without waiting."""
    if not files:
        yield from _lines_of(sys.stdin.fileno(), "standard input")
    for path in files:
        with path.open("rb") as file:
            yield from _lines_of(file.fileno(), str(path))


def _lines_of(descriptor: int, name: str) -> Iterator[list[bytes]]:
    begun: list[bytes] = []
    begun_bytes = 0
    while data := os.read(descriptor, READ_BYTES):
        first, *others = data.split(b"\n")
        begun.append(first)
        begun_bytes += len(first)
        if begun_bytes > LINE_MAX_BYTES:
            raise UserError(f"{name}: a line has more than {LINE_MAX_BYTES} bytes")
        if others:
            yield [b"".join(begun), *others[:-1]]
            begun, begun_bytes = [others[-1]], len(others[-1])
    if begun_bytes:
        yield [b"".join(begun)]


class _Sender:
    """Gathers records into one batch for each partition and sends them in order."""

    def __init__(self, client: Client, topic: str, partition: int | None, codec: int, acks: int) -> None:
        self._client = client
        self._topic = topic
        self._codec = codec
        self._acks = acks
        self._partitions = self._partitions_of(partition)
        self._partitioner = Partitioner(self._partitions)
        self._without_key: int | None = None
        self._batches: dict[int, list[NewRecord]] = {}
        self._sizes: dict[int, int] = {}
        self._sequences: dict[int, int] = {}
        self._producer: tuple[int, int] | None = None
        self.records = 0
        self.offsets: dict[int, dict[str, int]] = {}

    def _partitions_of(self, partition: int | None) -> list[int]:
        known = self._client.metadata([self._topic]).topics[self._topic]
        if known.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            known = self._auto_created()
        if known.error != ErrorCode.NONE:
            raise KafkaError(known.error, f"topic {self._topic}")
        if partition is not None and partition not in known.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self._topic}-{partition}")
        return [partition] if partition is not None else sorted(known.partitions)

    def _auto_created(self) -> TopicMetadata:
        """Ask as Kafka's producers do, which creates the topic where `auto.create.topics.enable` is on."""
        from appliance.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

        deadline = time.monotonic() + AUTO_CREATE_TIMEOUT_S
        while True:
            wanted = [MetadataRequestTopic(name=self._topic)]
            self._client.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=True))
            known = self._client.metadata([self._topic]).topics[self._topic]
            if known.error == ErrorCode.NONE or not known.error.retriable or time.monotonic() > deadline:
                return known
            time.sleep(AUTO_CREATE_POLL_S)

    def add(self, record: NewRecord) -> None:
        _, key, value, _ = record
        if key is not None:
            partition = self._partitioner.of_key(key)
        else:
            if self._without_key is None:
                self._without_key = self._partitioner.next_without_key()
            partition = self._without_key
        size = len(key or b"") + len(value or b"") + 16
        waiting = self._batches.setdefault(partition, [])
        if waiting and (self._sizes[partition] + size > BATCH_MAX_BYTES or len(waiting) >= BATCH_MAX_RECORDS):
            self._send(partition)
            waiting = self._batches.setdefault(partition, [])
        waiting.append(record)
        self._sizes[partition] = self._sizes.get(partition, 0) + size

    def flush(self) -> None:
        for partition in sorted(self._batches):
            self._send(partition)
        self._without_key = None

    def _send(self, partition: int) -> None:
        from appliance.records.builder import build_batch

        records = self._batches.pop(partition)
        self._sizes.pop(partition)
        # Without an answer nothing is ever sent again, so there is nothing to tell apart.
        producer_id, producer_epoch = (-1, -1) if self._acks == 0 else self._producer or self._new_producer()
        sequence = self._sequences.get(partition, 0) if producer_id >= 0 else -1
        batch = build_batch(
            records,
            codec=self._codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )
        result = self._client.produce(TopicPartition(self._topic, partition), batch, acks=self._acks)
        if producer_id >= 0:
            # Sequence numbers begin again at 0 after the largest.
            self._sequences[partition] = (sequence + len(records)) % _SEQUENCE_END
        self.records += len(records)
        if result.base_offset >= 0:
            seen = self.offsets.setdefault(partition, {"first": result.base_offset, "last": -1})
            seen["last"] = result.base_offset + len(records) - 1

    def _new_producer(self) -> tuple[int, int]:
        from appliance.client.connection import error_of
        from appliance.wire.messages.init_producer_id import InitProducerIdRequest

        answer = self._client.call(InitProducerIdRequest(transactional_id=None))
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(error_of(answer.error_code), "no producer id")
        self._producer = (answer.producer_id, answer.producer_epoch)
        return self._producer
