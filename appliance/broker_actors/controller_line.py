"""What the threads of a controller channel share: who they are, where the controller is, which lease they hold."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.base.clock import Clock
from appliance.base.randomness import Randomness, random_uuid
from appliance.client.security import PLAIN, ClientSecurity
from appliance.controller.records import Listener, LogState

_log = logging.getLogger(__name__)

RECONNECT_BACKOFF_MS = 50
RECONNECT_BACKOFF_MAX_MS = 250
"""Short, for a lease is short: a controller that comes back within it costs nothing."""

_EPOCH_FILE = "broker-epoch"


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """What a broker tells the controller about itself."""

    broker_id: int
    listeners: tuple[Listener, ...]
    """The first one is the one that clients are given."""
    rack: str | None = None
    node: str = ""
    cluster_id: str | None = None
    """From `meta.properties`; None at the first start."""
    directory_ids: tuple[uuid.UUID, ...] = ()
    log_state: LogState = LogState.CLEAN
    data_dir: Path | None = None
    """Its lock is held. The broker epoch is noted in it, so that the next process can show that this one has ended."""


class ControllerLine:
    """State shared by the channel's threads; each method takes the lock for as long as it needs."""

    def __init__(
        self,
        controllers: Sequence[str],
        identity: BrokerIdentity,
        clock: Clock,
        randomness: Randomness,
        security: ClientSecurity = PLAIN,
    ) -> None:
        self.security = security
        """What controllers ask for."""
        self.identity = identity
        self.clock = clock
        self.randomness = randomness
        self.closed = threading.Event()
        self.changed = threading.Condition()
        """Notified when the registration or the position changes."""
        self.trouble = "not registered yet"
        """Why there is no lease at the moment; empty while there is one."""
        self._addresses = list(dict.fromkeys(controllers))
        self._active = 0
        self._controller_epoch = -1
        self._incarnation_id = random_uuid(randomness)
        self._broker_epoch = -1
        self._position = -1
        self._previous_broker_epoch = _read_epoch(identity.data_dir)
        self._lease_end_ms = 0
        self._firm = False

    # Where the controller is

    def address(self) -> tuple[str, int]:
        """Host and port of the controller that answered last, or of the next one to try."""
        with self.changed:
            host, _, port = self._addresses[self._active].rpartition(":")
        return host.strip("[]"), int(port)

    def try_next(self, failed: tuple[str, int]) -> None:
        """The controller at `failed` is not there or not active; unless another thread has moved on already."""
        with self.changed:
            host, _, port = self._addresses[self._active].rpartition(":")
            if (host.strip("[]"), int(port)) == failed:
                self._active = (self._active + 1) % len(self._addresses)

    def accept_epoch(self, controller_epoch: int) -> bool:
        """Rule C6: whether an answer of this controller epoch counts; a higher one has been seen otherwise."""
        with self.changed:
            if controller_epoch < self._controller_epoch:
                return False
            self._controller_epoch = controller_epoch
            return True

    @property
    def controller_epoch(self) -> int:
        """The highest that any answer carried; -1 before the first."""
        return self._controller_epoch

    def backoff_ms(self, failures: int) -> int:
        """How long to wait after so many failures in a row."""
        limit = min(RECONNECT_BACKOFF_MAX_MS, RECONNECT_BACKOFF_MS << min(failures, 10))
        return int(limit * self.randomness.uniform(0.5, 1.0))

    # Registration

    @property
    def broker_epoch(self) -> int:
        """-1 while not registered."""
        return self._broker_epoch

    @property
    def incarnation_id(self) -> uuid.UUID:
        return self._incarnation_id

    @property
    def previous_broker_epoch(self) -> int:
        return self._previous_broker_epoch

    @property
    def position(self) -> int:
        """Number of the last commit that is in force on the broker's loop."""
        return self._position

    def registered(self, broker_epoch: int) -> None:
        """The controller gave this epoch. It is noted on disk before anything is served under it."""
        _write_epoch(self.identity.data_dir, broker_epoch)
        with self.changed:
            self._broker_epoch = self._previous_broker_epoch = broker_epoch
            self.changed.notify_all()

    def registration_lost(self, broker_epoch: int) -> bool:
        """Rule B5: the epoch is not known to the controller any more; register again as another incarnation.

        Returns whether it was still the one in use.
        """
        with self.changed:
            if broker_epoch != self._broker_epoch or broker_epoch < 0:
                return False
            self._broker_epoch = -1
            self._lease_end_ms = 0
            self._incarnation_id = random_uuid(self.randomness)
            self.trouble = "the controller does not know this broker's epoch any more"
            self.changed.notify_all()
            return True

    def applied(self, position: int) -> None:
        """What this commit says is in force on the broker's loop. Any thread."""
        if position == self._position:
            return
        with self.changed:
            self._position = position
            self.changed.notify_all()

    # Lease

    def lease_granted(self, broker_epoch: int, end_ms: int, *, firm: bool) -> None:
        """The heartbeat was answered; the lease ends at `end_ms` of the monotonic clock."""
        with self.changed:
            if broker_epoch == self._broker_epoch:
                # An answer that comes late never shortens what a later one gave.
                self._lease_end_ms = max(self._lease_end_ms, end_ms)
                self._firm = firm
                self.trouble = ""

    def lease_refused(self, reason: str) -> None:
        with self.changed:
            self._lease_end_ms = 0
            self.trouble = reason

    def lease_valid(self, now_ms: int) -> bool:
        return now_ms < self._lease_end_ms

    def lease_firm(self, now_ms: int) -> bool:
        return self._firm and now_ms < self._lease_end_ms


def _read_epoch(data_dir: Path | None) -> int:
    """The epoch that the last process noted in this directory; -1 when there is none or it cannot be read."""
    if data_dir is None:
        return -1
    try:
        text = (data_dir / _EPOCH_FILE).read_text(encoding="ascii")
        version, epoch = text.split()
        return int(epoch) if version == "1" else -1
    except FileNotFoundError:
        return -1
    except (OSError, ValueError) as error:
        _log.warning("%s cannot be read, registration may take a lease longer: %s", data_dir / _EPOCH_FILE, error)
        return -1


def _write_epoch(data_dir: Path | None, broker_epoch: int) -> None:
    if data_dir is None:
        return
    temporary = data_dir / f"{_EPOCH_FILE}.tmp"
    try:
        # No fsync: after a host crash the note may be gone, and the next registration waits out the lease.
        temporary.write_text(f"1\n{broker_epoch}\n", encoding="ascii")
        temporary.replace(data_dir / _EPOCH_FILE)
    except OSError as error:
        _log.warning("the broker epoch cannot be noted, the next start may take a lease longer: %s", error)
