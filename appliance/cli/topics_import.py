"""`appliance topics import`: make topics of the folders that an Apache Kafka broker has written.

Everything is read and checked first, without a byte changed and without a broker asked. Then the topics are created,
and each partition's batches go to its leader as they are: offsets, times, headers, compression, producers and
transactions stay, only the leader epoch becomes that of the new leader. The appliance goes on serving meanwhile.
"""

from __future__ import annotations

import fcntl
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.base.errors import ErrorCode, KafkaError, UserError
from appliance.base.ids import TopicPartition
from appliance.cli import secured
from appliance.cli.output import LOCAL_BROKER, Bootstrap, Format, OutputFormat, key_values, print_json, print_table

if TYPE_CHECKING:
    from appliance.client.client import Client
    from appliance.client.connection import Connection
    from appliance.log.foreign import Content, ForeignLog

REQUEST_BYTES = 1 << 20
REQUEST_BATCHES = 1_000
PROGRESS_INTERVAL_S = 2.0
LEADER_PATIENCE_S = 30.0
DEFAULT_RETENTION_MS = 7 * 86_400_000
EXIT_REFUSED = 1
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
LOCK_FILE = ".lock"


@dataclass(slots=True)
class _Import:
    """One partition on its way."""

    log: ForeignLog
    content: Content
    target: TopicPartition


