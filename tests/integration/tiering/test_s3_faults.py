"""What the SDK and a real connection make of lost answers, refusals and stalls."""

from __future__ import annotations

import pytest

from appliance.base.errors import UserError
from appliance.base.object_store import ObjectExists, StoreRefused, StoreUnavailable, StoreUndecided
from appliance.tiering import s3 as s3_module
from appliance.tiering import stores
from appliance.tiering.s3 import S3Store
from appliance.tiering.stores import probe_store
from tests.support.fault_proxy import FaultProxy
from tests.support.moto_server import MotoServer


@pytest.fixture
def store(moto: MotoServer, proxy: FaultProxy) -> S3Store:
    return S3Store(moto.bucket(), "x", {**moto.client_options, "endpoint_url": proxy.endpoint_url})


@pytest.mark.parametrize("fate", ["503", "lose", "reset"])
def test_a_conditional_write_without_answer_is_undecided_and_sent_only_once(
    store: S3Store, proxy: FaultProxy, fate: str
) -> None:
    proxy.rule = lambda method, path: fate
    with pytest.raises(StoreUndecided):
        store.create("name", b"one")
    assert proxy.requests["PUT"] == 1
    proxy.rule = lambda method, path: None
    if fate == "lose":
        with pytest.raises(ObjectExists):
            store.create("name", b"one")
        etag = store.get("name").etag
        proxy.rule = lambda method, path: "lose"
        with pytest.raises(StoreUndecided):
            store.swap("name", b"two", etag)
        proxy.rule = lambda method, path: None
        assert store.get("name").data == b"two"
    else:
        store.create("name", b"one")


def test_a_write_that_stalls_is_undecided_after_the_read_timeout(
    moto: MotoServer, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_module, "READ_TIMEOUT_S", 0.5)
    store = S3Store(moto.bucket(), "", {**moto.client_options, "endpoint_url": proxy.endpoint_url})
    proxy.rule = lambda method, path: "stall"
    with pytest.raises(StoreUndecided, match=r"(?i)timeout"):
        store.create("name", b"one")


def test_reads_are_tried_again_by_the_sdk_and_then_unavailable(store: S3Store, proxy: FaultProxy) -> None:
    store.create("name", b"one")
    count = iter(range(2))
    proxy.rule = lambda method, path: "503" if next(count, None) is not None else None
    assert store.get("name").data == b"one"
    proxy.rule = lambda method, path: "503"
    with pytest.raises(StoreUnavailable):
        store.get("name")


def test_a_bucket_that_does_not_exist_ends_with_code_4_and_its_name(moto: MotoServer) -> None:
    store = S3Store("no-such-bucket-here", "", moto.client_options)
    with pytest.raises(StoreRefused):
        store.create("name", b"")
    with pytest.raises(UserError, match="s3://no-such-bucket-here cannot be used") as caught:
        probe_store(store)
    assert caught.value.exit_code == 4


def test_a_store_that_answers_503_at_start_ends_with_code_4(
    store: S3Store, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "PROBE_PAUSE_S", 0.01)
    proxy.rule = lambda method, path: "503"
    with pytest.raises(UserError, match="is not reachable") as caught:
        probe_store(store)
    assert caught.value.exit_code == 4
