"""What processes of a simulated cluster have instead of an event loop, threads and sockets.

A `Process` lives on the world's agenda: it can stand still as a whole or with its loop alone, and die. A `Link` stands
where `BrokerLink` does: frames in order, or none; what is cut off arrives when the cut is over, as with TCP.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from appliance.broker_actors.controller_probes import broker_is_gone, ping_controller
from appliance.client.connection import CallTimedOut, ConnectionLost
from appliance.server.dispatcher import HandlerEntry
from appliance.server.listener import DEFAULT_LISTENER
from appliance.server.requests import FileRange, OutputItem, Pending, Request
from appliance.wire.api import api_of
from appliance.wire.codec import decode_from, decode_request_header, decode_response, encode_response
from appliance.wire.schema import Struct

if TYPE_CHECKING:
    from tests.support.cluster_world import World

Address = tuple[str, int]


class Timer:
    __slots__ = ("cancelled",)

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """Of one host: wrong by a rate, and its wall clock jumps."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.rate = 1 + world.random.uniform(-1e-3, 1e-3)
        self._begin_ms = world.random.randrange(1_000_000)
        self.wall_ms = 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return self._begin_ms + int(self._world.now * self.rate)

    def now_ms(self) -> int:
        return self.wall_ms + self.monotonic_ms()


class Process:
    """One process, or none while it is dead."""

    def __init__(self, world: World, name: str, clock: Clock) -> None:
        self.world = world
        self.name = name
        self.clock = clock
        self.alive = True
        self.paused_until = 0
        self.stalled_until = 0
        """The loop stands still, other threads go on."""
        self.links: dict[Any, None] = {}
        """Both those that it has made and those that others have made to it."""

    def later(self, delay_ms: float, action: Callable[[], None], *, thread: bool = False) -> Timer:
        """Do that on the loop (or on a thread), by this process's clock, if it lives and when it is not paused."""
        timer, world = Timer(), self.world

        def due() -> None:
            if timer.cancelled or not self.alive:
                return
            until = self.paused_until if thread else max(self.paused_until, self.stalled_until)
            if world.now < until:
                world.at(until, due)
            else:
                action()
                world.checks.after_event(self)

        world.at(world.now + max(0, int(delay_ms / self.clock.rate)), due)
        return timer

    def die(self) -> None:
        self.alive = False
        for link in list(self.links):
            link.process_died(self)


