"""A part of a segment that is on its way to a client."""

from __future__ import annotations

from appliance.log.segment import Segment


class LogSlice:
    """Whole batches of one segment, by their place in the file.

    `retain` it while it waits to be sent: its segment's descriptor then stays open, also when retention deletes the
    segment. Each `retain` needs one `release`.
    """

    __slots__ = ("first_offset", "length", "position", "segment")

    def __init__(self, segment: Segment, position: int, length: int, first_offset: int) -> None:
        self.segment = segment
        self.position = position
        self.length = length
        self.first_offset = first_offset
        """The offset that was asked for. The first batch holds it, or begins above it."""

    @property
    def file_descriptor(self) -> int:
        """To read from or send; valid while retained. Raises OSError when it must be opened and cannot."""
        return self.segment.open()

    def retain(self) -> LogSlice:
        if self.segment.descriptor < 0:
            self.segment.open()
        self.segment.references += 1
        return self

    def release(self) -> None:
        self.segment.release()

    def read(self) -> bytes:
        """The bytes themselves, where they cannot be sent from the file (TLS, internal readers)."""
        return self.segment.disk.pread(self.segment.open(), self.length, self.position)
