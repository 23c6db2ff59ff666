"""The limits of a server: each has a name, and most of them Kafka's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What one listener admits."""

    max_frame_bytes: int = 104_857_600
    """`socket.request.max.bytes`: a larger frame ends its connection before anything is allocated for it."""
    connections_max_idle_ms: int = 600_000
    """`connections.max.idle.ms`."""
    failed_authentication_delay_ms: int = 100
    """`connection.failed.authentication.delay.ms`: how long whoever failed to authenticate waits for its end."""
    max_in_flight: int = 1_000
    """Unanswered requests of one connection, after which no more of its frames are read."""
    receive_buffer_bytes: int = 65_536
    """First size of a connection's receive buffer; it grows up to the frame that arrives and shrinks when idle."""
    queued_request_bytes: int = 268_435_456
    """`queued.max.request.bytes`: memory of all receive buffers together beyond their first size; a frame that finds no
    room waits in the kernel, but for one at a time, which is always admitted. Below 0: no limit."""
    send_buffer_bytes: int = 102_400
    """`socket.send.buffer.bytes`: what the kernel takes of a connection's answers at once; -1 leaves it to the system.

    Bounded, a sendfile hands over pages while they are warm: a fetch runs at more than twice the speed of one into
    the megabytes that the system would give.
    """
    large_send_buffer_bytes: int = 1 << 20
    """`socket.send.buffer.large.bytes`: the same for a connection that reads slices larger than that, so that an answer
    of a megabyte does not need several rounds of the loop; 0 leaves it as it is."""
    accept_backlog: int = 1_024
    accepts_per_event: int = 64
    """Connections accepted before others get their turn."""
