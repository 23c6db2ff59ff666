"""A request that waits for its answer, and what a deciding machine wants to happen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from appliance.wire.schema import Struct

R = TypeVar("R", covariant=True)


@dataclass(eq=False, slots=True)
class Call:
    """One request on its way through a coordinator. Compared by identity; answered exactly once."""

    request: Struct
    version: int = 0
    client_id: str = ""
    client_host: str = ""
    """As Java prints an address: `/127.0.0.1`."""
    may_describe: Callable[[str], bool] | None = None
    """Whether whoever asks may know of a topic; None where everybody may know of all. Any thread calls it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Send `response` to whoever made `call`."""

    call: Call
    response: Struct


@dataclass(frozen=True, slots=True)
class Write(Generic[R]):
    """Append `records` as one atomic batch, replay them when they are committed, then send `answers`.

    If that fails, each call in `answers` gets its own form of the error instead.
    """

    key: str
    """The group or transactional id that the records belong to."""
    records: tuple[R, ...]
    answers: tuple[Answer, ...] = ()
    follow_up: object = None
    """For the machine, to go on from there when the records are committed, or are not."""
    only_alone: bool = False
    """Drop it if an earlier write of its key is under way: it was decided without that one's outcome."""
    producer: tuple[int, int] | None = None
    """Producer id and epoch of the transaction that the records belong to: they count once it is committed."""
    marker: bytes = b""
    """A whole control batch, appended in place of `records`, which say what it means to the machine."""


Effect = Answer | Write[R]
