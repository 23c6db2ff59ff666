"""Requests that a broker forwards to the active controller."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

from appliance.base.background import BackgroundFull
from appliance.base.errors import ErrorCode, KafkaError
from appliance.broker_actors.controller_line import ControllerLine
from appliance.client.connection import CallTimedOut, Connection, ConnectionLost
from appliance.wire.messages.api_versions import ApiVersionsRequest
from appliance.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from appliance.wire.schema import Request, Struct, WireError

_log = logging.getLogger(__name__)

THREADS = 4
"""Requests that are under way at the same time; the controller puts them into one commit."""
QUEUE_LIMIT = 1_000

Done = Callable[[Struct | Exception], None]
_Job = tuple[Request[Any], int, Done]


class ControllerCaller:
    """Threads with a connection each, started when they are first needed."""

    def __init__(self, line: ControllerLine, post: Callable[[Callable[[], None]], None]) -> None:
        self._line = line
        self._post = post
        self._jobs: queue.Queue[_Job | None] = queue.Queue(QUEUE_LIMIT)
        self._threads: list[threading.Thread] = []
        self._connections: dict[int, Connection] = {}
        self._unfinished = 0

    def call(self, request: Request[Any], done: Done, timeout_ms: int) -> None:
        """Send `request` to the active controller; `done` gets the response or the exception, on the loop.

        Called on the loop's thread. A request that may have reached a controller is not sent a second time.
        """
        deadline_ms = self._line.clock.monotonic_ms() + timeout_ms
        request = _in_newest_form(request)
        self._unfinished += 1
        if self._unfinished > len(self._threads) < THREADS:
            thread = threading.Thread(target=self._serve, name=f"controller-call-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        try:
            self._jobs.put_nowait((request, deadline_ms, done))
        except queue.Full:
            self._finish(done, BackgroundFull(f"{QUEUE_LIMIT} requests to the controller wait already"))

    def close(self) -> None:
        """Wake all threads; what is under way ends with an exception."""
        for connection in list(self._connections.values()):
            connection.abort()
        for _ in self._threads:
            try:
                self._jobs.put_nowait(None)
            except queue.Full:
                return  # threads see `closed` after the job they are at

    def _finish(self, done: Done, result: Struct | Exception) -> None:
        def on_loop() -> None:
            self._unfinished -= 1
            done(result)

        self._post(on_loop)

    def _serve(self) -> None:
        while not self._line.closed.is_set():
            job = self._jobs.get()
            if job is None:
                break
            request, deadline_ms, done = job
            result: Struct | Exception
            try:
                result = self._call(request, deadline_ms)
            except (ConnectionLost, CallTimedOut, KafkaError, WireError) as error:
                result = error
            except Exception as error:
                _log.exception("%s to the controller failed", type(request).__name__)
                result = error
            self._finish(done, result)
        connection = self._connections.pop(threading.get_ident(), None)
        if connection is not None:
            connection.close()

    def _call(self, request: Request[Any], deadline_ms: int) -> Struct:
        failures = 0
        while True:
            left_ms = deadline_ms - self._line.clock.monotonic_ms()
            if left_ms <= 0:
                raise CallTimedOut(f"no active controller for {type(request).__name__} in time")
            address = self._line.address()
            connection = self._connected(address, left_ms)
            if connection is not None:
                response: Struct = connection.call(request, timeout_ms=left_ms)
                if not says_not_controller(response):
                    return response
                self._line.try_next(address)
            if self._line.closed.wait(min(left_ms, self._line.backoff_ms(failures)) / 1_000):
                raise ConnectionLost("the broker stops")
            failures += 1

    def _connected(self, address: tuple[str, int], timeout_ms: int) -> Connection | None:
        """This thread's connection, tried by a small question, so that the next failure concerns the request itself.

        One that has been idle may have ended long since, with the controller that it led to.
        """
        thread = threading.get_ident()
        connection = self._connections.pop(thread, None)
        if connection is not None and connection.is_open and (connection.host, connection.port) == address:
            try:
                connection.call(ApiVersionsRequest(), timeout_ms=timeout_ms)
                self._connections[thread] = connection
                return connection
            except (ConnectionLost, CallTimedOut):
                pass
        if connection is not None:
            connection.close()
        try:
            client_id = f"broker-{self._line.identity.broker_id}"
            connection = Connection(*address, client_id=client_id, timeout_ms=timeout_ms, security=self._line.security)
            connection.versions(timeout_ms)
        except (ConnectionLost, CallTimedOut):
            self._line.try_next(address)
            return None
        self._connections[thread] = connection
        return connection


def _in_newest_form(request: Request[Any]) -> Request[Any]:
    """Requests are sent in the newest version; there, the names of an old DeleteTopics stand elsewhere."""
    if isinstance(request, DeleteTopicsRequest) and request.topic_names:
        rows = [DeleteTopicState(name=name) for name in request.topic_names]
        return DeleteTopicsRequest(topics=[*request.topics, *rows], timeout_ms=request.timeout_ms)
    return request


def says_not_controller(response: object) -> bool:
    """Whether NOT_CONTROLLER stands at the top of the response or in one of its rows."""
    if getattr(response, "error_code", None) == ErrorCode.NOT_CONTROLLER:
        return True
    for name in ("topics", "responses", "results"):
        rows = getattr(response, name, None)
        if isinstance(rows, list) and any(getattr(row, "error_code", None) == ErrorCode.NOT_CONTROLLER for row in rows):
            return True
    return False
