"""Google's and Azure's object stores, emulated over real HTTP: what the file systems of fsspec are tried with.

Each is a program in `tests/contract`, built on first use: fake-gcs-server (Go) and Azurite (Node). It ends by itself
when the pipe to its parent closes.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from types import TracebackType
from typing import Any, Protocol, Self

from tests.support.kafka_peer import die_with_parent
from tests.support.piped_server import end_by_pipe
from tests.support.programs import go_program, node_program
from tests.support.repo import REPO

SOURCES = REPO / "tests" / "contract"
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of every Azurite, as its manual says; nothing secret."""


class StorePeer(Protocol):
    """A running emulator, as tests of stores use it."""

    def url_of_new_bucket(self) -> str: ...

    @property
    def fsspec_options(self) -> dict[str, Any]: ...

    @property
    def environment(self) -> dict[str, str]: ...


class _Peer:
    def __init__(self, command: list[str]) -> None:
        self._command = command

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("{"), f"{self._command[0]} did not start: {line!r}"
        self.endpoint_url: str = json.loads(line)["url"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end_by_pipe(self._process, patience_s=30)


class GoogleStorage(_Peer):
    """A context manager: fake-gcs-server."""

    def __init__(self) -> None:
        super().__init__(go_program(SOURCES / "fake_gcs"))

    @property
    def fsspec_options(self) -> dict[str, Any]:
        return {"endpoint_url": self.endpoint_url, "token": "anon", "project": "test"}

    @property
    def environment(self) -> dict[str, str]:
        return {"STORAGE_EMULATOR_HOST": self.endpoint_url, "GOOGLE_CLOUD_PROJECT": "test"}

    def url_of_new_bucket(self) -> str:
        import gcsfs.core

        bucket = f"tier-{uuid.uuid4().hex[:12]}"
        gcsfs.core.GCSFileSystem(**self.fsspec_options).mkdir(bucket)
        return f"gs://{bucket}"


class AzureStorage(_Peer):
    """A context manager: Azurite."""

    def __init__(self) -> None:
        super().__init__(node_program(SOURCES / "azurite"))

    @property
    def connection(self) -> str:
        return (
            f"DefaultEndpointsProtocol=http;AccountName={AZURITE_ACCOUNT};AccountKey={AZURITE_KEY};"
            f"BlobEndpoint={self.endpoint_url}/{AZURITE_ACCOUNT};"
        )

    @property
    def fsspec_options(self) -> dict[str, Any]:
        return {"connection_string": self.connection}

    @property
    def environment(self) -> dict[str, str]:
        return {"AZURE_STORAGE_CONNECTION_STRING": self.connection}

    def url_of_new_bucket(self) -> str:
        import adlfs

        container = f"tier-{uuid.uuid4().hex[:12]}"
        adlfs.AzureBlobFileSystem(**self.fsspec_options).mkdir(container)
        return f"abfs://{container}"
