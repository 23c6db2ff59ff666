"""moto's S3 over real HTTP, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from types import TracebackType
from typing import Any

from tests.support.piped_server import end_by_pipe

# Ends by itself when the pipe to its parent closes, so that a killed test run leaves nothing behind.
# Real stores take writes of one object one after the other; moto looks at If-Match and writes later: two could win.
_PROGRAM = """
import sys, threading
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer
one_at_a_time, put_object = [threading.Lock() for _ in range(64)], S3Response.put_object
def put_if(self):
    if self.headers.get("If-Match") is None and self.headers.get("If-None-Match") is None:
        return put_object(self)
    with one_at_a_time[hash((self.bucket_name, self.parse_key_name())) % len(one_at_a_time)]:
        return put_object(self)
S3Response.put_object = put_if
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class MotoServer:
    """A context manager: an S3 endpoint on a free port of the loopback interface."""

    def __enter__(self) -> MotoServer:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
            env={**os.environ, **CREDENTIALS},
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.strip().isdigit(), f"moto's server did not start: {line!r}"
        self.port = int(line)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end_by_pipe(self._process, patience_s=10)

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What another process needs to reach this server, for `monkeypatch.setenv` or `subprocess`."""
        return {"AWS_ENDPOINT_URL": self.endpoint_url, **CREDENTIALS}

    @property
    def client_options(self) -> dict[str, Any]:
        """Arguments for boto3's `client()`."""
        return {
            "endpoint_url": self.endpoint_url,
            "region_name": "us-east-1",
            "aws_access_key_id": "testing",
            "aws_secret_access_key": "testing",
        }

    @property
    def fsspec_options(self) -> dict[str, Any]:
        """The same for fsspec's `s3`."""
        return {"key": "testing", "secret": "testing", "endpoint_url": self.endpoint_url}

    def bucket(self) -> str:
        """Make a new bucket; returns its name."""
        import boto3

        name = f"tier-{uuid.uuid4().hex[:12]}"
        boto3.client("s3", **self.client_options).create_bucket(Bucket=name)
        return name
