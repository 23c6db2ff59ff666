"""What a topic's owner wants of its lake output: the `lake.*` configs as one value. A plan keeps its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

PARQUET = "parquet"
ICEBERG = "iceberg"
NONE = "none"
DAY, HOUR = "day", "hour"
TIME_PARTS = {DAY: ("event_date",), HOUR: ("event_date", "event_hour")}
"""The fields of the folders by which event time partitions."""


class BadSpec(ValueError):
    """The topic's `lake.*` configs cannot be followed."""


@dataclass(frozen=True, slots=True)
class LakeSpec:
    """How records become rows and rows become files."""

    format: str = PARQUET
    value_format: str = "json"
    schema: str = ""
    """Empty: inferred, widened from plan to plan."""
    csv_delimiter: str = ","
    partition_by: tuple[str, ...] = (DAY,)
    time_field: str = ""
    """Empty: the record's timestamp."""
    time_format: str = "epoch_ms"
    max_bytes: int = 128 << 20
    max_age_ms: int = 3_600_000

    def encoded(self) -> dict[str, Any]:
        """For the ledger."""
        return {**asdict(self), "partition_by": list(self.partition_by)}


def parse_spec(values: Mapping[str, Any]) -> LakeSpec:
    """Read back what `encoded` gave. Raises: KeyError, TypeError, ValueError."""
    known = {field.name: values[field.name] for field in fields(LakeSpec)}
    known["partition_by"] = tuple(map(str, known["partition_by"]))
    return LakeSpec(**known)


def spec_of(configs: Mapping[str, str | None]) -> LakeSpec | None:
    """From a topic's configs as brokers tell them; None when it wants no lake output.

    Raises: BadSpec: what is wrong, in words.
    """

    def text(name: str) -> str:
        return configs.get(f"lake.{name}") or ""

    if text("format") in ("", NONE):
        return None
    spec = LakeSpec(
        format=text("format"),
        value_format=text("value.format"),
        schema=text("schema"),
        csv_delimiter=text("csv.delimiter") or ",",
        partition_by=tuple(part.strip() for part in text("partition.by").split(",") if part.strip()),
        time_field=text("time.field"),
        time_format=text("time.format"),
        max_bytes=int(text("max.bytes")),
        max_age_ms=int(text("max.age.ms")),
    )
    check_spec(spec)
    return spec


def check_spec(spec: LakeSpec) -> None:
    """Raises: BadSpec."""
    if spec.value_format == "csv" and not spec.schema:
        raise BadSpec("lake.value.format=csv needs lake.schema: the columns in their order")
    if len(spec.csv_delimiter) != 1 or not spec.csv_delimiter.isascii():
        raise BadSpec("lake.csv.delimiter is one ASCII character")
    if DAY in spec.partition_by and HOUR in spec.partition_by:
        raise BadSpec("lake.partition.by takes day or hour, not both")
    if len(set(spec.partition_by)) != len(spec.partition_by):
        raise BadSpec("lake.partition.by names a field twice")