def import_topics(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Partition folders, or data folders.")],
    topic: Annotated[str, typer.Option("--topic", "-t", help="Only this topic of those in DIR.")] = "",
    new_name: Annotated[str, typer.Option("--as", help="The name of the new topic, if not the same.")] = "",
    replicas: Annotated[int, typer.Option("--replicas", "-r", help="Of each partition.")] = -1,
    config: Annotated[list[str] | None, typer.Option("--config", "-c", help="name=value; may be repeated.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the folders and change nothing.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an import that was interrupted.")] = False,
    partial: Annotated[bool, typer.Option("--partial", help="Partitions without a folder stay empty.")] = False,
    abort_open: Annotated[
        bool, typer.Option("--abort-open-transactions", help="End transactions that are still open with an abort.")
    ] = False,
    bootstrap_server: Bootstrap = LOCAL_BROKER,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Make topics of folders that Apache Kafka has written: same records, offsets, times and producers."""
    configs = key_values(config or (), "--config")
    logs = _chosen(directories, topic, new_name, partial)
    imports = _checked(logs, new_name)
    for one in imports:
        _refuse_what_would_be_lost(one, configs, abort_open)
    if not dry_run:
        from appliance.cli.topics import client_of

        with client_of(bootstrap_server) as client:
            _create(client, imports, replicas, configs, resume)
            progress = _Progress("importing", sum(one.content.bytes for one in imports))
            for one in imports:
                _Sender(client, one, progress, abort_open).run()
            progress.end()
    _tell(imports, dry_run, output)


def _chosen(directories: Sequence[Path], topic: str, new_name: str, partial: bool) -> list[ForeignLog]:
    """The logs to be taken over. Raises: UserError."""
    from appliance.base.disk import SystemDisk
    from appliance.log.foreign import UnusableFolder, find_logs

    logs: list[ForeignLog] = []
    try:
        for directory in directories:
            # The folder of a partition lies in the data folder.
            _refuse_a_running_broker(directory)
            _refuse_a_running_broker(directory.resolve().parent)
            logs += find_logs(SystemDisk(), directory)
    except (UnusableFolder, ValueError) as error:
        raise UserError(str(error), EXIT_REFUSED) from None
    if topic:
        logs = [log for log in logs if log.topic_partition.topic == topic]
    else:
        logs = [log for log in logs if log.topic_partition.topic not in INTERNAL_TOPICS]
    if not logs:
        wanted = f"topic {topic}" if topic else "a topic"
        raise UserError(f"no folder of {wanted} in {', '.join(map(str, directories))}", EXIT_REFUSED)
    partitions: dict[str, list[int]] = {}
    for log in logs:
        name, number = log.topic_partition
        if number in partitions.setdefault(name, []):
            raise UserError(f"{log.topic_partition} has more than one folder", EXIT_REFUSED)
        partitions[name].append(number)
    if new_name and len(partitions) > 1:
        raise UserError(f"--as names one topic; --topic says which of {', '.join(sorted(partitions))}", EXIT_REFUSED)
    for name, numbers in sorted(partitions.items()):
        missing = sorted(set(range(max(numbers) + 1)) - set(numbers))
        if missing and not partial:
            raise UserError(
                f"topic {name}: no folder for partitions {', '.join(map(str, missing))}; name the other data folders "
                "too, or leave them empty with --partial",
                EXIT_REFUSED,
            )
    return logs


def _refuse_a_running_broker(directory: Path) -> None:
    try:
        lock = (directory / LOCK_FILE).open("rb")
    except OSError:
        return
    with lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"a broker is running on {directory}: stop it first", EXIT_REFUSED) from None


def _checked(logs: Sequence[ForeignLog], new_name: str) -> list[_Import]:
    """Read everything once. Raises: UserError, with all that is wrong."""
    from appliance.base.disk import SystemDisk
    from appliance.log.foreign import check
    from appliance.records.errors import CorruptBatch

    progress = _Progress("checking", sum(log.size_bytes for log in logs))
    imports: list[_Import] = []
    problems: list[str] = []
    for log in logs:
        target = log.topic_partition._replace(topic=new_name) if new_name else log.topic_partition
        try:
            imports.append(_Import(log, check(SystemDisk(), log, progress.add), target))
        except (CorruptBatch, OSError) as error:
            problems.append(str(getattr(error, "message", None) or error))
    progress.end()
    if problems:
        raise UserError(f"not imported: {'; '.join(problems)}", EXIT_REFUSED)
    return imports


def _refuse_what_would_be_lost(one: _Import, configs: dict[str, str], abort_open: bool) -> None:
    content = one.content
    if content.torn:
        print(f"{one.log.topic_partition}: cut off after a crash, taken up to there: {content.torn}", file=sys.stderr)
    if content.open_transactions and not abort_open:
        producer_id, _, first = content.open_transactions[0]
        raise UserError(
            f"{one.log.topic_partition}: the transaction of producer {producer_id} from offset {first} on is open; let "
            "it end, or abort it with --abort-open-transactions",
            EXIT_REFUSED,
        )
    age_ms = int(time.time() * 1000) - content.min_segment_timestamp
    by_time = "delete" in configs.get("cleanup.policy", "delete") and "retention.ms" not in configs
    if by_time and content.min_segment_timestamp >= 0 and age_ms > DEFAULT_RETENTION_MS:
        raise UserError(
            f"{one.log.topic_partition}: records that are {age_ms // 86_400_000} days old would go at once; say how "
            "long to keep them, as with --config retention.ms=-1",
            EXIT_REFUSED,
        )


def _create(client: Client, imports: Sequence[_Import], replicas: int, configs: dict[str, str], resume: bool) -> None:
    from appliance.client.results import NewTopic

    partitions: dict[str, int] = {}
    for one in imports:
        partitions[one.target.topic] = max(partitions.get(one.target.topic, 0), one.target.partition + 1)
    known = client.metadata(list(partitions)).topics
    existing = [name for name in partitions if name in known and known[name].error == ErrorCode.NONE]
    if existing and not resume:
        raise KafkaError(
            ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {existing[0]} exists; --as gives it another name, --resume goes on"
        )
    for name, count in partitions.items():
        if name not in existing:
            topic = NewTopic(name, num_partitions=count, replication_factor=replicas, configs=configs)
            client.create_topics([topic])


class _Sender:
    """Brings one partition's batches to its leader."""

    def __init__(self, client: Client, one: _Import, progress: _Progress, abort_open: bool) -> None:
        self._client = client
        self._one = one
        self._progress = progress
        self._abort_open = abort_open
        self._end = one.content.start_offset
        self._connection: Connection | None = None

    def run(self) -> None:
        """Raises: KafkaError, UserError, ConnectionLost, CallTimedOut."""
        from appliance.base.disk import SystemDisk
        from appliance.log.foreign import batches_of
        from appliance.log.producer_snapshot import snapshot_to_bytes

        content = self._one.content
        self._find_end()
        boundary = self._end
        for pieces, start, end in _requests(batches_of(SystemDisk(), self._one.log, boundary, content.end_offset)):
            if start < boundary:
                raise UserError(f"{self._one.target} ends at {boundary}, within a batch of the folder", EXIT_REFUSED)
            self._send(pieces, end)
            self._progress.add(len(pieces))
        if self._abort_open:
            for transaction in content.open_transactions:
                self._abort(*transaction)
        self._call(b"", finish=True, producers=snapshot_to_bytes(content.producers))
        if content.log_start_offset > content.start_offset:
            self._raise_start(content.log_start_offset)
        self._close()

    def _find_end(self) -> None:
        """Begin the log, or find out how far an earlier import has come."""
        answer = self._ask(b"")
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if not self._one.content.start_offset <= answer.log_end_offset <= self._one.content.end_offset:
                raise UserError(
                    f"{self._one.target} ends at {answer.log_end_offset}: that is not of this folder", EXIT_REFUSED
                )
            self._end = answer.log_end_offset
        elif answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), f"{self._one.target}: {answer.error_message or 'refused'}")

    def _send(self, records: bytes, end: int) -> None:
        self._call(records, reaches=end)
        self._end = end

    def _abort(self, producer_id: int, producer_epoch: int, first_offset: int) -> None:
        from appliance.records.batch import stamp
        from appliance.records.control import ABORT, build_marker

        now_ms = int(time.time() * 1000)
        marker = bytearray(
            build_marker(ABORT, 0, producer_id=producer_id, producer_epoch=producer_epoch, now_ms=now_ms)
        )
        stamp(marker, self._end, -1)
        self._send(bytes(marker), self._end + 1)

    def _call(self, records: bytes, *, reaches: int = -1, finish: bool = False, producers: bytes = b"") -> None:
        answer = self._ask(records, finish, producers)
        # The answer to a first attempt may have been lost: then the log has it.
        done = answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and answer.log_end_offset == reaches
        if answer.error_code and not done:
            code = ErrorCode(answer.error_code)
            hint = "; does somebody else write to it?" if code == ErrorCode.OFFSET_OUT_OF_RANGE else ""
            raise KafkaError(code, f"{self._one.target}: {answer.error_message or 'refused'}{hint}")

    def _ask(self, records: bytes, finish: bool = False, producers: bytes = b"") -> Any:
        """Ask the leader, again when it is another one by now."""
        from appliance.client.connection import CallTimedOut, ConnectionLost
        from appliance.wire.messages.internal_import import ImportRecordsRequest

        target, content = self._one.target, self._one.content
        request = ImportRecordsRequest(
            topic=target.topic,
            partition=target.partition,
            expected_end=self._end,
            start_offset=content.start_offset,
            records=records or None,
            finish=finish,
            producers=producers,
        )
        deadline = time.monotonic() + LEADER_PATIENCE_S
        while True:
            failure: Exception
            try:
                answer = self._leader().call(request, 0)
                code = ErrorCode(answer.error_code)
                if not code.retriable or code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    return answer
                failure = KafkaError(code, f"{target}: {answer.error_message or 'refused'}")
            except (ConnectionLost, CallTimedOut, KafkaError) as error:
                failure = error
            self._close()
            if time.monotonic() > deadline:
                raise failure
            time.sleep(0.1)

    def _leader(self) -> Connection:
        """A connection to whoever leads the partition. Raises: KafkaError, ConnectionLost, CallTimedOut."""
        from appliance.cli.topics import CLIENT_ID
        from appliance.client.connection import Connection

        if self._connection is None:
            cluster = self._client.metadata([self._one.target.topic])
            leader = cluster.brokers.get(cluster.leader_of(self._one.target))
            if leader is None:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{self._one.target} has no leader")
            security = secured.security()
            self._connection = Connection(leader.host, leader.port, client_id=CLIENT_ID, security=security)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _raise_start(self, offset: int) -> None:
        from appliance.wire.messages.delete_records import (
            DeleteRecordsPartition,
            DeleteRecordsRequest,
            DeleteRecordsTopic,
        )

        target = self._one.target
        part = DeleteRecordsPartition(partition_index=target.partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=target.topic, partitions=[part])], timeout_ms=int(LEADER_PATIENCE_S * 1_000)
        )
        leader = self._client.metadata([target.topic]).leader_of(target)
        (answer,) = self._client.call(request, leader).topics[0].partitions
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), f"{target}: beginning the log at {offset}")


