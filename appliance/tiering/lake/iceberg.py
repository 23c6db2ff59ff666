"""Files of a lake output as an Iceberg table, through whatever catalog pyiceberg knows.

The ledger's list of files only grows, so it is followed file by file: how many are in the table stands in the table's
properties, for each partition, and is changed in the same commit that adds them. It is checked against the freshly
loaded table, and the catalog refuses a commit to a table that has changed since; so of two workers one adds a file, and
one that was long away adds nothing. pyiceberg's own retries are off: they would apply a stale commit to a newer table.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from appliance.base.object_store import ObjectStore, ObjectStoreError
from appliance.tiering.lake.catalogs import catalog_properties, open_catalog
from appliance.tiering.lake.ledger import CorruptLedger, Ledger
from appliance.tiering.lake.names import DATA, Output
from appliance.tiering.lake.outputs import files_of
from appliance.tiering.lake.schema import parse_schema
from appliance.tiering.lake.writer import file_schema

COMMIT_FILES_MAX = 500
"""How many files one commit adds."""
ATTEMPTS_MAX = 5
_RETRIES_OFF = {"commit.retry.num-retries": "0"}


class IcebergFailed(Exception):
    """The catalog did not take the files; try again later."""


class IcebergTables:
    """The tables of one catalog."""

    def __init__(self, catalog: Catalog, namespace: str) -> None:
        self._catalog = catalog
        self._namespace = namespace

    def publish(self, store: ObjectStore, output: Output, ledger: Ledger) -> int:
        """Add to the table what the ledger has and the table lacks; returns how many files are in it by then.

        Raises: IcebergFailed, ObjectStoreError, CorruptLedger.
        """
        try:
            return self._publish(store, output, ledger)
        except (ObjectStoreError, CorruptLedger):
            raise
        except Exception as error:
            # Each kind of catalog has failures of its own. Whatever became of the commit, the next one finds out.
            raise IcebergFailed(f"Iceberg: {' '.join(str(error).split())[:300]}") from error

    def _publish(self, store: ObjectStore, output: Output, ledger: Ledger) -> int:
        schema = file_schema(parse_schema(ledger.schema) if ledger.schema else None)
        name = self.table_name(output, ledger.topic)
        count, lost = 0, 0
        while True:
            self._catalog.create_namespace_if_not_exists(self._namespace)
            table = self._catalog.create_table_if_not_exists(name, schema, properties=_RETRIES_OFF)
            count = int(table.properties.get(files_property(ledger.partition), 0))
            more = list(itertools.islice(files_of(store, output, ledger), count, count + COMMIT_FILES_MAX))
            if not more:
                return count
            paths = [f"{store.url.rstrip('/')}/{output.folder}{one.name}" for one in more if one.kind == DATA]
            try:
                commit_files(table, schema, paths, _properties(ledger, count + len(more), more[-1].end))
            except CommitFailedException:
                lost += 1
                if lost >= ATTEMPTS_MAX:
                    raise

    def table_name(self, output: Output, topic: str) -> str:
        """A backfill is a table of its own."""
        word = re.sub(r"\W", "_", topic)
        return f"{self._namespace}.{word}" + (f"_{output.generation}" if output.generation else "")


def commit_files(table: Table, schema: Any, paths: list[str], properties: Mapping[str, str]) -> None:
    """One commit. Raises: CommitFailedException: the table is not as it was when it was loaded."""
    with table.transaction() as transaction:
        with transaction.update_schema() as update:
            update.union_by_name(schema)
        if paths:
            transaction.add_files(paths, check_duplicate_files=False)
        transaction.set_properties(dict(properties))


def files_property(partition: int) -> str:
    """How many files of the ledger are in the table."""
    return f"appliance.lake.{partition:05}.files"


def offset_property(partition: int) -> str:
    """Behind the last row of the last plan that is in the table."""
    return f"appliance.lake.{partition:05}.next-offset"


def _properties(ledger: Ledger, files: int, end: int) -> dict[str, str]:
    offset = ledger.next_offset if files == ledger.file_count else end
    return {files_property(ledger.partition): str(files), offset_property(ledger.partition): str(offset)}


def open_tables(properties: str, namespace: str, object_store: str, data_dir: str) -> IcebergTables:
    """The catalog of `lake.iceberg.catalog`; empty: an SQLite file.

    Raises: BadSpec: no such catalog, or it cannot be opened.
    """
    warehouse = object_store.rstrip("/") + "/lake/iceberg"
    given = {"type": "sql", "warehouse": warehouse, **catalog_properties(properties)}
    if given["type"] == "sql":
        given.setdefault("uri", f"sqlite:///{data_dir}/iceberg.db")
    return IcebergTables(open_catalog(given), namespace)
