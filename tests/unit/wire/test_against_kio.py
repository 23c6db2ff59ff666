"""Random messages of the most used APIs through kio, another implementation of the protocol: equal bytes and values."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import random
import uuid
from enum import IntEnum
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer

from appliance.base.errors import ErrorCode
from appliance.base.ids import ZERO_UUID
from appliance.wire.api import APIS, ApiKey
from appliance.wire.codec import decode, encode
from appliance.wire.schema import Struct, fields_of
from tests.support.wire_messages import is_our_own, random_message

MOST_USED = [
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
]
LOWEST_OF_KIO = {
    ApiKey.PRODUCE: 3,
    ApiKey.FETCH: 4,
    ApiKey.LIST_OFFSETS: 1,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.OFFSET_FETCH: 1,
    ApiKey.CREATE_TOPICS: 2,
}
"""It knows what Kafka 4 serves; what we serve below that is compared with the schemas of an earlier release."""
CASES = [
    (key, direction, version)
    for key in MOST_USED
    for direction in ("request", "response")
    for version in range(max(APIS[key].min_version, LOWEST_OF_KIO.get(key, 0)), APIS[key].max_version + 1)
]
MESSAGES_OF_EACH = 8


def kio_class(key: ApiKey, direction: str, version: int) -> Any:
    module = importlib.import_module(f"kio.schema.{key.name.lower()}.v{version}.{direction}")
    return getattr(module, f"{APIS[key].name}{direction.capitalize()}")


def tamed(message: Struct, version: int, source: random.Random) -> Struct:
    """kio keeps times as datetime and timedelta and error codes as an enum: stay within what these can hold."""
    for field in fields_of(type(message)):
        if not field.is_in(version):
            continue
        value = getattr(message, field.name)
        if is_our_own(field):
            setattr(message, field.name, field.default_value())
        elif isinstance(value, Struct):
            tamed(value, version, source)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Struct):
                    tamed(item, version, source)
        elif field.name == "error_code":
            setattr(message, field.name, int(source.choice(list(ErrorCode))))
        elif field.name == "log_append_time_ms":
            setattr(message, field.name, source.choice([-1, source.randint(0, 4_000_000_000_000)]))
        elif field.name == "retention_time_ms":
            setattr(message, field.name, source.randint(-1, 10**12))
    return message


def plain(value: Any) -> Any:
    """A value of kio in the types that we use."""
    if dataclasses.is_dataclass(value):
        return [plain(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, IntEnum):
        return int(value)
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return (value - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(milliseconds=1)
    return value


def ours(value: Any, version: int) -> Any:
    """A value of ours as nested lists of the fields that a version has."""
    if isinstance(value, Struct):
        fields = [field for field in fields_of(type(value)) if field.is_in(version) and not is_our_own(field)]
        return [
            # kio says None where no time was set.
            None if field.name == "log_append_time_ms" and got == -1 else ours(got, version)
            for field, got in ((field, getattr(value, field.name)) for field in fields)
        ]
    if isinstance(value, list):
        return [ours(item, version) for item in value]
    return value


def without_zero_uuids(value: Any) -> Any:
    """kio says None for the zero UUID."""
    if isinstance(value, list):
        return [without_zero_uuids(item) for item in value]
    return None if isinstance(value, uuid.UUID) and value == ZERO_UUID else value


@pytest.mark.parametrize(("key", "direction", "version"), CASES, ids=lambda part: getattr(part, "name", str(part)))
def test_kio_reads_what_we_write_and_writes_the_same_bytes(key: ApiKey, direction: str, version: int) -> None:
    cls = getattr(APIS[key], direction)
    theirs = kio_class(key, direction, version)
    source = random.Random(f"{key} {direction} {version}")
    for _ in range(MESSAGES_OF_EACH):
        message = tamed(random_message(cls, version, source), version, source)
        written = encode(message, version)

        read, _ = entity_reader(theirs)(memoryview(written), 0)
        assert plain(read) == without_zero_uuids(ours(message, version))

        buffer = io.BytesIO()
        entity_writer(theirs)(buffer, read)
        assert buffer.getvalue() == written
        assert decode(cls, buffer.getvalue(), version) == message


def test_the_cases_cover_every_version_that_kio_knows() -> None:
    for key, direction, version in CASES:
        assert kio_class(key, direction, version).__version__ == version
