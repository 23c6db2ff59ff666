"""`format("appliance_iceberg")`: Iceberg tables, as lake output makes them, read through pyiceberg and no JAR.

    register_iceberg(session)
    session.read.format("appliance_iceberg").option("catalog", "type=rest,uri=http://…").load("appliance.flights")

The driver asks the catalog, leaves files out by their statistics, and hands each task its files; executors open these
and what deletes rows of them, and need no catalog. All rows are of one snapshot: the newest when the table is first
read, or the one that was asked for.

Filters of a query are left to Spark: 4.3 keeps a pushed one for every later use of the same DataFrame. Who knows what
files may be left out says so in `rowFilter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, StaticTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyparsing import ParseException
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from appliance.tiering.lake.catalogs import catalog_properties, open_catalog
from spark.option_values import OptionError
from spark.options import MIB

KNOWN = ("path", "table", "catalog", "columns", "rowFilter", "snapshotId", "asOfTimestamp", "splitBytes")
FILES_PER_TASK_MAX = 1_000
ALWAYS = AlwaysTrue()


class NotReadable(ValueError):
    """The table is not there, or has a column that Spark has no type for."""


@dataclass(frozen=True, slots=True)
class IcebergOptions:
    """What a reader was asked for."""

    table: str
    """With its namespace: `appliance.flights`."""
    catalog: Mapping[str, str] = field(default_factory=dict)
    """Properties of pyiceberg's."""
    columns: tuple[str, ...] = ()
    """Empty: all."""
    snapshot_id: int | None = None
    """None: the newest."""
    as_of_ms: int | None = None
    """The snapshot that was the newest at this time."""
    row_filter: BooleanExpression = ALWAYS
    """Rows for which this does not hold are left out, and so are files without others."""
    split_bytes: int = 64 * MIB


def parse_iceberg_options(given: Mapping[str, str]) -> IcebergOptions:
    """Read the options; names in any case, as Spark passes them on. Raises: OptionError."""
    options = {name.lower(): text.strip() for name, text in given.items()}
    known = {name.lower(): name for name in KNOWN}
    for name in options:
        if name not in known:
            raise OptionError(f"option {name} is not known; there are {', '.join(KNOWN)}")
    table = options.get("table") or options.get("path")
    if not table or "." not in table:
        raise OptionError("which table is missing: option table, or load(…), with namespace.name")
    if not options.get("catalog"):
        raise OptionError("option catalog is missing: pyiceberg's properties as lake.iceberg.catalog takes them")
    numbers = {}
    for name in ("snapshotId", "asOfTimestamp", "splitBytes"):
        text = options.get(name.lower())
        if text is not None:
            if not text.isdecimal() or not int(text):
                raise OptionError(f"{name} takes a whole number above 0, not {text}")
            numbers[name] = int(text)
    if {"snapshotId", "asOfTimestamp"} <= numbers.keys():
        raise OptionError("one of snapshotId and asOfTimestamp is enough: they name the same thing")
    try:
        row_filter = parse(options["rowfilter"]) if options.get("rowfilter") else ALWAYS
    except (ParseException, ValueError) as error:
        raise OptionError(f"rowFilter is not understood: {error}") from None
    try:
        catalog = catalog_properties(options["catalog"])
    except ValueError as error:
        raise OptionError(str(error)) from None
    return IcebergOptions(
        table,
        catalog,
        tuple(dict.fromkeys(name.strip() for name in options.get("columns", "").split(",") if name.strip())),
        numbers.get("snapshotId"),
        numbers.get("asOfTimestamp"),
        row_filter,
        numbers.get("splitBytes", 64 * MIB),
    )


def load_table(options: IcebergOptions) -> Table:
    """Raises: OptionError: no such catalog. NotReadable: no such table."""
    try:
        return open_catalog(options.catalog).load_table(options.table)
    except ValueError as error:
        raise OptionError(str(error)) from None
    except NoSuchTableError:
        raise NotReadable(f"the catalog has no table {options.table}") from None


