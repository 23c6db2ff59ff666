"""Every declaration against the message schemas in Apache Kafka's own jars."""

from __future__ import annotations

import json
import re
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from appliance.wire import types
from appliance.wire.api import APIS
from appliance.wire.schema import Struct, fields_of
from appliance.wire.types import Scalar
from tests.support.kafka_jars import earlier_clients_jar, kafka_jar
from tests.support.wire_messages import RECORD_SCHEMAS, declared_messages, is_our_own

OUR_OWN_KEYS = 20_000
SINCE_THE_FIRST_VERSION = {
    "AlterReplicaLogDirs",
    "CreateTopics",
    "DeleteTopics",
    "DescribeConfigs",
    "DescribeLogDirs",
    "Fetch",
    "ListOffsets",
    "OffsetCommit",
    "OffsetFetch",
    "OffsetForLeaderEpoch",
    "Produce",
}
"""Served in versions that Kafka 4 has given up (KIP-896): programs of the last ten years send them."""
ZEROES = {"bool": False, "string": "", "bytes": b"", "records": None, "float64": 0.0, "uuid": types.UUID.zero}

pytestmark = pytest.mark.java


@cache
def schemas() -> dict[str, dict[str, Any]]:
    """All message schemas by name: of the clients' jar, and the record formats of the coordinators."""
    coordinators = ("kafka-group-coordinator", "kafka-transaction-coordinator", "kafka-share-coordinator")
    artifacts = ("kafka-clients", *coordinators)
    return schemas_of(*map(kafka_jar, artifacts))


@cache
def earlier_schemas() -> dict[str, dict[str, Any]]:
    """Those of the last release before 4.0, for versions that are no more."""
    return schemas_of(earlier_clients_jar())


def schema_of(cls: type[Struct], version: int) -> dict[str, Any]:
    schema = schemas()[cls.__name__]
    return schema if version >= bounds(schema["validVersions"])[0] else earlier_schemas()[cls.__name__]


def schemas_of(*jars: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for path in jars:
        with zipfile.ZipFile(path) as jar:
            for name in jar.namelist():
                if name.startswith("common/message/") and name.endswith(".json"):
                    text = re.sub(r"^\s*//.*$", "", jar.read(name).decode(), flags=re.MULTILINE)
                    schema = json.loads(text)
                    found[schema["name"]] = schema
    return found


def bounds(text: str | None) -> tuple[int, int]:
    """The versions `3-5`, `3+`, `3` or `none`."""
    if not text or text == "none":
        return 1, 0
    low, dash, high = text.partition("-")
    if text.endswith("+"):
        return int(text[:-1]), 1 << 15
    return int(low), int(high if dash else low)


def is_in(version: int, text: str | None) -> bool:
    low, high = bounds(text)
    return low <= version <= high


def snake_case(name: str) -> str:
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", parts).lower()


def default_of(field: dict[str, Any], struct_fields: Any) -> Any:
    """The default that Kafka's own classes start with."""
    kind, written = field["type"], field.get("default")
    if str(written) == "null":
        return None
    if kind.startswith("[]"):
        return []
    if written is None:
        return "new struct" if struct_fields is not None else ZEROES.get(kind, 0)
    if kind == "bool":
        return str(written).lower() == "true"
    return written if kind == "string" else int(str(written), 0)


def described_by_kafka(schema: dict[str, Any], version: int) -> list[tuple[Any, ...]]:
    """Fields of one version in their order, nested ones within."""
    common = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}

    def describe(fields: list[dict[str, Any]], low: int, high: int) -> list[tuple[Any, ...]]:
        described = []
        for field in fields:
            present = field.get("versions", field.get("taggedVersions"))
            if not is_in(version, present):
                continue
            kind = field["type"].removeprefix("[]")
            inner = field.get("fields") or common.get(kind)
            since, until = bounds(present)
            absent_somewhere = since > low or until < high
            described.append(
                (
                    snake_case(field["name"]),
                    ("array of " if field["type"].startswith("[]") else "") + kind,
                    is_in(version, field.get("nullableVersions")),
                    field["tag"] if is_in(version, field.get("taggedVersions")) else None,
                    default_of(field, inner),
                    absent_somewhere and str(field.get("ignorable", False)).lower() == "true",
                    describe(inner, max(low, since), min(high, until)) if inner else None,
                )
            )
        return described

    return describe(schema["fields"], *bounds(schema["validVersions"]))


