"""Two servers that are asked the same, and a comparison of their answers, field by field.

A case is a function that asks one side by `side.ask(label, request)`. It runs on both sides, once for each version that
both serve. What must differ is put out of the way before the comparison (`_OPAQUE`): ids, times, addresses, throttling.
Of a text for people only whether there is one is compared.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.client.connection import CallTimedOut, Connection, ConnectionLost
from appliance.wire.api import APIS, ApiKey
from appliance.wire.messages.api_versions import ApiVersionsRequest
from appliance.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from appliance.wire.messages.find_coordinator import FindCoordinatorRequest
from appliance.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from appliance.wire.schema import Struct, fields_of
from tests.support.broker import running_cluster

PATIENCE_S = 20.0
ANSWER_TIMEOUT_MS = 12_000
RETRIED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""With these every client asks again; so do we."""
SERVERS = {
    "offsets.topic.num.partitions": "10",
    "transaction.state.log.num.partitions": "10",
}

ENDED = "connection ended"
SILENT = "no answer"


class Side:
    """One of the two servers, while a case runs on it."""

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name = name
        self.host, self.port = host, port
        self.connection = self.connect()
        self.served = self.connection.versions()
        self.version = 0
        self.prefix = ""
        self.seen: list[tuple[str, int, Any]] = []
        """(label, API key, what was answered) since `begin`."""
        self.answered: list[tuple[int, int, Any]] = []
        """(API key, version, what was answered) since `begin`."""
        self._others: list[Connection] = []

    def connect(self) -> Connection:
        return Connection(self.host, self.port, client_id="differential", timeout_ms=ANSWER_TIMEOUT_MS)

    def begin(self, prefix: str, version: int) -> None:
        self.prefix, self.version, self.seen, self.answered = prefix, version, [], []

    def end(self) -> None:
        for other in self._others:
            other.close()
        self._others.clear()

    def close(self) -> None:
        self.end()
        self.connection.close()

    def another(self) -> Connection:
        """A connection beside the first one, for requests that wait; closed at the end of the case."""
        self._others.append(self.connect())
        return self._others[-1]

    def named(self, what: str) -> str:
        """A name that only this case and version uses, the same on both sides."""
        return f"{self.prefix}-{what}"

    def ask(self, label: str, request: Any, version: int | None = None, *, on: Connection | None = None) -> Any:
        """Send a request and remember what is answered; None when nothing is, or the connection ends instead."""
        asked = self.version if version is None else version
        answer = self._until_settled(request, asked, on)
        if isinstance(answer, str):
            self._saw(label, type(request).__wire__.api_key, asked, answer)
            return None
        self.remember(label, answer, asked)
        return answer

    def remember(self, label: str, answer: Struct, version: int) -> None:
        """An answer is to be compared."""
        self._saw(label, type(answer).__wire__.api_key or 0, version, self._unnamed(facts(answer, version)))

    def _saw(self, label: str, key: int, version: int, answer: Any) -> None:
        self.seen.append((label, key, answer))
        self.answered.append((key, version, answer))

    def _unnamed(self, value: Any) -> Any:
        """Without the prefix of the case's names, so that versions resemble each other."""
        if isinstance(value, dict):
            return {name: self._unnamed(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._unnamed(each) for each in value]
        return value.replace(self.prefix, "…") if isinstance(value, str) and self.prefix else value

    def set_up(self, request: Any, version: int | None = None) -> Any:
        """Send a request whose answer is not compared."""
        highest = min(self.served[type(request).__wire__.api_key][1], api_of(request).max_stable_version)
        return self._until_settled(request, highest if version is None else version, None)

    def answer_to(self, request: Any) -> Any:
        """As `ask`, but what of the answer is to be compared is the case's to remember."""
        return self._until_settled(request, self.version, None)

    def _until_settled(self, request: Any, version: int, on: Connection | None) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            if on is None and not self.connection.is_open:
                self.connection = self.connect()
            try:
                answer = (on or self.connection).call(request, version)
            except ConnectionLost:
                return ENDED
            except CallTimedOut:
                return SILENT
            if time.monotonic() > deadline or not RETRIED & set(_codes(answer)):
                return answer
            time.sleep(0.02)

    def new_topic(self, what: str = "topic", partitions: int = 1, **configs: str) -> CreatedTopic:
        """A topic whose partitions have leaders; configs are Kafka's with _ for the dots."""
        name = self.named(what)
        config = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=config)]
        )
        (result,) = self.set_up(request).topics
        assert result.error_code == 0, (self.name, result)
        self.wait_for_leaders(name, partitions)
        return CreatedTopic(name, result.topic_id)

    def wait_for_leaders(self, name: str, partitions: int) -> None:
        wanted = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=wanted)])
        deadline = time.monotonic() + PATIENCE_S
        while any(_codes(self.set_up(request))):
            assert time.monotonic() < deadline, f"{name} has no leader"
            time.sleep(0.01)

    def find_coordinator(self, key: str, key_type: int = 0) -> None:
        self.set_up(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]))


