"""An Iceberg REST catalog for tests, over real HTTP: pyiceberg's SQL catalog behind the paths of the specification."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table

_STATUS: dict[type[Exception], int] = {
    CommitFailedException: 409,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
}


class RestCatalog:
    """A context manager; `failing` commits are done, but answered with 500."""

    def __init__(self, folder: Path, warehouse: str) -> None:
        uri = f"sqlite:///{folder}/rest.db"
        self.catalog: Catalog = load_catalog("behind", type="sql", uri=uri, warehouse=warehouse)
        self.failing = 0
        self.requests: list[str] = []
        handler = type("Handler", (_Handler,), {"owner": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> RestCatalog:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method: str, path: list[str], body: Any) -> tuple[int, Any]:
        match method, path:
            case "GET", ["v1", "config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case "POST", ["v1", "namespaces"]:
                self.catalog.create_namespace(tuple(body["namespace"]))
                return 200, body
            case "POST", ["v1", "namespaces", namespace, "tables"]:
                schema = Schema.model_validate(body["schema"])
                made = self.catalog.create_table((namespace, body["name"]), schema, properties=body["properties"])
                return 200, _table(made)
            case "GET", ["v1", "namespaces", namespace, "tables", name]:
                return 200, _table(self.catalog.load_table((namespace, name)))
            case "POST", ["v1", "namespaces", namespace, "tables", name]:
                commit = CommitTableRequest.model_validate(body)
                table = self.catalog.load_table((namespace, name))
                done = self.catalog.commit_table(table, commit.requirements, commit.updates)
                if self.failing:
                    self.failing -= 1
                    return 500, _error("CommitStateUnknownException", "the answer is lost")
                return 200, json.loads(done.model_dump_json(by_alias=True))
            case _:
                return 404, _error("NotFoundException", "/".join(path))


def _table(table: Table) -> dict[str, Any]:
    metadata = json.loads(table.metadata.model_dump_json(by_alias=True))
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": 0}}


class _Handler(BaseHTTPRequestHandler):
    owner: RestCatalog

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        path = self.path.partition("?")[0].strip("/").split("/")
        self.owner.requests.append(f"{self.command} {'/'.join(path)}")
        try:
            status, found = self.owner.answer(self.command, path, body)
        except tuple(_STATUS) as error:
            status, found = _STATUS[type(error)], _error(type(error).__name__, str(error))
        data = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _serve

    def log_message(self, format: str, *args: object) -> None:
        pass
