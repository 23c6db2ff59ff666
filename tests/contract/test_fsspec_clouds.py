"""The file systems of Google and Azure, their libraries on emulators: what the suite of all stores does not ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from adlfs import AzureBlobFileSystem
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from appliance.base.errors import UserError
from appliance.base.ids import TopicPartition as Place
from appliance.base.object_store import ObjectExists, StoreUnavailable, StoreUndecided
from appliance.client.client import Client
from appliance.tiering.fsspec_kinds import GOOGLE_TIMEOUT_S
from appliance.tiering.fsspec_store import FsspecStore
from appliance.tiering.stores import open_store, probe_store
from appliance.tiering.verify import verify_tier
from tests.support.fault_proxy import FaultProxy
from tests.support.programs import BUILD_TIMEOUT_S
from tests.support.racing import racing
from tests.support.replicated import until
from tests.support.running import REAL, RunningAppliance
from tests.support.store_peers import AzureStorage, GoogleStorage
from tests.support.total_loss import tier

pytestmark = [pytest.mark.soak, pytest.mark.timeout(BUILD_TIMEOUT_S + 120)]

LARGE_BYTES = 65 << 20
"""Both libraries send it in pieces."""
TOPIC = "orders"
RECORDS, VALUE_BYTES = 80, 50_000
EARLIEST_LOCAL, TIERED_TO = -4, -5
FLAGS = ("--runtime", "local", "--brokers", "1", "--services", "none")
CONFIGS = {
    "segment.bytes": "1048576",
    "retention.ms": "-1",
    "local.retention.bytes": "1",
    "tiering.max.lag.ms": "300",
    "file.delete.delay.ms": "0",
}


@pytest.fixture(params=["google", "azure"])
def peer(request: pytest.FixtureRequest) -> GoogleStorage | AzureStorage:
    return request.getfixturevalue(request.param)


def opened(url: str, options: dict[str, Any]) -> FsspecStore:
    """As another process would open it."""
    return FsspecStore(url, {**options, "skip_instance_cache": True})


def test_of_racing_creators_of_a_body_in_pieces_one_wins(peer: GoogleStorage | AzureStorage) -> None:
    url = peer.url_of_new_bucket()
    stores = [opened(url, peer.fsspec_options) for _ in range(2)]
    bodies = [bytes([number]) * LARGE_BYTES for number in (1, 2)]
    results = racing(2, lambda number: stores[number].create("large", bodies[number]))
    winner = next(number for number, result in enumerate(results) if isinstance(result, str))
    assert isinstance(results[1 - winner], ObjectExists)
    assert stores[0].get("large").data == bodies[winner]


def test_a_bucket_that_is_not_there_is_refused_in_one_line(peer: GoogleStorage | AzureStorage) -> None:
    scheme = peer.url_of_new_bucket().partition(":")[0]
    with pytest.raises(UserError, match="cannot be used") as raised:
        probe_store(opened(f"{scheme}://never-made/prefix", peer.fsspec_options))
    assert "\n" not in str(raised.value)


def test_up_ends_with_code_4_where_there_is_no_such_bucket(
    peer: GoogleStorage | AzureStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in peer.environment.items():
        monkeypatch.setenv(name, value)
    url = f"{peer.url_of_new_bucket().partition(':')[0]}://never-made/prefix"
    with RunningAppliance(tmp_path, *FLAGS, "--object-store", url, module=REAL) as running:
        assert running.exit_code(60) == 4, running.log()
        said = [line for line in running.log().splitlines() if line.startswith("appliance: ")]
        assert len(said) == 1 and f"object store {url} cannot be used" in said[0], running.log()
        assert "Traceback" not in running.log()


def test_a_store_without_an_account_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT_NAME"):
        monkeypatch.delenv(variable, raising=False)
    AzureBlobFileSystem.clear_instance_cache()
    with pytest.raises(UserError, match="account_name") as raised:
        open_store("abfs://container/prefix")
    assert "\n" not in str(raised.value)


@pytest.fixture
def proxied(peer: GoogleStorage | AzureStorage) -> Iterator[tuple[FaultProxy, FsspecStore, FsspecStore]]:
    """The way to the store that has bad days, a store that takes it, and one that does not."""
    url = peer.url_of_new_bucket()
    with FaultProxy(int(peer.endpoint_url.rpartition(":")[2])) as proxy:
        direct, peer_url = opened(url, peer.fsspec_options), peer.endpoint_url
        options = {
            key: value.replace(peer_url, proxy.endpoint_url) if isinstance(value, str) else value
            for key, value in peer.fsspec_options.items()
        }
        if isinstance(peer, GoogleStorage):
            assert direct._files.requests_timeout == GOOGLE_TIMEOUT_S
            options["requests_timeout"] = 2
        else:
            options["read_timeout"] = 2
        yield proxy, opened(url, options), direct


def on_first_write(fate: str) -> Any:
    """Only the first request that writes meets this."""
    left = [fate]
    return lambda method, path: left.pop() if method in ("POST", "PUT") and left else None


def test_a_write_whose_answer_is_lost_is_never_taken_for_anothers(
    proxied: tuple[FaultProxy, FsspecStore, FsspecStore],
) -> None:
    """Google's library sends it again by itself, Azure's is told not to."""
    proxy, store, direct = proxied
    proxy.rule = on_first_write("lose")
    with pytest.raises((StoreUndecided, ObjectExists)):
        store.create("name", b"mine")
    assert direct.get("name").data == b"mine"
    etag = direct.get("name").etag
    proxy.rule = on_first_write("lose")
    try:
        made = store.swap("name", b"also mine", etag)
    except StoreUndecided:
        made = direct.get("name").etag
    assert (direct.get("name").data, direct.get("name").etag) == (b"also mine", made)


def test_a_store_that_stalls_is_undecided_and_not_waited_for(
    proxied: tuple[FaultProxy, FsspecStore, FsspecStore],
) -> None:
    proxy, store, direct = proxied
    proxy.stall_s = 3_600
    proxy.rule = on_first_write("stall")
    with pytest.raises(StoreUndecided):
        store.create("name", b"mine")
    assert list(direct.list("")) == []
    with pytest.raises(StoreUnavailable):
        proxy.rule = lambda method, path: "stall"
        if isinstance(store._files.protocol, tuple) and "gs" in store._files.protocol:
            store.get("name")
        else:
            store.create("other", b"mine")


def fill(servers: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0, "log_level": 2})
    for number in range(first, first + count):
        producer.produce(TOPIC, b"%06d" % number + b" " * VALUE_BYTES, partition=0)
    assert producer.flush(60) == 0


def read(servers: str, count: int) -> list[tuple[int, bytes]]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "error", "log_level": 2})
    found: list[tuple[int, bytes]] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])

        def more() -> bool:
            for message in consumer.consume(500, 0.3):
                assert message.error() is None, message.error()
                found.append((message.offset(), message.value().rstrip()))
            return len(found) >= count

        until(more, "all records")
    finally:
        consumer.close()
    return found


def test_brokers_keep_metadata_and_tier_there_and_come_back_from_it_after_a_total_loss(
    peer: GoogleStorage | AzureStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in peer.environment.items():
        monkeypatch.setenv(name, value)
    url = f"{peer.url_of_new_bucket()}/a/cluster"
    expected = [(number, b"%06d" % number) for number in range(RECORDS)]
    place = Place(TOPIC, 0)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    config = tmp_path / "server.properties"
    config.write_text("tiering.task.interval.ms=50\n")
    flags = (*FLAGS, "--object-store", url, "--config", str(config))
    with RunningAppliance(tmp_path / "first", *flags, module=REAL) as running:
        servers = running.ready()["bootstrap_servers"]
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIGS)])[TOPIC].result(30)
        fill(servers, 0, RECORDS)
        with Client(servers) as client:
            until(lambda: client.list_offsets({place: TIERED_TO})[place].offset == RECORDS - 1, "all to be uploaded")
            until(lambda: client.list_offsets({place: EARLIEST_LOCAL})[place].offset > RECORDS // 2, "disks to shrink")
        assert read(servers, RECORDS) == expected
    store = open_store(url)
    report = verify_tier(store)
    assert (report.problems, report.partitions[0].records) == ([], RECORDS)
    with RunningAppliance(tmp_path / "second", *flags, module=REAL) as running:
        servers = running.ready()["bootstrap_servers"]
        code, rows = tier("restore", url, "--bootstrap-server", servers)
        assert code == 0, rows
        assert read(servers, RECORDS) == expected
    assert verify_tier(store).problems == []
