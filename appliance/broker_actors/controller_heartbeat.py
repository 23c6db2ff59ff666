"""A broker's lease, renewed by a thread of its own (rule B4)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from appliance.base.errors import ErrorCode, KafkaError
from appliance.broker_actors.controller_line import ControllerLine
from appliance.client.connection import CallTimedOut, Connection, ConnectionLost, error_of
from appliance.controller.records import commit_number_of
from appliance.wire.messages.internal_metadata import BrokerLeaseRequest, BrokerLeaseResponse

_log = logging.getLogger(__name__)

STALL_CHECK_MS = 50
"""How often a thread that must not beat looks whether the loop goes again."""


class LeaseKeeper:
    """Heartbeats only while the event loop ticks, so that a stuck loop loses its lease."""

    def __init__(
        self,
        line: ControllerLine,
        *,
        interval_ms: int,
        loop_stall_max_ms: int,
        timeout_ms: int,
        on_registration_lost: Callable[[], None],
        on_may_stop: Callable[[], None],
    ) -> None:
        self._line = line
        self._interval_ms = interval_ms
        self._loop_stall_max_ms = loop_stall_max_ms
        self._timeout_ms = timeout_ms
        self._on_registration_lost = on_registration_lost
        self._on_may_stop = on_may_stop
        self._last_tick_ms = line.clock.monotonic_ms()
        self._beaten_for = -1
        """The broker epoch of the last heartbeat."""
        self._want_shut_down = False
        self._told_may_stop = False
        self._connection: Connection | None = None
        self._connected_to = ("", 0)
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def loop_ticked(self) -> None:
        """The event loop is alive."""
        self._last_tick_ms = self._line.clock.monotonic_ms()

    def shut_down(self) -> None:
        """From the next heartbeat on, ask the controller whether the broker may stop."""
        with self._line.changed:
            self._want_shut_down = True
            self._line.changed.notify_all()

    def interrupt(self) -> None:
        """Wake the thread out of a call; any thread may call it."""
        connection = self._connection
        if connection is not None:
            connection.abort()

    def _run(self) -> None:
        failures = 0
        while not self._line.closed.is_set():
            self._wait_for_turn()
            if self._line.closed.is_set():
                break
            try:
                if self._beat():
                    failures = 0
            except (ConnectionLost, CallTimedOut, KafkaError) as error:
                if failures == 0 and not self._line.closed.is_set():
                    _log.warning("heartbeat to the controller failed: %s", error)
                self._disconnect()
                self._line.try_next(self._connected_to)
                self._line.trouble = f"no answer from a controller: {error}"
                self._line.closed.wait(self._line.backoff_ms(failures) / 1_000)
                failures += 1
            except Exception:
                _log.exception("a heartbeat failed; trying again")
                self._disconnect()
                self._line.closed.wait(self._interval_ms / 1_000)
        self._disconnect()

    def _wait_for_turn(self) -> None:
        """Wait for the interval; a new registration that the image has reached beats at once."""
        line = self._line

        def due() -> bool:
            ready = line.broker_epoch >= 0 and line.position >= commit_number_of(line.broker_epoch)
            return (
                line.closed.is_set()
                or (self._want_shut_down and not self._told_may_stop)
                or (ready and self._beaten_for != line.broker_epoch)
            )

        with line.changed:
            line.changed.wait_for(due, self._interval_ms / 1_000)

    def _beat(self) -> bool:
        """One heartbeat; whether it was answered."""
        line = self._line
        broker_epoch = line.broker_epoch
        if broker_epoch < 0:
            return False
        sent_ms = line.clock.monotonic_ms()
        if sent_ms - self._last_tick_ms > self._loop_stall_max_ms:
            line.closed.wait(STALL_CHECK_MS / 1_000)
            return False
        position = line.position
        want_shut_down = self._want_shut_down
        response = self._connect().call(
            BrokerLeaseRequest(
                broker_id=line.identity.broker_id,
                broker_epoch=broker_epoch,
                position=position,
                controller_epoch=line.controller_epoch,
                want_shut_down=want_shut_down,
            ),
            timeout_ms=self._timeout_ms,
        )
        if position >= commit_number_of(broker_epoch):
            self._beaten_for = broker_epoch
        self._take(response, broker_epoch, sent_ms)
        if want_shut_down and not response.should_shut_down:
            line.closed.wait(STALL_CHECK_MS / 1_000)
        return True

    def _take(self, response: BrokerLeaseResponse, broker_epoch: int, sent_ms: int) -> None:
        line = self._line
        code = error_of(response.error_code)
        if not line.accept_epoch(response.controller_epoch):
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, f"controller epoch {response.controller_epoch}")
        if code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            if line.registration_lost(broker_epoch):
                _log.warning("broker epoch %d is not known any more; registering again", broker_epoch)
                self._on_registration_lost()
            return
        if code != ErrorCode.NONE:
            raise KafkaError(code)
        if response.should_shut_down and not self._told_may_stop:
            self._told_may_stop = True
            self._on_may_stop()
        if response.is_fenced or response.lease_ms <= 0:
            line.lease_refused("fenced by the controller")
        else:
            line.lease_granted(broker_epoch, sent_ms + response.lease_ms, firm=response.is_firm)

    def _connect(self) -> Connection:
        address = self._line.address()
        if self._connection is None or not self._connection.is_open or self._connected_to != address:
            self._disconnect()
            self._connected_to = address
            client_id = f"broker-{self._line.identity.broker_id}-heartbeat"
            self._connection = Connection(
                *address, client_id=client_id, timeout_ms=self._timeout_ms, security=self._line.security
            )
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
