"""An object store in an S3 bucket, or whatever answers like one.

Endpoint, region and credentials come from the usual AWS settings (`AWS_ENDPOINT_URL`, `AWS_PROFILE`, instance roles).
Two clients: reads and deletes are repeated by the SDK, conditional writes never are. With retries on, an answer that
got lost comes back as 412 for one's own write. A write without a usable answer (time-out, reset, 5xx, 503, 409) is
`StoreUndecided`, and the protocol above decides what to do.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
from collections.abc import Iterator
from typing import Any

from appliance.base.object_store import (
    ETagMismatch,
    ObjectExists,
    ObjectInfo,
    ObjectNotFound,
    ObjectStoreError,
    RangeNotSatisfiable,
    StoredObject,
    StoreRefused,
    StoreUnavailable,
    StoreUndecided,
)
from appliance.tiering.body import PIECE_BYTES, Body, BytesBody, body_crc32c

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 20
"""Also the longest time that one piece of a body may wait for the socket."""
READ_ATTEMPTS = 3
CONNECTIONS = 32

_TRY_AGAIN = {408, 409, 425, 429, 500, 502, 503, 504}


class S3Store:
    """Objects below `prefix` of `bucket`. Any thread may call any method."""

    names_per_list = 1_000
    """How many names one LIST answers; S3 gives no more."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        client_options: dict[str, Any] | None = None,
        write_options: dict[str, str] | None = None,
    ) -> None:
        """Make the clients; no request is sent.

        `client_options` go to boto3's `client()` as they are (`endpoint_url`, `aws_access_key_id`, ...),
        `write_options` to each `put_object` (`ServerSideEncryption`, ...).
        Raises: StoreRefused (boto3 is not installed, or the AWS settings cannot be read).
        """
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ImportError as error:
            raise StoreRefused("s3:// needs boto3: install appliance[s3]") from error
        self._bucket = bucket
        self._write_options = write_options or {}
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        options = dict(client_options or {})
        named = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
        own_endpoint = options.get("endpoint_url") or any(os.environ.get(variable) for variable in named)
        config = Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            max_pool_connections=CONNECTIONS,
            tcp_keepalive=True,
            # Checksums are given by hand: the SDK's own would read a body once more, or send it in chunks.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            # A bucket as part of the host name is Amazon's way; few others have such names in their DNS.
            s3={"addressing_style": "path"} if own_endpoint else None,
        )
        try:
            session = boto3.session.Session()
            once = Config(retries={"total_max_attempts": 1, "mode": "standard"})
            often = Config(retries={"total_max_attempts": READ_ATTEMPTS, "mode": "standard"})
            self._writer: Any = session.client("s3", config=config.merge(once), **options)
            self._reader: Any = session.client("s3", config=config.merge(often), **options)
        except (BotoCoreError, ValueError) as error:
            raise StoreRefused(f"{self.url}: {error}") from error

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def get(self, name: str, *, start: int = 0, length: int | None = None, etag: str | None = None) -> StoredObject:
        condition = {} if etag is None else {"IfMatch": etag}
        if start < 0:
            stored = self._get(name, {"Range": f"bytes={start}", **condition})
            return stored if length is None else StoredObject(stored.data[:length], stored.etag, stored.size)
        if start == 0 and length is None:
            return self._get(name, condition)
        last = "" if length is None else start + length - 1
        return self._get(name, {"Range": f"bytes={start}-{last}", **condition})

    def get_if_changed(self, name: str, etag: str) -> StoredObject | None:
        try:
            return self._get(name, {"IfNoneMatch": etag})
        except _NotModified:
            return None

    def create(self, name: str, data: bytes | memoryview) -> str:
        return self.create_from(name, BytesBody(data))

    def create_from(self, name: str, body: Body) -> str:
        return self._put(name, body, {"IfNoneMatch": "*"}, ObjectExists(f"{name}: exists already"))

    def swap(self, name: str, data: bytes, etag: str) -> str:
        changed = ETagMismatch(f"{name}: has another body than the one to be replaced")
        return self._put(name, BytesBody(data), {"IfMatch": etag}, changed)

    def delete(self, name: str) -> None:
        with _answers(name, StoreUndecided), contextlib.suppress(ObjectNotFound):
            self._reader.delete_object(Bucket=self._bucket, Key=self._prefix + name)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        position = {"StartAfter": self._prefix + start_after} if start_after else {}
        while True:
            with _answers(prefix, StoreUnavailable):
                answer = self._reader.list_objects_v2(
                    Bucket=self._bucket, Prefix=self._prefix + prefix, MaxKeys=self.names_per_list, **position
                )
            for row in answer.get("Contents", ()):
                yield ObjectInfo(row["Key"].removeprefix(self._prefix), row["Size"])
            if not answer.get("IsTruncated"):
                return
            position = {"ContinuationToken": answer["NextContinuationToken"]}

    def _get(self, name: str, options: dict[str, str]) -> StoredObject:
        with _answers(name, StoreUnavailable, ETagMismatch(f"{name}: has another body than the one asked for")):
            answer = self._reader.get_object(Bucket=self._bucket, Key=self._prefix + name, **options)
            data = answer["Body"].read()
        if len(data) != answer["ContentLength"]:
            raise StoreUnavailable(f"{name}: {len(data)} of {answer['ContentLength']} bytes came")
        # "bytes 0-99/1234"; a whole object comes without.
        size = int(answer["ContentRange"].rpartition("/")[2]) if "ContentRange" in answer else len(data)
        return StoredObject(data, answer["ETag"], size)

    def _put(self, name: str, body: Body, condition: dict[str, str], refused: ObjectStoreError) -> str:
        checksum = base64.b64encode(body_crc32c(body).to_bytes(4, "big")).decode()
        with _answers(name, StoreUndecided, refused):
            answer = self._writer.put_object(
                Bucket=self._bucket,
                Key=self._prefix + name,
                Body=body.read_at(0, body.size) if body.size <= PIECE_BYTES else _BodyFile(body),
                ContentLength=body.size,
                ChecksumCRC32C=checksum,
                **self._write_options,
                **condition,
            )
        etag: str = answer["ETag"]
        return etag


