"""What one partition brings to a fetch: checks, numbers, and a slice of a file instead of records where it is large."""

from __future__ import annotations

import logging
import uuid
from typing import cast

from appliance.authorizer.bindings import Operation
from appliance.base.disk import WouldWait
from appliance.base.errors import ErrorCode, KafkaError
from appliance.log.log_slice import LogSlice
from appliance.log.reading import read_slice
from appliance.partition.fetch_plan import ByteBudget, Source, leader_epoch_error, source_of
from appliance.partition.fetch_sessions import PartitionKey, SessionPartition
from appliance.partition.isolation import READ_COMMITTED, visible_end
from appliance.server.access import Access, check_topic
from appliance.server.context import Broker, Partition
from appliance.server.handlers.read_replica import preferred_replica, refusal_for_reader
from appliance.server.page_cache import CACHED_PAGES, is_cached, read_if_cached, warm
from appliance.server.requests import FileRange
from appliance.tiering.fetcher import RemoteRead
from appliance.wire.messages.fetch import AbortedTransaction, EpochEndOffset, PartitionData

_log = logging.getLogger(__name__)

COPIED_UP_TO_BYTES = 16_384
"""Small pieces are read and joined: one send for many of them is cheaper than one sendfile for each."""


class PartitionRead:
    """What one partition brings to an answer."""

    __slots__ = (
        "data",
        "hosted",
        "is_cold",
        "is_quiet",
        "is_remote",
        "partition",
        "range",
        "size",
        "visible_end",
        "wanted_bytes",
    )

    def __init__(self, partition: SessionPartition) -> None:
        self.partition = partition
        self.data = PartitionData(partition_index=partition.key[1], records=b"")
        self.hosted: Partition | None = None
        self.range: FileRange | None = None
        self.size = 0
        self.is_quiet = False
        """There is nothing to tell but the numbers, until the partition changes."""
        self.is_cold = False
        """The disk has to be read first, in a helper thread."""
        self.is_remote = False
        self.wanted_bytes = 0
        self.visible_end = 0

    def fail(self, error: ErrorCode) -> None:
        self.data.error_code = error
        self.data.high_watermark = -1
        self.data.last_stable_offset = -1
        self.data.log_start_offset = -1
        if self.hosted is not None:
            self.data.aborted_transactions = None

    def take_remote(self, result: RemoteRead | Exception, isolation_level: int) -> None:
        """What the object store had."""
        if isinstance(result, KafkaError):
            self.fail(result.code)
        elif isinstance(result, Exception):
            partition = self.partition
            _log.error("reading %s at %d from the object store: %s", partition.key, partition.fetch_offset, result)
            self.fail(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self.data.records = result.records
            self.size = len(result.records)
            # Those who read uncommitted records get no list, not an empty one.
            if isolation_level == READ_COMMITTED:
                self.data.aborted_transactions = [
                    AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                    for one in result.aborted
                ]

    @property
    def answers_now(self) -> bool:
        """Whether the reader must hear of this without waiting."""
        data = self.data
        return (
            data.error_code != 0
            or self.is_remote
            or self.is_cold
            or data.diverging_epoch.epoch >= 0
            or data.preferred_read_replica >= 0
        )


class FetchReader:
    """Reads partitions as one request wants them. Stays off the disk unless `may_wait`."""

    __slots__ = ("_access", "_broker", "_isolation_level", "_may_follow", "_rack", "_replica_id")

    def __init__(
        self,
        broker: Broker,
        isolation_level: int,
        replica_id: int = -1,
        rack: str = "",
        *,
        may_follow: bool = False,
        access: Access | None = None,
    ) -> None:
        """`rack`: of a reader that may be sent to a replica there; empty for all others.

        `may_follow`: a follower, too, answers, with what it knows to be committed (KIP-392).
        """
        self._access = access
        self._rack = rack
        self._may_follow = may_follow
        self._broker = broker
        self._isolation_level = isolation_level
        self._replica_id = replica_id

    def read(self, partition: SessionPartition, budget: ByteBudget, *, may_wait: bool = False) -> PartitionRead:
        read = PartitionRead(partition)
        try:
            self._read_into(read, budget, may_wait)
        except KafkaError as error:
            read.fail(error.code)
        except WouldWait:
            read.is_cold = True
        except OSError as error:
            _log.error("fetch of %s: %s", partition.key, error)
            read.fail(ErrorCode.KAFKA_STORAGE_ERROR)
        except Exception:
            _log.exception("fetch of %s at %d failed", partition.key, partition.fetch_offset)
            read.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
        return read

    def _read_into(self, read: PartitionRead, budget: ByteBudget, may_wait: bool) -> None:
        partition = read.partition
        if self._access is not None:
            check_topic(self._broker.image, self._access, Operation.READ, partition.key[0])
        hosted = read.hosted = find_partition(self._broker, partition.key)
        if self._replica_id >= 0:
            # Followers do not come here.
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        refusal = refusal_for_reader(hosted) if self._may_follow else hosted.refusal()
        error = refusal or leader_epoch_error(partition.current_leader_epoch, hosted.leader_epoch)
        if error:
            raise KafkaError(error)
        log = hosted.log
        log_end_offset = hosted.log_end_offset
        last_stable_offset = hosted.last_stable_offset
        end = visible_end(
            self._replica_id,
            self._isolation_level,
            high_watermark=hosted.high_watermark,
            last_stable_offset=last_stable_offset,
            log_end_offset=log_end_offset,
        )
        data = read.data
        data.aborted_transactions = [] if self._isolation_level == READ_COMMITTED else None
        data.high_watermark = hosted.high_watermark
        data.last_stable_offset = last_stable_offset
        data.log_start_offset = log_start_offset = hosted.log_start_offset
        if partition.last_fetched_epoch >= 0 and diverges(hosted, partition, data):
            return
        source = source_of(
            partition.fetch_offset,
            log_start_offset=log_start_offset,
            local_log_start_offset=log.local_log_start_offset,
            visible_end=end,
            log_end_offset=log_end_offset,
        )
        if self._rack and source is not Source.OUT_OF_RANGE:
            chosen = preferred_replica(self._broker, hosted, self._rack, partition.fetch_offset)
            if chosen >= 0:
                data.preferred_read_replica = chosen
                return
        if source is Source.NOTHING:
            read.is_quiet = True
            return
        if source is Source.OUT_OF_RANGE:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        share = budget.share(partition.max_bytes)
        if not share and not budget.nothing_yet:
            return
        read.visible_end, read.wanted_bytes = end, share
        if source is Source.REMOTE:
            if self._broker.remote.wait_ms():
                # Without records and without an error, so that the others are waited for (KIP-956).
                return
            read.is_remote = True
            budget.taken(share)
            return
        pages = None if may_wait else CACHED_PAGES
        found = read_slice(log.segments, partition.fetch_offset, share, end, budget.nothing_yet, pages)
        if found is None or not found.length:
            # With the first batch granted there is none up to the visible end; else it may only be too large.
            read.is_quiet = budget.nothing_yet
            return
        if self._isolation_level == READ_COMMITTED:
            if not may_wait and not all(segment.knows_aborted for segment in log.segments):
                raise WouldWait("transaction indexes have to be read")
            data.aborted_transactions = [
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in log.aborted_transactions(partition.fetch_offset, end)
            ]
        self._take(read, found, budget)

    @staticmethod
    def _take(read: PartitionRead, found: LogSlice, budget: ByteBudget) -> None:
        small = None
        if found.length <= COPIED_UP_TO_BYTES:
            small = read_if_cached(found.file_descriptor, found.position, found.length)
        if small is not None:
            read.data.records = small
        else:
            read.range = range_of(found)
        read.size = found.length
        budget.taken(found.length)


def range_of(found: LogSlice) -> FileRange:
    """A slice of a log as it leaves on a socket. Retain it while it waits."""
    return FileRange(found.file_descriptor, found.position, found.length, found)


def diverges(hosted: Partition, partition: SessionPartition, data: PartitionData) -> bool:
    """Whether the reader's log has left ours; then it is told where its last epoch ended here (KIP-595)."""
    epoch, end_offset = hosted.log.leader_epochs.end_offset_for(partition.last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < partition.last_fetched_epoch or end_offset < partition.fetch_offset:
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return True
    return False


def find_partition(broker: Broker, key: PartitionKey) -> Partition:
    """The partition that a key names. Raises KafkaError with the code for the reader."""
    topic, index = key
    if isinstance(topic, uuid.UUID):
        hosted = broker.partitions.get_by_id(topic, index)
        if hosted is not None:
            return cast(Partition, hosted)
        state = broker.image.topics_by_id.get(topic)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        hosted = broker.partitions.get(topic, index)
        if hosted is not None:
            return cast(Partition, hosted)
        state = broker.image.topics.get(topic)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if state is None:
        raise KafkaError(unknown)
    if not 0 <= index < len(state.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    raise KafkaError(broker.partitions.absence_of(topic, index))


def is_cold(read: PartitionRead) -> bool:
    """Whether sendfile would have to wait for the disk."""
    found = read.range
    return found is not None and not is_cached(found.file_descriptor, found.position, found.length)


def warm_up(read: PartitionRead, isolation_level: int) -> None:
    """Read from the disk what the loop needs to answer without waiting for it. Blocks: helper threads only."""
    hosted, found = read.hosted, read.range
    try:
        if found is None and hosted is not None:
            piece = hosted.log.read(read.partition.fetch_offset, read.wanted_bytes, read.visible_end)
            found = range_of(piece) if piece is not None else None
            if isolation_level == READ_COMMITTED:
                hosted.log.aborted_transactions(read.partition.fetch_offset, read.visible_end)
        if found is not None:
            warm(found.file_descriptor, found.position, found.length)
    except (KafkaError, OSError) as error:
        # The loop comes to the same place and answers for it.
        _log.info("warming %s: %s", read.partition.key, error)
