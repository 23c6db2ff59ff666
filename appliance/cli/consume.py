"""`appliance consume`: records of a topic to standard output. Joins no group and commits nothing."""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import TopicPartition
from appliance.cli.output import LOCAL_BROKER, Bootstrap, Format, OutputFormat, print_json
from appliance.cli.topics import EARLIEST, LATEST, client_of, require_topics

if TYPE_CHECKING:
    from appliance.client.client import Client
    from appliance.records.reader import Record

MAX_WAIT_MS = 500
"""How long one round over all partitions waits for new records."""
MAX_BYTES = 4 << 20
"""Of one fetch."""
_OFFSET = re.compile(r"(?P<word>start|end|beginning|earliest|latest)|@(?P<time>\d+)|(?P<number>[+-]?\d+)")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\0": "\0", "\\\\": "\\"}


class Isolation(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


def consume(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    offset: Annotated[
        str, typer.Option("--offset", "-o", help="start, end, N, +N after the start, -N before the end, @milliseconds.")
    ] = "end",
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="The same as -o start.")] = False,
    num: Annotated[int, typer.Option("--num", "-n", min=0, help="Stop after so many records; 0 never does.")] = 0,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this partition; may be repeated.")
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", "-e", help="Stop at the end that the topic has now.")
    ] = False,
    isolation: Annotated[
        Isolation, typer.Option("--isolation", help="Which records count.")
    ] = Isolation.READ_UNCOMMITTED,
    template: Annotated[
        str | None,
        typer.Option(
            "--print",
            "-f",
            help="What to print of a record, for instance '%t %p %o %k %v\\n': %t topic, %p partition, %o offset, "
            "%d timestamp, %k key, %v value, %h headers.",
        ),
    ] = None,
    bootstrap_server: Bootstrap = LOCAL_BROKER,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Consume a topic's records."""
    if from_beginning:
        offset = "start"
    if _OFFSET.fullmatch(offset) is None:
        raise typer.BadParameter(f"{offset!r} is no offset", param_hint="--offset")
    level = 1 if isolation is Isolation.READ_COMMITTED else 0
    with client_of(bootstrap_server) as client:
        known = require_topics(client, [topic])[topic].partitions
        for number in partition or ():
            if number not in known:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{number}")
        partitions = [TopicPartition(topic, number) for number in sorted(partition or known)]
        positions = _first_offsets(client, partitions, offset, level)
        ends = None
        if exit_at_end:
            ends = {
                tp: found.offset for tp, found in client.list_offsets(dict.fromkeys(partitions, LATEST), level).items()
            }
        printer = _Printer(topic, output, template)
        try:
            _read(client, positions, ends, num, level, printer)
        except KeyboardInterrupt:
            return


def _read(
    client: Client,
    positions: dict[TopicPartition, int],
    ends: Mapping[TopicPartition, int] | None,
    num: int,
    isolation_level: int,
    printer: _Printer,
) -> None:
    """Round after round over the partitions; one that is alone waits at the broker, several share the wait."""
    from appliance.cli.reading import VisibleRecords

    while True:
        unfinished = [tp for tp in positions if ends is None or positions[tp] < ends[tp]]
        if not unfinished:
            return
        for tp in unfinished:
            answer = client.fetch(
                tp,
                positions[tp],
                max_bytes=MAX_BYTES,
                max_wait_ms=MAX_WAIT_MS // len(unfinished),
                isolation_level=isolation_level,
            )
            if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                positions[tp] = _back_in_range(client, tp, positions[tp])
                continue
            visible = VisibleRecords(answer.records, positions[tp], answer.aborted)
            for record in visible:
                if ends is not None and record.offset >= ends[tp]:
                    continue
                printer.print(tp.partition, record)
                if num and printer.count >= num:
                    return
            positions[tp] = visible.next_offset
        sys.stdout.flush()


def _back_in_range(client: Client, tp: TopicPartition, offset: int) -> int:
    """The nearest offset that exists: retention may have removed what was asked for."""
    start = client.list_offsets({tp: EARLIEST})[tp].offset
    end = client.list_offsets({tp: LATEST})[tp].offset
    nearest = min(max(offset, start), end)
    print(f"{tp}: offset {offset} is not in [{start}, {end}]; going on at {nearest}", file=sys.stderr)
    return nearest


def _first_offsets(
    client: Client, partitions: Iterable[TopicPartition], text: str, isolation_level: int
) -> dict[TopicPartition, int]:
    """Where reading begins in each partition; `text` has been checked."""
    wanted = list(partitions)

    def offsets_at(timestamp: int) -> dict[TopicPartition, int]:
        found = client.list_offsets(dict.fromkeys(wanted, timestamp), isolation_level)
        return {tp: result.offset for tp, result in found.items()}

    match = _OFFSET.fullmatch(text)
    if match is None or match["word"]:
        return offsets_at(LATEST if text in ("end", "latest") else EARLIEST)
    if match["time"]:
        latest = offsets_at(LATEST)
        return {tp: at if at >= 0 else latest[tp] for tp, at in offsets_at(int(match["time"])).items()}
    number = int(match["number"])
    if text[0] == "+":
        return {tp: start + number for tp, start in offsets_at(EARLIEST).items()}
    if number < 0:
        earliest = offsets_at(EARLIEST)
        return {tp: max(earliest[tp], end + number) for tp, end in offsets_at(LATEST).items()}
    return dict.fromkeys(wanted, number)


class _Printer:
    """Writes records to standard output: the value alone, a template, or one JSON object a line."""

    def __init__(self, topic: str, output: Format, template: str | None) -> None:
        self.count = 0
        self._topic = topic
        self._output = output
        self._template = re.sub(r"\\[nt0\\]", lambda found: _ESCAPES[found[0]], template) if template else None

    def print(self, partition: int, record: Record) -> None:
        self.count += 1
        if self._output is Format.JSON:
            print_json(self._document(partition, record))
        elif self._template is not None:
            sys.stdout.buffer.write(self._filled(self._template.encode(), partition, record))
        else:
            sys.stdout.buffer.write((record.value or b"") + b"\n")

    def _filled(self, template: bytes, partition: int, record: Record) -> bytes:
        headers = b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)
        fields = {
            b"t": self._topic.encode(),
            b"p": str(partition).encode(),
            b"o": str(record.offset).encode(),
            b"d": str(record.timestamp).encode(),
            b"k": record.key or b"",
            b"v": record.value or b"",
            b"h": headers,
            b"%": b"%",
        }
        return re.sub(rb"%([tpodkvh%])", lambda found: fields[found[1]], template)

    def _document(self, partition: int, record: Record) -> dict[str, object]:
        return {
            "topic": self._topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            **_bytes_field("key", record.key),
            **_bytes_field("value", record.value),
            "headers": {name: _text_or_base64(value) for name, value in record.headers},
        }


def _bytes_field(name: str, content: bytes | None) -> dict[str, str | None]:
    """As text where it is UTF-8, else under `<name>_base64`."""
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


def _text_or_base64(content: bytes | None) -> str | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return base64.b64encode(content).decode()
