"""What is written to a bucket asks for the encryption that the configs name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest

from appliance.base.config import BrokerConfig
from appliance.base.errors import UserError
from appliance.tiering.body import FileBody
from appliance.tiering.s3 import S3Store
from appliance.tiering.stores import encryption_of, open_store, probe_store
from tests.support.moto_server import MotoServer


def bucket_of(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in moto.environment.items():
        monkeypatch.setenv(name, value)
    return moto.bucket()


def head(moto: MotoServer, bucket: str, key: str) -> dict[str, Any]:
    return boto3.client("s3", **moto.client_options).head_object(Bucket=bucket, Key=key)


@pytest.mark.parametrize(
    ("configs", "algorithm", "key"),
    [
        ({"s3.sse": "AES256"}, "AES256", None),
        ({"s3.sse": "aws:kms"}, "aws:kms", None),
        ({"s3.sse": "aws:kms", "s3.sse.kms.key.id": "alias/appliance"}, "aws:kms", "alias/appliance"),
    ],
    ids=str,
)
def test_every_kind_of_write_asks_for_encryption(
    moto: MotoServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    configs: dict[str, str],
    algorithm: str,
    key: str | None,
) -> None:
    bucket = bucket_of(moto, monkeypatch)
    store = open_store(f"s3://{bucket}/data", BrokerConfig(configs))
    assert isinstance(store, S3Store)
    probe_store(store)
    etag = store.create("created", b"one")
    store.swap("created", b"two", etag)
    file = tmp_path / "large"
    file.write_bytes(b"x" * (3 << 20))
    with file.open("rb") as source:
        store.create_from("streamed", FileBody(source.fileno(), 3 << 20, b"tail"))
    for name in ("created", "streamed"):
        found = head(moto, bucket, f"data/{name}")
        assert found["ServerSideEncryption"] == algorithm
        assert key is None or found["SSEKMSKeyId"].endswith(key)
    assert store.get("created").data == b"two"


def test_without_configs_the_buckets_own_defaults_hold(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = bucket_of(moto, monkeypatch)
    store = open_store(f"s3://{bucket}", BrokerConfig({}))
    store.create("plain", b"one")
    assert encryption_of(BrokerConfig({})) == {}
    assert head(moto, bucket, "plain").get("ServerSideEncryption") in (None, "AES256")


def test_a_key_without_kms_is_refused() -> None:
    with pytest.raises(UserError, match="must be aws:kms"):
        encryption_of(BrokerConfig({"s3.sse": "AES256", "s3.sse.kms.key.id": "k"}))