def described_by_us(
    cls: type[Struct], version: int, kafka: list[tuple[Any, ...]], among: tuple[int, int]
) -> list[tuple[Any, ...]]:
    """The same of a declaration, as seen among these versions.

    A struct that shares its name with the request's may be called ...Response.
    """

    def describe(struct: type[Struct], theirs: list[tuple[Any, ...]], low: int, high: int) -> list[tuple[Any, ...]]:
        described = []
        fields = [field for field in fields_of(struct) if field.is_in(version) and not is_our_own(field)]
        for position, field in enumerate(fields):
            their_kind, their_inner = (
                (theirs[position][1], theirs[position][6]) if position < len(theirs) else ("", None)
            )
            until = high if field.until is None else field.until
            if isinstance(field.type, Scalar):
                kind, inner = field.type.name, None
            else:
                kind = field.type.__name__
                inner = describe(field.type, their_inner or [], max(low, field.since), min(high, until))
                if their_kind.removeprefix("array of ") == kind.removesuffix("Response"):
                    kind = kind.removesuffix("Response")
            default = field.default_value()
            absent_somewhere = field.since > low or until < high
            described.append(
                (
                    field.name,
                    ("array of " if field.is_array else "") + kind,
                    field.is_nullable_in(version),
                    field.tag if field.is_tagged_in(version) else None,
                    "new struct" if isinstance(default, Struct) else default,
                    absent_somewhere and field.ignorable,
                    inner,
                )
            )
        return described

    return describe(cls, kafka, *among)


def kafkas_own() -> list[type[Struct]]:
    return [cls for cls in declared_messages() if (cls.__wire__.api_key or 0) < OUR_OWN_KEYS]


def test_the_clients_jar_has_the_198_schemas_that_the_declarations_were_made_for() -> None:
    with zipfile.ZipFile(kafka_jar("kafka-clients")) as jar:
        names = [name for name in jar.namelist() if name.startswith("common/message/") and name.endswith(".json")]
    assert len(names) == 198


@pytest.mark.parametrize("cls", kafkas_own(), ids=lambda cls: cls.__name__)
def test_a_declaration_has_kafkas_key_and_versions(cls: type[Struct]) -> None:
    schema, wire = schemas()[cls.__name__], cls.__wire__
    flexible_from = bounds(schema["flexibleVersions"])[0] if schema["flexibleVersions"] != "none" else None
    lowest, highest = bounds(schema["validVersions"])
    if cls.__name__.removesuffix("Request").removesuffix("Response") in SINCE_THE_FIRST_VERSION:
        lowest = 0
    assert wire.versions == (lowest, highest)
    assert wire.flexible_from == flexible_from
    assert wire.latest_version_unstable == bool(schema.get("latestVersionUnstable", False))
    if cls not in RECORD_SCHEMAS:
        assert wire.api_key == schema["apiKey"]


@pytest.mark.parametrize("cls", kafkas_own(), ids=lambda cls: cls.__name__)
def test_a_declaration_has_kafkas_fields_in_every_version(cls: type[Struct]) -> None:
    low, high = cls.__wire__.versions or (0, -1)
    for version in range(low, high + 1):
        schema = schema_of(cls, version)
        kafka = described_by_kafka(schema, version)
        assert described_by_us(cls, version, kafka, bounds(schema["validVersions"])) == kafka, f"version {version}"


def test_both_directions_of_an_api_are_declared_under_kafkas_names() -> None:
    by_key = {
        (schema["apiKey"], schema["type"]): name
        for name, schema in schemas().items()
        if schema["type"] in ("request", "response")
    }
    for key, api in APIS.items():
        if key < OUR_OWN_KEYS:
            assert (api.request.__name__, api.response.__name__) == (by_key[key, "request"], by_key[key, "response"])
