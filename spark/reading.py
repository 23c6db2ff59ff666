"""The executors' part: the records of one split, from the object store or from the broker, as Arrow batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pyarrow as pa

from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import ZERO_UUID
from appliance.client.client import Client
from appliance.client.results import FetchResult
from appliance.tiering.reader import TierBatches, TierDataLoss, TierNotCovering
from spark.aborted import NOBODY_ABORTED, AbortedRange
from spark.decode import Chunk, Decoder
from spark.options import EARLIEST, SourceOptions
from spark.plan import AUTO, HOT, TIERED, DataLoss, Split
from spark.planning import connected
from spark.stores import tier_reader

FETCH_BYTES = 8 * 1024 * 1024
FETCH_WAIT_MS = 500
"""So long a broker waits for records; so many answers without any, as fit into `poll_timeout_ms`, end a split."""


class IncompleteSplit(Exception):
    """Records that the plan counts on are not to be had; the task fails rather than leave a gap."""


def read_split(options: SourceOptions, columns: tuple[str, ...], split: Split) -> Iterator[pa.RecordBatch]:
    """The rows of a split.

    Raises:
        DataLoss: records were retired since the plan was made, and `failOnDataLoss`.
        IncompleteSplit: neither tier has the records, or their leader has lost them since.
        CorruptBatch, StoreUnavailable, KafkaError: reading failed.
    """
    if split.tier == HOT:
        return _read_hot(options, columns, split, split.start)
    if split.tier == AUTO:
        return _read_both(options, columns, split)
    return _read_tiered(options, columns, split)


def _read_both(options: SourceOptions, columns: tuple[str, ...], split: Split) -> Iterator[pa.RecordBatch]:
    """A split of a stream: what the manifest covers by now from objects, the rest from the broker."""
    assert options.object_store is not None
    manifest = tier_reader(options.object_store).manifest(split.topic_id, split.tp.partition)
    cursor = split.start
    if manifest is not None and manifest.start_offset <= cursor < manifest.end_offset:
        cursor = min(split.end, manifest.end_offset)
        yield from _read_tiered(options, columns, dataclasses.replace(split, end=cursor))
    if cursor < split.end:
        yield from _read_hot(options, columns, split, cursor)


def _read_tiered(options: SourceOptions, columns: tuple[str, ...], split: Split) -> Iterator[pa.RecordBatch]:
    assert options.object_store is not None
    reader = tier_reader(options.object_store)
    decoder = Decoder(columns, split.tp, TIERED, options.verify_crc)
    cursor = split.start
    while cursor < split.end:
        chunks = (
            _tiered_chunk(batches, options.read_committed)
            for batches in reader.read_range(split.topic_id, split.tp.partition, cursor, split.end)
        )
        try:
            for rows in decoder.decode(chunks, cursor, split.end):
                yield rows
                # What is handed out is never read again, whatever happens to the rest.
                cursor = max(cursor, min(split.end, decoder.next_offset))
            return
        except TierDataLoss as loss:
            if options.fail_on_data_loss:
                raise DataLoss(f"{split.tp}: {loss}") from loss
            cursor = max(cursor, loss.start_offset)
        except TierNotCovering:
            # The topic was made anew, or the tier was lost: only the broker can still say.
            yield from _read_hot(options, columns, split, cursor)
            return


def _read_hot(options: SourceOptions, columns: tuple[str, ...], split: Split, start: int) -> Iterator[pa.RecordBatch]:
    decoder = Decoder(columns, split.tp, HOT, options.verify_crc)
    wait_ms = min(FETCH_WAIT_MS, options.poll_timeout_ms)
    with connected(options) as client:
        cursor, empty = start, 0
        while cursor < split.end:
            fetched = client.fetch(
                split.tp,
                cursor,
                max_bytes=FETCH_BYTES,
                max_wait_ms=wait_ms,
                isolation_level=1 if options.read_committed else 0,
            )
            if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                # Not every broker says in a refusal where its log starts.
                log_start = client.list_offsets({split.tp: EARLIEST})[split.tp].offset
                if cursor >= log_start:
                    raise IncompleteSplit(
                        f"{split.tp}: offset {cursor} was there when the read was planned, and is gone"
                    )
                if options.fail_on_data_loss:
                    raise DataLoss(f"{split.tp}: offsets from {cursor} to {log_start} were retired meanwhile")
                cursor = min(split.end, log_start)
                continue
            if fetched.error != ErrorCode.NONE:
                raise KafkaError(fetched.error, f"Fetch of {split.tp} at {cursor}")
            yield from decoder.decode([_hot_chunk(fetched, options.read_committed)], cursor, split.end)
            if decoder.next_offset > cursor:
                cursor, empty = decoder.next_offset, 0
                continue
            empty += 1
            if empty * wait_ms >= options.poll_timeout_ms:
                raise IncompleteSplit(f"{split.tp}: nothing comes at offset {cursor}, {split.end} was promised")
        _check_lineage(client, split, decoder.last_epoch)


def _tiered_chunk(batches: TierBatches, read_committed: bool) -> Chunk:
    if not read_committed:
        return Chunk(batches.records)
    return Chunk(batches.records, [AbortedRange(*transaction) for transaction in batches.aborted])


def _hot_chunk(fetched: FetchResult, read_committed: bool) -> Chunk:
    if not read_committed:
        return Chunk(fetched.records, NOBODY_ABORTED)
    return Chunk(fetched.records, [AbortedRange(*transaction) for transaction in fetched.aborted])


def _check_lineage(client: Client, split: Split, last_epoch: int) -> None:
    """The leader must still have what was read: an unclean election may have taken it back, a new topic has the name.

    Neither a lost lineage nor a topic's id ever returns, so asking once, at the end, is enough.
    """
    found = client.metadata([split.tp.topic]).topic_id(split.tp.topic)
    if found not in (split.topic_id, ZERO_UUID):
        raise IncompleteSplit(f"{split.tp}: the topic of this name is another one than when the read was planned")
    if last_epoch < 0:
        return
    end = client.offsets_for_leader_epoch({split.tp: last_epoch})[split.tp]
    if end.leader_epoch != last_epoch or end.end_offset < split.end:
        raise IncompleteSplit(
            f"{split.tp}: records of leader epoch {last_epoch} up to offset {split.end} were read, but the leader has"
            f" that epoch only up to {end.end_offset} now"
        )
