"""Catalogs of Iceberg tables, as `lake.iceberg.catalog` names them; for the lake's service and for readers."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.catalog import Catalog, load_catalog

from appliance.tiering.lake.spec import BadSpec


def catalog_properties(text: str) -> dict[str, str]:
    """What `lake.iceberg.catalog` says: pyiceberg's properties as `key=value,…`. Raises: BadSpec."""
    given: dict[str, str] = {}
    for entry in text.split(","):
        key, equals, value = entry.partition("=")
        if not equals and entry.strip():
            raise BadSpec(f"lake.iceberg.catalog: {entry.strip()!r} is not key=value")
        if entry.strip():
            given[key.strip()] = value.strip()
    return given


def open_catalog(properties: Mapping[str, str]) -> Catalog:
    """Raises: BadSpec: no such catalog, or it cannot be opened."""
    try:
        return load_catalog("appliance", **properties)
    except Exception as error:
        # Each kind of catalog has failures of its own.
        raise BadSpec(f"lake.iceberg.catalog: {error}") from error