def snapshot_of(table: Table, options: IcebergOptions) -> int | None:
    """The snapshot to be read; None: the table has none yet. Raises: NotReadable: the one asked for is not there."""
    if options.snapshot_id is not None:
        if table.snapshot_by_id(options.snapshot_id) is None:
            raise NotReadable(f"{options.table} has no snapshot {options.snapshot_id}")
        return options.snapshot_id
    if options.as_of_ms is not None:
        found = table.snapshot_as_of_timestamp(options.as_of_ms)
        if found is None:
            raise NotReadable(f"{options.table} had no snapshot at {options.as_of_ms}")
        return found.snapshot_id
    newest = table.current_snapshot()
    return None if newest is None else newest.snapshot_id


def spark_schema(schema: Schema) -> StructType:
    """The columns of a table in Spark's types. Raises: NotReadable: one has none there."""
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    for column in arrow:
        try:
            from_arrow_schema(pa.schema([column]), prefer_timestamp_ntz=True)
        except PySparkException:
            # Of pyarrow, which has more types than Spark.
            raise NotReadable(f"column {column.name} is {column.type}, which Spark has no type for") from None
    return from_arrow_schema(arrow, prefer_timestamp_ntz=True)


class Files(NamedTuple):
    """What one task reads."""

    tasks: tuple[FileScanTask, ...]


class FilesPartition(InputPartition):
    def __init__(self, files: Files) -> None:
        super().__init__(files)


def bundled(tasks: Iterable[FileScanTask], split_bytes: int) -> list[Files]:
    """Files side by side until they are of one split's size; a large file is a task of its own."""
    bundles: list[Files] = []
    together: list[FileScanTask] = []
    size = 0
    for task in sorted(tasks, key=lambda task: task.file.file_path):
        more = task.file.file_size_in_bytes
        if together and (size + more > split_bytes or len(together) >= FILES_PER_TASK_MAX):
            bundles.append(Files(tuple(together)))
            together, size = [], 0
        together.append(task)
        size += more
    return [*bundles, Files(tuple(together))] if together else bundles


class IcebergDataSource(DataSource):
    """A table of any catalog that pyiceberg knows."""

    @classmethod
    def name(cls) -> str:
        return "appliance_iceberg"

    def schema(self) -> StructType:
        options = parse_iceberg_options(self.options)
        return spark_schema(_projected(load_table(options), options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return IcebergReader(parse_iceberg_options(self.options), schema)


def register_iceberg(session: SparkSession) -> None:
    """Make the format known to a session."""
    session.dataSource.register(IcebergDataSource)


def _projected(table: Table, options: IcebergOptions) -> Schema:
    """The columns asked for, as the snapshot that is read has them. Raises: NotReadable: one that it has not."""
    snapshot_id = snapshot_of(table, options)
    scan = table.scan(snapshot_id=snapshot_id, selected_fields=options.columns or ("*",))
    try:
        return scan.projection()
    except ValueError as error:
        raise NotReadable(f"{options.table}: {error}") from None


class IcebergReader(DataSourceReader):
    """Looks at the table when it is made and plans, both on the driver; reads on executors.

    Spark copies the reader to its tasks before it asks for partitions: what tasks need is there from the beginning.
    """

    def __init__(self, options: IcebergOptions, schema: StructType) -> None:
        table = load_table(options)
        self._metadata: TableMetadata = table.metadata
        self._io: FileIO = table.io
        self._snapshot_id = snapshot_of(table, options)
        self._spark_schema = schema
        self._columns = tuple(schema.fieldNames())
        self._split_bytes = options.split_bytes
        self._filter = options.row_filter

    def _scan(self) -> DataScan:
        # The table as it was looked at, so that a commit meanwhile changes nothing.
        table = StaticTable(("appliance", "read"), self._metadata, "", self._io, NoopCatalog("none"))
        return table.scan(row_filter=self._filter, selected_fields=self._columns, snapshot_id=self._snapshot_id)

    def partitions(self) -> Sequence[InputPartition]:
        bundles = bundled(self._scan().plan_files(), self._split_bytes)
        # Spark takes an empty list for "no partitioning" and asks for one partition.
        return [FilesPartition(files) for files in bundles] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, FilesPartition):
            return
        wanted = to_arrow_schema(self._spark_schema, timezone="UTC")
        scan = ArrowScan(self._metadata, self._io, self._scan().projection(), self._filter)
        for batch in scan.to_record_batches(partition.value.tasks):
            if batch.num_rows:
                yield from pa.Table.from_batches([batch]).select(wanted.names).cast(wanted).to_batches()