class _NotModified(Exception):
    """304: the object still has the ETag that was named."""


class _BodyFile(io.RawIOBase):
    """A body as the file that the SDK reads: in small pieces, which are served from larger ones."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._position = 0
        self._held = b""
        self._held_position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._body.size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        wanted = self._body.size - self._position
        wanted = wanted if size < 0 else min(size, wanted)
        at = self._position - self._held_position
        if not 0 <= at <= at + wanted <= len(self._held):
            self._held = self._body.read_at(self._position, max(wanted, PIECE_BYTES))
            self._held_position, at = self._position, 0
        data = self._held[at : at + wanted]
        self._position += len(data)
        return data


@contextlib.contextmanager
def _answers(
    name: str, without_answer: type[StoreUnavailable], refused: ObjectStoreError | None = None
) -> Iterator[None]:
    """Turn what the SDK raises into the words of the seam; `refused` is what 412 means here."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, ParamValidationError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ClientError as error:
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        code = str(error.response.get("Error", {}).get("Code", ""))
        if status == 412 and refused is not None:
            raise refused from error
        raise _meaning(name, status, code, error, without_answer) from error
    except (NoCredentialsError, ParamValidationError) as error:
        raise StoreRefused(f"{name}: {error}") from error
    except (BotoCoreError, HTTPError, OSError) as error:
        raise without_answer(f"{name}: {error}") from error


def _meaning(name: str, status: int, code: str, error: Exception, without_answer: type[StoreUnavailable]) -> Exception:
    if status == 304:
        return _NotModified()
    if status == 404 and code != "NoSuchBucket":
        return ObjectNotFound(f"{name}: does not exist")
    if status == 416:
        return RangeNotSatisfiable(f"{name}: the range lies beyond its end")
    if status in _TRY_AGAIN or status >= 500 or status == 0 or code in ("RequestTimeout", "SlowDown"):
        return without_answer(f"{name}: {error}")
    return StoreRefused(f"{name}: {error}")
