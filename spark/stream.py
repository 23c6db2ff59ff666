"""Streams of `format("appliance")`: what the driver asks at each trigger.

A batch of a stream may be replayed after a restart, when some of its records are tiered that were hot before. Its
splits therefore depend on its offsets alone: the same rows in the same order in the same tasks, which is what a sink
counts on that knows a task by its number. Where the records lie is seen when they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from appliance.base.clock import Clock, SystemClock
from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from spark.offsets import Json, Offsets, from_json, lags_of, next_end, ranges_between, to_json
from spark.options import SourceOptions
from spark.partitions import SplitPartition, read_partition
from spark.plan import AUTO, HOT, Range, Split, resolve_starts, spread
from spark.planning import asking, bounds_of, object_store_url, offsets_of, partitions_of, topics_of
from spark.triggers import TriggerDelay

EARLIEST_LOCAL = -4


class ApplianceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets and splits of one streaming query; lives in a process beside the driver."""

    def __init__(
        self,
        options: SourceOptions,
        columns: tuple[str, ...],
        clock: Clock | None = None,
        never_null: frozenset[str] = frozenset(),
    ) -> None:
        self._options = options
        self._columns = columns
        self._never_null = never_null
        self._clock = clock or SystemClock()
        self._delay = TriggerDelay(options.min_offsets_per_trigger, options.max_trigger_delay_ms)
        self._target: Offsets | None = None
        """Where Trigger.AvailableNow ends."""
        self._latest: Offsets = {}

    def initialOffset(self) -> Json:
        with asking(self._options) as client:
            bounds = bounds_of(client, self._options, _partitions(client, self._options))
            spec = offsets_of(client, self._options, self._options.starting_offsets, bounds)
        return to_json(resolve_starts(bounds, spec, self._options.fail_on_data_loss))

    def getDefaultReadLimit(self) -> ReadLimit:
        # There is one kind at a time; what says "all" is kept for triggers that do.
        if self._options.max_offsets_per_trigger:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        least = self._options.min_offsets_per_trigger
        return ReadMinRows(least) if least else ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        self._latest = self._target if self._target is not None else self._ends()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        begin = from_json(start)
        end = next_end(begin, self._latest, most, self._options.fail_on_data_loss)
        if self._target is None and not isinstance(limit, ReadAllAvailable):
            offsets = sum(lags_of(begin, self._latest).values())
            if self._delay.holds_back(offsets, self._clock.monotonic_ms()):
                return to_json(begin)
        return to_json(end)

    def reportLatestOffset(self) -> Json | None:
        return to_json(self._latest) or None

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def _ends(self) -> Offsets:
        with asking(self._options) as client:
            bounds = bounds_of(client, self._options, _partitions(client, self._options))
        return {tp: bound.end_offset for tp, bound in bounds.items()}

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        begins, ends = from_json(start), from_json(end)
        options = self._options
        with asking(options) as client:
            there = [tp for tp in _partitions(client, options) if tp in ends]
            bounds = bounds_of(client, options, there)
            cluster = client.metadata({tp.topic for tp in there})
            ids = {tp.topic: cluster.topic_id(tp.topic) for tp in there}
            ranges = ranges_between(begins, ends, bounds, ids, options.fail_on_data_loss)
            cold = _below_local_start(client, ranges, options.tier)
            url = object_store_url(options, client, cluster) if cold else ""
        splits = [
            Split(range_.tp, range_.topic_id, range_.start, range_.end, AUTO if url and range_.tp in cold else HOT)
            for range_ in ranges
        ]
        splits = spread(splits, options.min_partitions, options.max_records_per_partition)
        return [SplitPartition(split, url) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(self._options, self._columns, partition, self._never_null)

    def __getstate__(self) -> dict[str, Any]:
        # Executors read splits only.
        return self.__dict__ | {"_target": None, "_latest": {}}


def _partitions(client: Client, options: SourceOptions) -> list[TopicPartition]:
    return partitions_of(options, client.metadata(None if options.subscribe_pattern else topics_of(options)))


def _below_local_start(client: Client, ranges: Sequence[Range], tier: str) -> set[TopicPartition]:
    """Partitions whose range begins below what the leader has on its disk; only these need the object store."""
    if tier == HOT or not ranges:
        return set()
    local = client.list_offsets({range_.tp: EARLIEST_LOCAL for range_ in ranges})
    return {range_.tp for range_ in ranges if range_.start < local[range_.tp].offset or tier != AUTO}
