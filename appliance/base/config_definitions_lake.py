"""The topic configs of lake output: rows of a tiered topic as files, docs/lake.md."""

from __future__ import annotations

from appliance.base.config_types import ConfigType, Value, row, table

HOUR_MS = 3_600_000


def _lake(
    name: str, type_: ConfigType, default: Value, doc: str, *, low: int | None = None, choices: tuple[str, ...] = ()
) -> tuple[str, ConfigType, Value, str, int | None, tuple[str, ...]]:
    return "lake." + name, type_, default, doc, low, choices


_ROWS = (
    _lake(
        "format",
        ConfigType.STRING,
        "none",
        "`parquet` writes the records of a tiered topic as rows of Parquet files into the object store, each exactly "
        "once; `iceberg` makes an Iceberg table of them, too; see [lake](lake.md).",
        choices=("none", "parquet", "iceberg"),
    ),
    _lake(
        "value.format",
        ConfigType.STRING,
        "json",
        "What values are: `json` objects, lines of `csv`, or `raw` bytes.",
        choices=("json", "csv", "raw"),
    ),
    _lake(
        "schema",
        ConfigType.STRING,
        "",
        "The columns of the values, as in `id bigint, name string, tags array<string>`. Without one those of JSON are "
        "inferred, and grow.",
    ),
    _lake("csv.delimiter", ConfigType.STRING, ",", "What stands between the columns of CSV."),
    _lake(
        "partition.by",
        ConfigType.LIST,
        ("day",),
        "What the folders of the files are named by: `day` or `hour` of the event time, or fields of the values; empty "
        "for none.",
    ),
    _lake(
        "time.field",
        ConfigType.STRING,
        "",
        "The field of the event time, with dots into objects; empty: the record's timestamp.",
    ),
    _lake(
        "time.format",
        ConfigType.STRING,
        "epoch_ms",
        "How that field is read: `epoch_ms`, `epoch_s`, `iso8601` or a pattern of strptime. Times without a zone are "
        "UTC.",
    ),
    _lake("max.bytes", ConfigType.LONG, 128 << 20, "Tiered bytes that are made into files at once.", low=1),
    _lake(
        "max.age.ms", ConfigType.LONG, HOUR_MS, "How long tiered records wait for more before they become files.", low=0
    ),
)

LAKE_TOPIC_CONFIGS = table(
    *(
        row(name, type_, default, doc, low=low, choices=choices, ours=True)
        for name, type_, default, doc, low, choices in _ROWS
    )
)
"""By name."""
