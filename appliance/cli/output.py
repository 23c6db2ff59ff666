"""What every command shares: its common options, and answers as text for people or JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """How a command answers."""

    TEXT = "text"
    JSON = "json"


LOCAL_BROKER = "localhost:9092"
Bootstrap = Annotated[str, typer.Option("--bootstrap-server", "-b", help="host:port,… of the brokers.")]
OutputFormat = Annotated[Format, typer.Option("--format", help="text for people, json for scripts.")]


def print_json(value: object) -> None:
    """One JSON document on a line of its own."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as they need; nothing when there are no rows."""
    if not rows:
        return
    lines = [[*header], *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        sys.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n")


def key_values(items: Sequence[str], flag: str) -> dict[str, str]:
    """`name=value` items of a repeated flag.

    Raises:
        typer.BadParameter: an item without `=`.
    """
    pairs = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{item!r} is not name=value", param_hint=flag)
        pairs[name] = value
    return pairs
