"""`flush.messages=1`: what is written is made durable in a helper thread before anybody hears of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from appliance.broker_actors.partition_host_view import Ticking
from appliance.log.errors import LogWriteFailed

if TYPE_CHECKING:
    from appliance.broker_actors.hosted_partition import HostedPartition


class FlushBeforeAck:
    """Of one partition: one flush at a time. All methods are called on the loop's thread."""

    __slots__ = ("_flushing", "_host", "_hosted")

    def __init__(self, hosted: HostedPartition, host: Ticking) -> None:
        self._hosted = hosted
        self._host = host
        self._flushing = False

    def flush(self) -> None:
        """Make what is written durable; all that comes meanwhile is the next flush's."""
        hosted, log = self._hosted, self._hosted.log
        if self._flushing or hosted.offline or log.holds_flushes:
            return
        try:
            flush = log.prepare_flush()
        except LogWriteFailed as error:
            self._host.write_failed(error)
            return
        if flush is None:
            hosted.durable_to(log.recovery_point)
            return
        self._flushing = True

        def done(result: Exception | None) -> None:
            self._flushing = False
            if result is not None:
                error = result if isinstance(result, OSError) else OSError(str(result))
                self._host.write_failed(log.flush_failed(flush, error))
                return
            log.flushed(flush)
            hosted.durable_to(flush.end_offset)
            if hosted.log_end_offset > flush.end_offset:
                self.flush()

        self._host.run_flush(flush.run, done)
