"""A request as handlers see it, and the ordered place that its answer takes in the connection's queue."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from appliance.base.errors import invariant
from appliance.wire.codec import encode_response
from appliance.wire.schema import Struct

if TYPE_CHECKING:
    from appliance.server.access import Access
    from appliance.server.connection import Connection

_log = logging.getLogger(__name__)


class Keeper(Protocol):
    """What keeps a file open, from `retain` to `release` (a slice of a segment)."""

    def retain(self) -> object: ...

    def release(self) -> None: ...


class FileRange:
    """A piece of a file on its way to a client: sendfile takes it from here, and what was sent is cut off."""

    __slots__ = ("file_descriptor", "keeper", "length", "position")

    def __init__(self, file_descriptor: int, position: int, length: int, keeper: Keeper) -> None:
        self.file_descriptor = file_descriptor
        self.position = position
        self.length = length
        self.keeper = keeper

    def __len__(self) -> int:
        return self.length

    def retain(self) -> None:
        """Keep the file open; whoever queues the range does this, the connection releases it."""
        self.keeper.retain()

    def release(self) -> None:
        self.keeper.release()


OutputItem = bytes | FileRange
JOINED_MAX_BYTES = 64 << 10
"""Larger pieces of an answer are sent by themselves, from where they lie."""
"""What leaves on a socket: bytes, or a piece of a segment file that the kernel copies by itself."""


class Request:
    """One decoded request."""

    __slots__ = (
        "access",
        "amend",
        "api_key",
        "api_version",
        "body",
        "client_id",
        "connection",
        "correlation_id",
        "meter",
        "throttle_time_ms",
    )

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body: Struct,
        connection: Connection,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        self.connection = connection
        self.throttle_time_ms = 0
        """What the answer tells the client to wait (`appliance.server.quotas`)."""
        self.meter: Callable[[Pending, list[OutputItem]], None] | None = None
        """Called with the answer's placeholder and its pieces, which it may change, right before they leave."""
        self.access: Access | None = None
        """What its sender may do, where there is an authorizer."""
        self.amend: Callable[[Struct], None] | None = None
        """Changes the handler's answer before it is encoded (`appliance.server.authorization`)."""

    def pending(self) -> Pending:
        """An ordered placeholder, to be returned by the handler and answered later, once, on the loop's thread.

        As in Kafka, the connection's next frames wait until it is answered.
        """
        about = (self.connection, self.api_version, self.correlation_id)
        pending = Pending(*about) if self.amend is None else AmendedPending(*about, self.amend)
        if self.throttle_time_ms or self.meter is not None:
            pending.throttle_time_ms, pending.meter = self.throttle_time_ms, self.meter
        return pending

    def __repr__(self) -> str:
        return (
            f"{type(self.body).__name__} version {self.api_version}, correlation id {self.correlation_id}, "
            f"client id {self.client_id!r}, from {self.connection.peer}"
        )


def tell_wait(response: Struct, wait_ms: int) -> None:
    """Let a response say how long its client has to wait, if it can."""
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = max(wait_ms, response.throttle_time_ms)


class Pending:
    """The place of an answer that comes later. Answers leave a connection in the order of its requests."""

    __slots__ = (
        "_on_close",
        "api_version",
        "blocks",
        "connection",
        "correlation_id",
        "items",
        "meter",
        "throttle_time_ms",
    )

    def __init__(self, connection: Connection, api_version: int, correlation_id: int, *, blocks: bool = True) -> None:
        self.connection = connection
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.blocks = blocks
        """Whether the connection's next frames wait for this answer."""
        self.items: list[OutputItem] | None = None
        self.throttle_time_ms = 0
        self.meter: Callable[[Pending, list[OutputItem]], None] | None = None
        self._on_close: Callable[[], None] | None = None

    @property
    def answered(self) -> bool:
        return self.items is not None

    def answer(self, response: Struct) -> None:
        """Fill the place. On a connection that has ended, nothing happens."""
        if self.throttle_time_ms:
            tell_wait(response, self.throttle_time_ms)
        self.answer_items([encode_response(response, self.api_version, self.correlation_id)])

    def answer_items(self, items: list[OutputItem]) -> None:
        """Fill the place with a complete frame in pieces. Slices come retained and are released when sent."""
        invariant(self.items is None, "a request was answered twice")
        if self.meter is not None and not self.connection.closed:
            self.meter(self, items)
        self.items = items
        self._on_close = None
        self.connection.answered(self)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back if the connection ends before the answer; one callback at most."""
        self._on_close = callback

    def connection_closed(self) -> None:
        callback, self._on_close = self._on_close, None
        if callback is None:
            return
        try:
            callback()
        except Exception:
            _log.exception("the end of a connection could not be handled")


class AmendedPending(Pending):
    """One whose answer is changed before it leaves."""

    __slots__ = ("_amend",)

    def __init__(
        self, connection: Connection, api_version: int, correlation_id: int, amend: Callable[[Struct], None]
    ) -> None:
        super().__init__(connection, api_version, correlation_id)
        self._amend = amend

    def answer(self, response: Struct) -> None:
        self._amend(response)
        super().answer(response)