class Background:
    """`appliance.base.background.Background` of a process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        return self._process.later(delay_ms, callback)

    def post(self, callback: Callable[[], None]) -> None:
        self._process.later(0, callback)

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        process, world = self._process, self._process.world
        asked = getattr(work, "func", None)
        if asked is broker_is_gone or asked is ping_controller:
            world.probe(process, work, done)
            return

        def works() -> None:
            try:
                result = work()
            except Exception as error:
                result = error
            process.later(0, lambda: done(result))

        process.later(world.random.choice((1, 1, 2, 5, 60)), works, thread=True)


class StoreBackground(Background):
    """The threads that ask the object store: each request is lost, late, refused, or its answer is."""

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        process, world = self._process, self._process.world
        fate, delay_ms = world.store_fate(process), world.store_delay_ms()
        if fate == "refused":
            process.later(delay_ms, lambda: done(ConnectionError("503")))
            return
        if fate == "lost":
            return

        def lands() -> None:
            # Whether its sender is dead by then, or not.
            try:
                result = work()
            except Exception as error:
                result = error
            if fate == "answered":
                process.later(delay_ms, lambda: done(result))

        world.at(world.now + (world.random.randrange(2_000, 7_000) if fate == "late" else delay_ms), lands)


class Server:
    """The tick and the connections of `appliance.server.server.Server`."""

    def __init__(self, process: Process, handlers: Mapping[int, HandlerEntry], context: Any) -> None:
        self.process = process
        self.handlers = handlers
        self.context = context
        self.background = Background(process)
        self.clock = process.clock
        self.now_ms = process.clock.now_ms()
        self.holding = False
        self.after_write: list[Callable[[], None]] = []
        self.touched: list[Connection] = []
        self._hooks: list[Callable[[], None]] = []
        self._tick_scheduled = False

    def listen(self, host: str, port: int, listener: Any = None) -> int:
        return port

    def on_tick(self, hook: Callable[[], None]) -> None:
        self._hooks.append(hook)

    def begin_tick(self) -> None:
        if not self._tick_scheduled:
            self._tick_scheduled = True
            self.now_ms = self.clock.now_ms()
            self.process.later(0, self._tick)

    def drop_held(self, reason: str) -> None:
        touched, self.touched = self.touched, []
        for connection in touched:
            connection.close(reason)

    def _tick(self) -> None:
        self._tick_scheduled = False
        for hook in self._hooks:
            hook()
        callbacks, self.after_write = self.after_write, []
        for callback in callbacks:
            callback()
        if self.holding:
            for connection in self.touched:
                connection.build_late_answers()
            return
        touched, self.touched = self.touched, []
        for connection in touched:
            connection.end_tick()
        if self.touched:
            self.begin_tick()


class Connection:
    """The server's end of a link."""

    host = "127.0.0.1"
    listener = DEFAULT_LISTENER
    follower_fetch: Any = None

    def __init__(self, server: Server, link: Link) -> None:
        self.server = server
        self.link = link
        self.peer = link.process.name
        self.closed = False
        self.held = False
        self.touched = False
        self._answers: list[Any] = []
        self._claims: list[Any] = []
        """For each answer what it says about leadership, to be checked when it leaves."""
        self._inbox: deque[Request] = deque()
        self._blocked_by: Pending | None = None

    def received(self, request: Request) -> None:
        self._inbox.append(request)
        self._handle()

    def _handle(self) -> None:
        while self._inbox and self._blocked_by is None and not self.closed:
            request = self._inbox.popleft()
            self.server.begin_tick()
            before = len(self._answers)
            answer = self.server.handlers[request.api_key].handle(self.server.context, request)
            if isinstance(answer, Pending):
                self._answers.append(answer)
                if answer.blocks and not answer.answered:
                    self._blocked_by = answer
            elif answer is not None:
                frame = encode_response(answer, request.api_version, request.correlation_id)  # type: ignore[arg-type]
                self._answers.append(frame)
            claim = self.server.process.world.claim(self.server.context, request)
            self._claims += [claim] * (len(self._answers) - before)
            self._touch()

    def queue(self, late: Any) -> None:
        self._answers.append(late)

    def hold(self) -> None:
        self.held = True

    def answered(self, pending: Pending) -> None:
        if self.closed:
            return
        if self._blocked_by is pending:
            self._blocked_by = None
        self._touch()
        self.server.begin_tick()

    def _touch(self) -> None:
        if not self.touched and not self.closed:
            self.touched = True
            self.server.touched.append(self)

    def build_late_answers(self) -> None:
        self.held = False
        for at, answer in enumerate(self._answers):
            if type(answer) is tuple:
                self._answers[at] = answer[0](self, answer)

    def end_tick(self) -> None:
        self.touched = False
        self.build_late_answers()
        while self._answers and not self.closed:
            answer = self._answers[0]
            items: list[OutputItem] | None = answer.items if isinstance(answer, Pending) else [answer]
            if items is None:
                break
            self._answers.pop(0)
            frame = b"".join(item if isinstance(item, bytes) else _read(item) for item in items)
            self.link.answer(frame, self._claims.pop(0))
        self._handle()

    def close(self, reason: str = "") -> None:
        """By the server's own wish."""
        self.ended()
        self.link.server_ended(reason)

    def ended(self) -> None:
        if self.closed:
            return
        self.closed = True
        for answer in self._answers:
            if isinstance(answer, Pending):
                answer.connection_closed()
        self._answers.clear()


def _read(item: FileRange) -> bytes:
    data = os.pread(item.file_descriptor, item.length, item.position)
    item.release()
    return data


class _Call:
    __slots__ = ("done", "response", "timer", "version")

    def __init__(self, response: type[Struct], version: int, done: Callable[[Any], None], timer: Timer) -> None:
        self.response, self.version, self.done, self.timer = response, version, done, timer


