"""From a frame to its handler, and from the handler's answer to a frame.

- A frame that cannot be read, an API that is not served or a version outside the advertised range ends that
  connection, with one line in the log, as Kafka does: the client could not read an answer anyway.
- ApiVersions in an unknown version is answered in version 0 with UNSUPPORTED_VERSION and the range of ApiVersions
  (KIP-511), so that the client can try again.
- An exception in a handler is logged with the request and answered in the API's own form of an error; an API that has
  none loses its connection. Neighbours notice nothing.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from appliance.base.errors import ErrorCode, KafkaError
from appliance.server.requests import Pending, Request, tell_wait
from appliance.wire.api import APIS, ApiKey
from appliance.wire.codec import decode_from, decode_request_header, encode_response
from appliance.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from appliance.wire.schema import Struct

if TYPE_CHECKING:
    from appliance.server.connection import Connection

_log = logging.getLogger(__name__)

Handler = Callable[[Any, Request], Struct | bytes | Pending | None]
"""Gets the server's context (the broker, the controller) and the request. Never blocks. Bytes are a whole frame, None
is no answer."""

RawHandler = Callable[["Connection", int, int, int, int], bool]
"""Gets the connection, where in its receive buffer the frame (its size field) begins and ends, API version and
correlation id; false: nothing was done, decode it."""


class BadRequest(Exception):
    """The connection has to end; the message is the line in the log."""


@dataclass(frozen=True, slots=True)
class HandlerEntry:
    """How one API is served."""

    handle: Handler
    raw: RawHandler | None = None
    """A shorter way for frames of the usual shape, tried first."""
    error: Callable[[Request, ErrorCode, str | None], Struct | None] | None = None
    """The API's answer when everything in the request failed alike; without it, a top-level `error_code` is filled."""


class Dispatcher:
    """Decodes requests and calls their handlers."""

    max_frame_bytes = sys.maxsize
    """No limit beside that of the server."""

    def __init__(
        self, context: Any, handlers: Mapping[int, HandlerEntry], advertised: Mapping[int, tuple[int, int]]
    ) -> None:
        self.context = context
        self.handlers = dict(handlers)
        self.advertised = dict(advertised)
        self.raw_handlers = {key: entry.raw for key, entry in handlers.items() if entry.raw is not None}
        self.requests_by_api: dict[int, int] = dict.fromkeys(handlers, 0)
        """Requests dispatched here, by API key; those of raw handlers are counted by themselves."""
        self.admitted: Callable[[Request], None] | None = None
        """Called with each request that is dispatched, before its handler."""
        self.errors = 0
        """Handlers that failed by an exception."""

    def dispatch(self, connection: Connection, frame: memoryview) -> Pending | bytes | None:
        """Handle a frame (without its size field); returns what to put into the connection's queue.

        Raises:
            BadRequest: the connection has to end.
        """
        try:
            header = decode_request_header(frame)
        except ValueError as error:
            raise BadRequest(f"a request header that cannot be read: {error}") from error
        entry = self.handlers.get(header.api_key)
        supported = self.advertised.get(header.api_key)
        if entry is None or supported is None:
            raise BadRequest(f"API key {header.api_key} is not served here")
        if not supported[0] <= header.api_version <= supported[1]:
            if header.api_key == ApiKey.API_VERSIONS:
                return self._unsupported_api_versions(header.correlation_id)
            raise BadRequest(f"{APIS[header.api_key].name} version {header.api_version} is not served here")
        try:
            body, _ = decode_from(APIS[header.api_key].request, frame, header.api_version, header.body_offset)
        except ValueError as error:
            raise BadRequest(f"{APIS[header.api_key].name} version {header.api_version}: {error}") from error
        request = Request(header.api_key, header.api_version, header.correlation_id, header.client_id, body, connection)
        self.requests_by_api[header.api_key] += 1
        if self.admitted is not None:
            self.admitted(request)
        try:
            answer = entry.handle(self.context, request)
        except Exception as error:
            answer = self._failed(entry, request, error)
        if isinstance(answer, Struct):
            if request.amend is not None:
                request.amend(answer)
            if request.throttle_time_ms:
                tell_wait(answer, request.throttle_time_ms)
            return encode_response(answer, header.api_version, header.correlation_id)
        return answer

    def _failed(self, entry: HandlerEntry, request: Request, error: Exception) -> Struct:
        if isinstance(error, KafkaError):
            code, message = error.code, error.message
        else:
            self.errors += 1
            code, message = ErrorCode.UNKNOWN_SERVER_ERROR, None
            _log.exception("%r failed", request)
        answer = error_answer(entry, request, code, message)
        if answer is None:
            raise BadRequest(f"{request!r} failed and its API has no common error") from error
        return answer

    def _unsupported_api_versions(self, correlation_id: int) -> bytes:
        low, high = self.advertised[ApiKey.API_VERSIONS]
        answer = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=low, max_version=high)],
        )
        return encode_response(answer, 0, correlation_id)


def error_answer(entry: HandlerEntry, request: Request, code: ErrorCode, message: str | None = None) -> Struct | None:
    """The answer of an API in which everything failed with `code`; None where the API has no such form."""
    if entry.error is not None:
        return entry.error(request, code, message)
    response_class = APIS[request.api_key].response
    answer = response_class()
    if not hasattr(answer, "error_code"):
        return None
    answer.error_code = code
    if message is not None and hasattr(answer, "error_message"):
        answer.error_message = message
    return answer
