"""The routes of HTTP ingest.

`POST /v1/topics/{topic}/records` writes records; `GET /v1/limits` tells the limits; `GET /health` answers 200 while a
broker can be reached. The answer to a write has one result for each record, in the order of the records; it is 200 only
if nothing failed, else 207. What is wrong with a request as a whole is a 4xx or 503 with one JSON object:
`{"error", "message", "retryable"}`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Sequence

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from appliance.base.errors import ErrorCode, KafkaError
from appliance.client.connection import ConnectionLost
from appliance.http_ingest.bodies import BadRecord, BadRequest, IngestRecord, LineReader, record_of, records_of_json
from appliance.http_ingest.calls import CLIENT_MISTAKES, Delivered, Failed, IngestCall, Result
from appliance.http_ingest.cluster import Cluster
from appliance.http_ingest.decompression import Decompressor, decompressor_for
from appliance.http_ingest.limits import HttpLimits
from appliance.http_ingest.producer import Producer

log = logging.getLogger(__name__)

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
_JSON = "application/json"
_NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")
_RAW = "application/octet-stream"
_encode = msgspec.json.Encoder().encode

_STATUS_OF = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.INVALID_TOPIC_EXCEPTION: 400,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
}


def ingest_app(producer: Producer, cluster: Cluster, limits: HttpLimits) -> Starlette:
    """The ASGI application over a producer."""
    routes = Routes(producer, cluster, limits)
    return Starlette(
        routes=[
            Route("/v1/topics/{topic}/records", routes.records, methods=["POST"]),
            Route("/v1/limits", routes.limits, methods=["GET"]),
            Route("/health", routes.health, methods=["GET"]),
        ],
        exception_handlers={HTTPException: _http_error, Exception: _our_error},
    )


class Routes:
    """The handlers; each answers a request or raises nothing."""

    def __init__(self, producer: Producer, cluster: Cluster, limits: HttpLimits) -> None:
        self._producer = producer
        self._cluster = cluster
        self._limits = limits

    async def records(self, request: Request) -> Response:
        try:
            return await self._ingest(request)
        except BadRequest as bad:
            return _error(bad.status, bad.error, bad.message)
        except KafkaError as error:
            return self._kafka_error(error)
        except ConnectionLost as error:
            return self._unavailable("BROKER_NOT_AVAILABLE", str(error))
        except ClientDisconnect:
            # What came whole has been written, as the client would expect of a stream; nobody is there to be told.
            return Response(status_code=400)

    async def limits(self, request: Request) -> Response:
        return Response(_encode(self._limits.as_dict()), media_type=_JSON)

    async def health(self, request: Request) -> Response:
        try:
            await self._cluster.any_broker()
        except ConnectionLost as error:
            return self._unavailable("BROKER_NOT_AVAILABLE", str(error))
        return Response(_encode({"status": "healthy"}), media_type=_JSON)

    async def _ingest(self, request: Request) -> Response:
        name = request.path_params["topic"]
        if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
            raise BadRequest(
                400, "INVALID_TOPIC_EXCEPTION", "a topic has 1 to 249 letters, digits, dots, dashes, underscores"
            )
        acks = _acks_of(request)
        media_type = request.headers.get("content-type", _JSON).partition(";")[0].strip().lower()
        decompressor = decompressor_for(request.headers.get("content-encoding", ""), self._limits.max_body_bytes)
        lines = media_type in _NDJSON
        records = self._records(request, media_type, decompressor)
        call = IngestCall(self._producer, await self._producer.topic(name), acks, self._limits)
        rejected: BadRequest | None = None
        try:
            async for record in records:
                if call.count == self._limits.max_records:
                    raise BadRequest(
                        413, "TOO_MANY_RECORDS", f"a request has at most {self._limits.max_records} records"
                    )
                await call.add(record)
        except BadRequest as bad:
            if not call.count:
                raise
            # Records before the fault are on their way: their results must not be hidden.
            rejected = bad
        results = await call.finish()
        if rejected is not None:
            results = [*results, Failed(rejected.error, rejected.message, retryable=False)]
        return self._answer(results, lines)

    async def _records(
        self, request: Request, media_type: str, decompressor: Decompressor
    ) -> AsyncIterator[IngestRecord | BadRecord]:
        """The records of a body: of NDJSON while it arrives, of anything else once it is whole."""
        if media_type in _NDJSON:
            raw = _flag(request, "raw")
            reader = LineReader(self._limits.max_record_bytes * 2)
            async for piece in request.stream():
                for line in reader.feed(decompressor.feed(piece)):
                    yield record_of(line, raw)
            decompressor.finish()
            for line in reader.finish():
                yield record_of(line, raw)
            return
        if media_type not in (_JSON, _RAW):
            raise BadRequest(415, "UNSUPPORTED_MEDIA_TYPE", f"{media_type}: use {_JSON}, {_NDJSON[0]} or {_RAW}")
        body = b"".join([decompressor.feed(piece) async for piece in request.stream()])
        decompressor.finish()
        if media_type == _JSON:
            for record in records_of_json(body):
                yield record
        else:
            key = request.query_params.get("key")
            yield IngestRecord(
                body,
                None if key is None else key.encode(),
                timestamp=_number(request, "timestamp"),
                partition=_number(request, "partition"),
            )

    def _answer(self, results: Sequence[Result], lines: bool) -> Response:
        failed = [result for result in results if isinstance(result, Failed)]
        status = 207 if failed else 200
        if failed and len(failed) == len(results):
            status = self._status_of_failure(failed)
        rows = [_row(result) for result in results]
        headers = {"X-Failed-Records": str(len(failed))}
        if status == 503:
            headers["Retry-After"] = str(self._limits.retry_after_s)
        if lines:
            body = b"".join([_encode(row) + b"\n" for row in rows])
            return Response(body, status, headers, media_type=_NDJSON[0])
        return Response(_encode({"failed": len(failed), "results": rows}), status, headers, media_type=_JSON)

    @staticmethod
    def _status_of_failure(failed: Sequence[Failed]) -> int:
        """Nothing was written: say so with the whole answer."""
        if all(result.error in CLIENT_MISTAKES for result in failed):
            return 413 if all(result.error == "MESSAGE_TOO_LARGE" for result in failed) else 400
        return 503 if all(result.retryable for result in failed) else 207

    def _kafka_error(self, error: KafkaError) -> Response:
        status = _STATUS_OF.get(error.code)
        if status is None:
            return self._unavailable(error.code.name, error.message or error.code.name)
        return _error(status, error.code.name, error.message or error.code.name)

    def _unavailable(self, error: str, message: str) -> Response:
        return _error(503, error, message, retryable=True, headers={"Retry-After": str(self._limits.retry_after_s)})


def _row(result: Result) -> dict[str, object]:
    if isinstance(result, Delivered):
        return {"partition": result.partition, "offset": result.offset, "timestamp": result.timestamp}
    return {"error": result.error, "message": result.message, "retryable": result.retryable}


def _acks_of(request: Request) -> int:
    text = request.query_params.get("acks", "all").lower()
    if text not in _ACKS:
        raise BadRequest(400, "INVALID_REQUIRED_ACKS", f"acks is all, 1 or 0, not {text}")
    return _ACKS[text]


def _flag(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false").lower()
    if text not in ("true", "false"):
        raise BadRequest(400, "INVALID_REQUEST", f"{name} is true or false, not {text}")
    return text == "true"


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BadRequest(400, "INVALID_REQUEST", f"{name} is a whole number of 0 or more, not {text}")
    return int(text)


def _error(
    status: int, error: str, message: str, *, retryable: bool = False, headers: dict[str, str] | None = None
) -> Response:
    body = _encode({"error": error, "message": message, "retryable": retryable})
    return Response(body, status, headers, media_type=_JSON)


async def _http_error(request: Request, error: Exception) -> Response:
    status, detail = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, str(error))
    return _error(
        status, "NOT_FOUND" if status == 404 else "INVALID_REQUEST", f"{request.method} {request.url.path}: {detail}"
    )


async def _our_error(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _error(500, "UNKNOWN_SERVER_ERROR", "the gateway failed; its log says more", retryable=True)