class Link:
    """`BrokerLink`: made when first used; whatever goes wrong ends it and all that waits, and the next call makes anew.

    With `on_thread`, answers come on a thread of the process instead of its loop.
    """

    def __init__(self, process: Process, address: Address, *, on_thread: bool = False) -> None:
        self.process = process
        self.address = address
        self._on_thread = on_thread
        self._calls: deque[_Call] = deque()
        self._wire: Wire | None = None
        self.client_id = process.name

    def call(self, request: Any, version: int, timeout_ms: int, done: Callable[[Any], None]) -> None:
        api = api_of(type(request).__wire__.api_key or 0)
        assert api is not None
        timer = self.process.later(timeout_ms, lambda: self._timed_out(call), thread=self._on_thread)
        call = _Call(api.response, version, done, timer)
        self._calls.append(call)
        if self._wire is None:
            self._wire = Wire(self)
            self.process.links[self] = None
        self._wire.ask(request, version)

    def call_encoded(
        self, frame: bytearray, response: type[Struct], version: int, timeout_ms: int, done: Callable[[Any], None]
    ) -> None:
        header = decode_request_header(memoryview(frame)[4:])
        api = api_of(header.api_key)
        assert api is not None and api.response is response and header.api_version == version
        request, end = decode_from(api.request, memoryview(bytes(frame))[4:], version, header.body_offset)
        assert end == len(frame) - 4
        self.call(request, version, timeout_ms, done)

    @property
    def is_open(self) -> bool:
        return self._wire is not None

    def close(self) -> None:
        for call in self._calls:
            call.timer.cancel()
        self._calls.clear()
        self._end()

    def came(self, frame: bytes) -> None:
        call = self._calls.popleft()
        call.timer.cancel()
        _, response = decode_response(call.response, memoryview(bytearray(frame))[4:], call.version)
        call.done(response)

    def lost(self, reason: str) -> None:
        self._fail(ConnectionLost(reason))

    def process_died(self, process: Process) -> None:
        if self._wire is not None:
            self._wire.process_died(process)

    def answer(self, frame: bytes, claim: Any) -> None:
        raise NotImplementedError

    def _timed_out(self, call: _Call) -> None:
        if call in self._calls:
            self._fail(CallTimedOut(f"no answer from {self.address}"))

    def _fail(self, error: Exception) -> None:
        calls, self._calls = self._calls, deque()
        self._end()
        for call in calls:
            call.timer.cancel()
            call.done(error)

    def _end(self) -> None:
        wire, self._wire = self._wire, None
        self.process.links.pop(self, None)
        if wire is not None:
            wire.client_ended()


class Wire:
    """One connection of a link."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.client = link.process
        self.world = link.process.world
        self.process = link.process
        self.server: Process | None = self.world.listener_at(link.address)
        self.connection: Connection | None = None
        self._ways = ({"due": 0, "queue": deque()}, {"due": 0, "queue": deque()})
        self._dead = False
        self._client_gone = False
        if self.server is None:
            self._dead = True
            delay = self.world.latency(self.client.name, self.world.name_at(link.address))
            self.client.later(delay, lambda: self._lost("refused"), thread=link._on_thread)
        else:
            self.server.links[self] = None

    # The client's side

    def ask(self, request: Any, version: int) -> None:
        if self.server is None:
            return
        server = self.server

        def arrives() -> None:
            if self.connection is None:
                found: Server = server.server  # type: ignore[attr-defined]
                self.connection = Connection(found, self)  # type: ignore[arg-type]
            if not self.connection.closed:
                api_key = type(request).__wire__.api_key or 0
                self.connection.received(Request(api_key, version, 0, None, request, self.connection))  # type: ignore[arg-type]

        self._send(0, arrives)

    def client_ended(self) -> None:
        self._client_gone = True

        def ends() -> None:
            if self.connection is not None:
                self.connection.ended()

        if self.server is not None:
            self._send(0, ends)
            self.server.links.pop(self, None)

    # The server's side

    def answer(self, frame: bytes, claim: Any) -> None:
        self.world.answer_leaves(self.server, frame, claim)
        self._send(1, lambda: self.link.came(frame) if self.link._wire is self else None)

    def server_ended(self, reason: str) -> None:
        self._send(1, lambda: self._lost(reason))

    def process_died(self, process: Process) -> None:
        """The kernel tells the other side, if it can."""
        if process is self.client:
            self.client_ended()
        else:
            self.server_ended("reset")

    def _lost(self, reason: str) -> None:
        if self.link._wire is self:
            self.link.lost(reason)

    def _send(self, way: int, action: Callable[[], None]) -> None:
        if self._dead or self.server is None:
            return
        ends = (self.client, self.server)
        source, target = ends[way], ends[1 - way]
        due_ms = self.world.arrival_ms(source.name, target.name)
        if due_ms is None:
            # Nothing gets through any more, and nobody is told.
            self._dead = True
            return
        state: Any = self._ways[way]
        state["due"] = max(state["due"], due_ms)
        state["queue"].append(action)
        thread = way == 1 and self.link._on_thread

        def arrives() -> None:
            state["queue"].popleft()()

        delay = (state["due"] - self.world.now) * target.clock.rate + 1e-6
        target.later(delay, arrives, thread=thread)
