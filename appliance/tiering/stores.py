"""From a URL to an object store, and the proof that it keeps the seam's contract."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from appliance.base.config import BrokerConfig
from appliance.base.errors import UserError
from appliance.base.object_store import (
    ETagMismatch,
    ObjectExists,
    ObjectNotFound,
    ObjectStore,
    ObjectStoreError,
    StoreRefused,
    StoreUnavailable,
)
from appliance.base.randomness import Randomness, SystemRandomness
from appliance.tiering.body import BodyStore
from appliance.tiering.directory import DirectoryStore

UNENCRYPTED, KMS = "none", "aws:kms"
NO_STORES = ("", "s3", "file", "http", "https", "memory")
"""Schemes that fsspec knows and that cannot be written to, live in one process, or have a store of their own."""
PROBE_ATTEMPTS = 5
PROBE_PAUSE_S = 0.5
PROBE_PATIENCE_S = 10
"""A library that repeats its requests by itself has had its time."""
NOT_REACHABLE = 4
"""The exit code of a process whose object store cannot be used."""


def open_store(url: str, config: BrokerConfig | None = None) -> BodyStore:
    """The object store at `url`: a path, `file:///path`, `s3://bucket/prefix`, or what fsspec opens (`gs://`, `abfs://`).

    Sends no request; processes that write go through `probe_store` once. S3's endpoint and credentials come from the
    usual AWS settings, how the bucket encrypts what is written from `config`; without one its own defaults hold.

    Raises:
        UserError: no such kind of URL, boto3 is missing, the directory cannot be used, or configs do not go together.
    """
    parts = urlsplit(url)
    try:
        if parts.scheme == "s3" and parts.netloc:
            # Here and not above: boto3 is an optional dependency and takes a third of a second to import.
            from appliance.tiering.s3 import S3Store

            return S3Store(parts.netloc, parts.path, write_options=encryption_of(config) if config else None)
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            return DirectoryStore(Path(unquote(parts.path)))
        if "://" not in url and url:
            return DirectoryStore(Path(url))
        if parts.scheme not in NO_STORES and parts.netloc:
            from appliance.tiering.fsspec_kinds import is_known
            from appliance.tiering.fsspec_store import FsspecStore

            if is_known(parts.scheme):
                return FsspecStore(url)
    except ObjectStoreError as error:
        raise UserError(f"object store {url}: {error}", NOT_REACHABLE) from error
    raise _unknown(url)


def check_url(url: str) -> None:
    """Whether `open_store` can open it, as far as can be told without opening it. Raises: UserError."""
    parts = urlsplit(url)
    if "://" not in url or (parts.scheme == "file" and parts.netloc in ("", "localhost")):
        return
    if not parts.netloc or (parts.scheme in NO_STORES and parts.scheme != "s3"):
        raise _unknown(url)
    from appliance.tiering.fsspec_kinds import is_known

    try:
        if parts.scheme == "s3" and find_spec("boto3") is None:
            raise StoreRefused("s3:// needs boto3: install appliance[s3]")
        if parts.scheme != "s3" and not is_known(parts.scheme):
            raise _unknown(url)
    except StoreRefused as error:
        raise UserError(f"object store {url}: {error}", NOT_REACHABLE) from error


def _unknown(url: str) -> UserError:
    kinds = "file:///path, s3://bucket/prefix, gs://bucket/prefix, abfs://container/prefix or another URL of fsspec"
    return UserError(f"object store {url!r}: give a path, {kinds}")


def encryption_of(config: BrokerConfig) -> dict[str, str]:
    """What each write to S3 asks for (`s3.sse`, `s3.sse.kms.key.id`).

    Raises: UserError: a key without SSE-KMS.
    """
    algorithm, key_id = config.get("s3.sse"), config.get("s3.sse.kms.key.id")
    if key_id and algorithm != KMS:
        raise UserError(f"s3.sse.kms.key.id is set: s3.sse must be {KMS}")
    options = {"ServerSideEncryption": algorithm} if algorithm != UNENCRYPTED else {}
    return {**options, "SSEKMSKeyId": key_id} if key_id else options


def probe_store(store: ObjectStore, randomness: Randomness | None = None) -> None:
    """Try on throw-away keys below `probe/` whether the store keeps every promise that safety is drawn from.

    Raises:
        UserError(exit_code=4): the store is not reachable, says no, or ignores a condition; one line, with its URL.
    """
    chance = randomness or SystemRandomness()
    give_up_at = time.monotonic() + PROBE_PATIENCE_S
    for attempt in range(1, PROBE_ATTEMPTS + 1):
        try:
            _probe(store, f"probe/{chance.random_bytes(12).hex()}")
            return
        except StoreUnavailable as error:
            if attempt == PROBE_ATTEMPTS or time.monotonic() >= give_up_at:
                raise UserError(f"object store {store.url} is not reachable: {_line(error)}", NOT_REACHABLE) from error
            time.sleep(PROBE_PAUSE_S)
        except StoreRefused as error:
            raise UserError(f"object store {store.url} cannot be used: {_line(error)}", NOT_REACHABLE) from error


def _probe(store: ObjectStore, prefix: str) -> None:
    name, absent = f"{prefix}-a", f"{prefix}-b"
    try:
        _try_promises(store, prefix, name, absent)
    except StoreUnavailable:
        raise
    except Exception:
        with contextlib.suppress(ObjectStoreError):
            store.delete(name)
            store.delete(absent)
        raise
    store.delete(name)
    _require(store, not list(store.list(prefix)), "lists no more what was deleted")


def _try_promises(store: ObjectStore, prefix: str, name: str, absent: str) -> None:
    etag = store.create(name, b"one-1")
    _expect(store, "create of a name that exists", ObjectExists, lambda: store.create(name, b"two-2"))
    _require(store, store.get(name).data == b"one-1", "reads what was written")
    newer = store.swap(name, b"three", etag)
    _expect(store, "swap with an old ETag", ETagMismatch, lambda: store.swap(name, b"four4", etag))
    _require(store, newer != etag, "gives another body another ETag")
    _expect(store, "read with an old ETag", ETagMismatch, lambda: store.get(name, etag=etag))
    _require(store, store.get(name, start=1, length=2, etag=newer).data == b"hr", "reads ranges")
    _require(store, store.get(name, start=-2).data == b"ee", "reads from the end")
    _require(store, store.get_if_changed(name, newer) is None, "knows an unchanged object")
    missing = (ObjectNotFound, ETagMismatch)
    _expect(store, "swap of a missing object", missing, lambda: store.swap(absent, b"five5", newer))
    _require(store, [row.name for row in store.list(prefix)] == [name], "lists what was written, and no more")


def _expect(
    store: ObjectStore,
    what: str,
    refusal: type[ObjectStoreError] | tuple[type[ObjectStoreError], ...],
    action: Callable[[], object],
) -> None:
    try:
        action()
    except refusal:
        return
    raise UserError(f"object store {store.url} is not safe to use: it ignores the condition of a {what}", NOT_REACHABLE)


def _require(store: ObjectStore, kept: bool, promise: str) -> None:
    if not kept:
        raise UserError(f"object store {store.url} is not safe to use: it is not one that {promise}", NOT_REACHABLE)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
