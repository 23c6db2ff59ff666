"""Kafka Connect's REST API, as far as it goes here; errors are `{"error_code", "message"}`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from appliance.base.errors import KafkaError
from appliance.client.connection import ConnectionLost
from connectors.api import ConfigError
from connectors.plugins import BUILT_IN
from connectors.runtime.supervisor import ConnectorExists, NoSuchConnector, RunningConnector, Supervisor
from connectors.runtime.tasks import FAILED, PAUSED, RUNNING

VERSION = "4.3.0"
"""Of Kafka Connect, whose API this is."""
MAX_BODY_BYTES = 1024 * 1024


def connect_app(supervisor: Supervisor, cluster_id: str, worker_id: str) -> Starlette:
    """The ASGI application over a supervisor."""
    routes = Routes(supervisor, cluster_id, worker_id)
    one = "/connectors/{name}"
    return Starlette(
        routes=[
            Route("/", routes.root, methods=["GET"]),
            Route("/health", routes.health, methods=["GET"]),
            Route("/connector-plugins", routes.plugins, methods=["GET"]),
            Route("/connectors", routes.list, methods=["GET"]),
            Route("/connectors", routes.create, methods=["POST"]),
            Route(one, routes.info, methods=["GET"]),
            Route(one, routes.delete, methods=["DELETE"]),
            Route(one + "/config", routes.config, methods=["GET"]),
            Route(one + "/config", routes.put_config, methods=["PUT"]),
            Route(one + "/status", routes.status, methods=["GET"]),
            Route(one + "/tasks", routes.tasks, methods=["GET"]),
            Route(one + "/restart", routes.restart, methods=["POST"]),
            Route(one + "/pause", routes.pause, methods=["PUT"]),
            Route(one + "/resume", routes.resume, methods=["PUT"]),
        ],
        exception_handlers={
            HTTPException: _answer(lambda error: (error.status_code, error.detail)),
            NoSuchConnector: _answer(lambda error: (404, f"Connector {error} not found")),
            ConnectorExists: _answer(lambda error: (409, f"Connector {error} already exists")),
            ConfigError: _answer(lambda error: (400, f"Connector configuration is invalid: {error}")),
            KafkaError: _answer(lambda error: (503, f"the brokers refused: {error}")),
            ConnectionLost: _answer(lambda error: (503, f"no broker can be reached: {error}")),
        },
    )


def _answer(explain: Callable[[Any], tuple[int, str]]) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def handler(request: Request, error: Exception) -> Response:
        code, message = explain(error)
        return JSONResponse({"error_code": code, "message": message}, code)

    return handler


class Routes:
    """The handlers. The supervisor blocks, so it is called in helper threads."""

    def __init__(self, supervisor: Supervisor, cluster_id: str, worker_id: str) -> None:
        self._supervisor = supervisor
        self._cluster_id = cluster_id
        self._worker_id = worker_id

    async def root(self, request: Request) -> Response:
        return JSONResponse({"version": VERSION, "commit": "appliance", "kafka_cluster_id": self._cluster_id})

    async def health(self, request: Request) -> Response:
        return JSONResponse(
            {"status": "healthy", "message": "Worker has completed startup and is ready to handle requests."}
        )

    async def plugins(self, request: Request) -> Response:
        rows = [
            {"class": f"{plugin.__module__}:{plugin.__name__}", "type": plugin.kind, "version": VERSION}
            for plugin in BUILT_IN
        ]
        return JSONResponse(rows)

    async def list(self, request: Request) -> Response:
        names = self._supervisor.names()
        expand = request.query_params.getlist("expand")
        if not expand:
            return JSONResponse(names)
        rows: dict[str, dict[str, Any]] = {}
        for name in names:
            connector = self._supervisor.get(name)
            rows[name] = {}
            if "info" in expand:
                rows[name]["info"] = _info(connector)
            if "status" in expand:
                rows[name]["status"] = self._status(connector)
        return JSONResponse(rows)

    async def create(self, request: Request) -> Response:
        body = await _json(request)
        name, config = body.get("name"), body.get("config")
        if not isinstance(name, str) or not name.strip() or "/" in name:
            raise HTTPException(400, "name is missing, empty or holds a slash")
        connector = await run_in_threadpool(self._supervisor.create, name, _config(config))
        return JSONResponse(_info(connector), 201)

    async def info(self, request: Request) -> Response:
        return JSONResponse(_info(self._get(request)))

    async def config(self, request: Request) -> Response:
        return JSONResponse(self._get(request).config)

    async def put_config(self, request: Request) -> Response:
        config = _config(await _json(request))
        connector, new = await run_in_threadpool(self._supervisor.put, request.path_params["name"], config)
        return JSONResponse(_info(connector), 201 if new else 200)

    async def status(self, request: Request) -> Response:
        return JSONResponse(self._status(self._get(request)))

    async def tasks(self, request: Request) -> Response:
        connector = self._get(request)
        rows = [
            {"id": {"connector": connector.name, "task": number}, "config": task.spec.config}
            for number, task in enumerate(connector.tasks)
        ]
        return JSONResponse(rows)

    async def delete(self, request: Request) -> Response:
        await run_in_threadpool(self._supervisor.delete, request.path_params["name"])
        return Response(status_code=204)

    async def restart(self, request: Request) -> Response:
        await run_in_threadpool(self._supervisor.restart, request.path_params["name"])
        return Response(status_code=204)

    async def pause(self, request: Request) -> Response:
        await run_in_threadpool(self._supervisor.pause, request.path_params["name"], True)
        return Response(status_code=202)

    async def resume(self, request: Request) -> Response:
        await run_in_threadpool(self._supervisor.pause, request.path_params["name"], False)
        return Response(status_code=202)

    def _get(self, request: Request) -> RunningConnector:
        return self._supervisor.get(request.path_params["name"])

    def _status(self, connector: RunningConnector) -> dict[str, Any]:
        tasks = []
        for number, report in enumerate(self._supervisor.reports(connector.name)):
            row: dict[str, Any] = {
                "id": number,
                "state": report.state,
                "worker_id": self._worker_id,
                "records": report.records,
            }
            if connector.kind == "sink":
                row["tiered_records"] = report.tiered_records
            if report.state == FAILED:
                row["trace"] = report.trace
            tasks.append(row)
        return {
            "name": connector.name,
            "connector": {"state": PAUSED if connector.paused else RUNNING, "worker_id": self._worker_id},
            "tasks": tasks,
            "type": connector.kind,
        }


def _info(connector: RunningConnector) -> dict[str, Any]:
    return {
        "name": connector.name,
        "config": connector.config,
        "tasks": [{"connector": connector.name, "task": number} for number in range(len(connector.tasks))],
        "type": connector.kind,
    }


async def _json(request: Request) -> dict[str, Any]:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
    try:
        content = json.loads(bytes(body))
    except ValueError as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise HTTPException(400, "the body is a JSON object")
    return content


def _config(content: Any) -> dict[str, str]:
    if not isinstance(content, dict) or not content:
        raise HTTPException(400, "config is missing: an object of strings")
    config = {}
    for key, value in content.items():
        if value is None or isinstance(value, dict | list):
            raise HTTPException(422, f"config {key} is a text or a number")
        config[str(key)] = value if isinstance(value, str) else json.dumps(value)
    return config