def _requests(batches: Iterator[tuple[Any, memoryview]]) -> Iterator[tuple[bytes, int, int]]:
    """Whole batches in pieces for one request each, with the offset at which they begin and end."""
    pieces: list[memoryview] = []
    size, start, end = 0, 0, 0
    for header, batch in batches:
        if pieces and (size + len(batch) > REQUEST_BYTES or len(pieces) == REQUEST_BATCHES):
            yield b"".join(pieces), start, end
            pieces, size = [], 0
        if not pieces:
            start = header.base_offset
        pieces.append(batch)
        size += len(batch)
        end = header.next_offset
    if pieces:
        yield b"".join(pieces), start, end


class _Progress:
    """How far it is, on standard error: now and then, and at the end."""

    def __init__(self, doing: str, total_bytes: int) -> None:
        self._doing = doing
        self._total = total_bytes
        self._done = 0
        self._next = time.monotonic() + PROGRESS_INTERVAL_S

    def add(self, size_bytes: int) -> None:
        self._done += size_bytes
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_INTERVAL_S
            self._print(f"{self._doing}: {_megabytes(self._done)} of {_megabytes(self._total)}")

    def end(self) -> None:
        self._print(f"{self._doing}: done, {_megabytes(self._done)}")

    @staticmethod
    def _print(text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"


def _tell(imports: Sequence[_Import], dry_run: bool, output: Format) -> None:
    rows = [
        {
            "topic": one.target.topic,
            "partition": one.target.partition,
            "start": one.content.log_start_offset,
            "end": one.content.end_offset,
            "records": one.content.records,
            "bytes": one.content.bytes,
            "producers": len(one.content.producers),
            "folder": str(one.log.directory),
            "imported": not dry_run,
        }
        for one in imports
    ]
    if output is Format.JSON:
        print_json(rows)
        return
    header = ("topic", "partition", "start", "end", "records", "bytes", "producers")
    print_table([name.upper() for name in header], [[row[name] for name in header] for row in rows])
    print("could be imported" if dry_run else "imported")