@dataclass(frozen=True)
class CreatedTopic:
    name: str
    topic_id: uuid.UUID


def api_of(request: Any) -> Any:
    return APIS[type(request).__wire__.api_key]


def _codes(value: Any) -> Iterator[int]:
    if isinstance(value, Struct):
        for each in fields_of(type(value)):
            inner = getattr(value, each.name)
            if each.name.endswith("error_code"):
                yield inner
            else:
                yield from _codes(inner)
    elif isinstance(value, list):
        for each in value:
            yield from _codes(each)


# From an answer to what is compared of it


def _is_there(value: Any) -> Any:
    return "there" if value else value


def _long_ago_or_now(value: int) -> Any:
    """Times of the run itself are all alike, those that a case chose are not."""
    return "a time" if value > 1_700_000_000_000 else value


_OPAQUE: dict[str, Callable[[Any], Any]] = {
    "throttle_time_ms": lambda _: "",
    "cluster_id": _is_there,
    "host": _is_there,
    "port": lambda value: "a port" if value > 0 else value,
    "client_host": _is_there,
    "topic_id": lambda value: "there" if value.int else "zero",
    "session_id": _is_there,
    "producer_id": lambda value: "an id" if value >= 0 else value,
    "log_dir": _is_there,
    "total_bytes": lambda value: "some" if value > 0 else value,
    "usable_bytes": lambda value: "some" if value > 0 else value,
    "finalized_features_epoch": lambda value: value >= 0,
    "error_message": lambda value: value if not value else "a text",
    "acknowledge_error_message": lambda value: "",
    "batch_index_error_message": lambda value: value if not value else "a text",
    "status_detail": lambda value: value if not value else "a text",
    "documentation": lambda value: value if not value else "a text",
    "log_append_time_ms": _long_ago_or_now,
    "timestamp": _long_ago_or_now,
    "last_timestamp": _long_ago_or_now,
    "transaction_start_time_ms": _long_ago_or_now,
    "records": lambda value: None if value is None else bytes(value),
}
_MEMBER_ID = re.compile(r"(.*)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
ORDERED_BY = {
    "topics": ("name", "topic", "topic_id"),
    "configs": ("name",),
    "members": ("group_instance_id", "member_id"),
    "groups": ("group_id",),
    "brokers": ("broker_id", "node_id"),
    "partitions": ("partition_index", "partition"),
    "partition_responses": ("index",),
    "results": ("name", "group_id", "resource_name", "user"),
    "credential_infos": ("mechanism",),
    "results_by_transaction": ("transactional_id",),
    "topic_results": ("name",),
    "results_by_partition": ("partition_index",),
    "api_keys": ("api_key",),
    "transaction_states": ("transactional_id",),
}
"""Lists whose order says nothing."""


def facts(value: Any, version: int, name: str = "") -> Any:
    """An answer as nested dicts and lists, with only the fields of this version."""
    if name in _OPAQUE:
        return _OPAQUE[name](value)
    if isinstance(value, Struct):
        return {
            each.name: facts(getattr(value, each.name), version, each.name)
            for each in fields_of(type(value))
            if each.is_in(version) and not (each.tag is not None and each.tag >= 10_000)
        }
    if isinstance(value, list):
        rows = [facts(each, version) for each in value]
        if name in ("subscribed_topic_names", "responses", "entries", "entity", "resources", "acls", "matching_acls"):
            rows.sort(key=str)
        if name in ORDERED_BY and rows and isinstance(rows[0], dict):
            key = next((one for one in ORDERED_BY[name] if one in rows[0]), None)
            if key is not None:
                rows.sort(key=lambda row: (str(row[key]), str(row)))
        return rows
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if isinstance(value, str):
        made = _MEMBER_ID.fullmatch(value)
        return f"{made[1]}-id" if made else value
    return value


@dataclass(frozen=True)
class Difference:
    """One field that is not the same."""

    api: str
    version: int
    label: str
    path: str
    kafka: Any
    ours: Any


def _shown(value: Any) -> str:
    return "a row" if isinstance(value, dict) else repr(value)[:100]


def told(found: list[Difference]) -> str:
    """One line for each difference, with all versions that have it."""
    versions: dict[tuple[str, ...], list[int]] = {}
    for one in found:
        key = (one.api, one.label, one.path, _shown(one.kafka), _shown(one.ours))
        versions.setdefault(key, []).append(one.version)
    return "\n".join(
        f"{api} v{min(which)}-{max(which)}, {label}: {path} is {kafka} there and {ours} here"
        for (api, label, path, kafka, ours), which in versions.items()
    )


@dataclass(frozen=True)
class Meant:
    """A difference that is wanted. The pattern is for `api label path`."""

    pattern: str
    reason: str
    met: list[Difference] = field(default_factory=list, compare=False)

    def covers(self, difference: Difference) -> bool:
        return re.fullmatch(self.pattern, f"{difference.api} {difference.label} {difference.path}") is not None


def differences(kafka: Side, ours: Side) -> list[Difference]:
    """What the two sides answered differently since `begin`."""
    found: list[Difference] = []
    assert [label for label, _, _ in kafka.seen] == [label for label, _, _ in ours.seen], (kafka.seen, ours.seen)
    for (label, key, theirs), (_, _, here) in zip(kafka.seen, ours.seen, strict=True):
        for path, one, other in _compare(theirs, here, ""):
            found.append(Difference(ApiKey(key).name, kafka.version, label, path, one, other))
    return found


def _compare(kafka: Any, ours: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(kafka, dict) and isinstance(ours, dict):
        if kafka.get("error_code") != ours.get("error_code"):
            # The rest of the row follows from that.
            yield f"{path}.error_code", kafka["error_code"], ours["error_code"]
            return
        failed = bool(kafka.get("error_code"))
        for name in kafka:
            if failed and name == "error_message":
                # What people are told is each server's own.
                continue
            yield from _compare(kafka[name], ours[name], f"{path}.{name}" if path else name)
    elif isinstance(kafka, list) and isinstance(ours, list):
        for part, one, other in _aligned(kafka, ours):
            if one is None or other is None:
                yield f"{path}[{part}]", one, other
            else:
                yield from _compare(one, other, f"{path}[{part}]")
    elif kafka != ours:
        yield path, kafka, ours


def _aligned(kafka: list[Any], ours: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    """Rows with a name beside each other, others by their place."""
    if all(isinstance(row, dict) and "name" in row for row in [*kafka, *ours]) and (kafka or ours):
        there, here = {row["name"]: row for row in kafka}, {row["name"]: row for row in ours}
        for name in {**there, **here}:
            yield str(name), there.get(name), here.get(name)
        return
    if all(isinstance(row, dict) and "api_key" in row for row in [*kafka, *ours]) and (kafka or ours):
        there, here = {row["api_key"]: row for row in kafka}, {row["api_key"]: row for row in ours}
        for key in sorted({**there, **here}):
            yield str(key), there.get(key), here.get(key)
        return
    for place in range(max(len(kafka), len(ours))):
        one = kafka[place] if place < len(kafka) else None
        other = ours[place] if place < len(ours) else None
        yield str(place), one, other


@contextmanager
def our_side(folder: Path) -> Iterator[Side]:
    """One broker of ours, and its controller."""
    with running_cluster(folder, brokers=1, properties=SERVERS) as cluster:
        side = Side("ours", "127.0.0.1", cluster.brokers[1].port)
        try:
            yield side
        finally:
            side.close()


# Cases


@dataclass(frozen=True)
class Case:
    """What is asked, in which versions."""

    name: str
    api_key: int
    run: Callable[[Side], None]
    versions: range | None = None
    is_for_compat: bool = False
    """Only `make compat` asks it."""

    def versions_of(self, kafka: Side, ours: Side) -> range:
        """All that both serve, or those of them that the case is about."""
        if self.api_key not in ours.served or self.api_key not in kafka.served:
            return range(0)
        (low, high), (our_low, our_high) = kafka.served[self.api_key], ours.served[self.api_key]
        low, high = max(low, our_low, APIS[self.api_key].min_version), min(high, our_high)
        if self.versions is not None:
            low, high = max(low, self.versions.start), min(high, self.versions.stop - 1)
        return range(low, high + 1)


CASES: list[Case] = []


def case(
    api_key: ApiKey, versions: range | None = None, *, is_for_compat: bool = False
) -> Callable[[Callable[[Side], None]], Callable[[Side], None]]:
    """Register a function as a case of an API."""

    def register(run: Callable[[Side], None]) -> Callable[[Side], None]:
        CASES.append(Case(run.__name__, int(api_key), run, versions, is_for_compat))
        return run

    return register


__all__ = ["ENDED", "ApiVersionsRequest", "Case", "Difference", "Meant", "Side", "case", "differences", "our_side"]
