"""Reading the metadata log from the object store: pointer, snapshot, commits (rules M5 and M6)."""

from __future__ import annotations

from dataclasses import dataclass, field

from appliance.base.errors import InvariantBroken
from appliance.base.randomness import Randomness
from appliance.controller.commits import (
    NO_NONCE,
    Commit,
    LogCorrupt,
    Pointer,
    decode_commit,
    decode_pointer,
    decode_snapshot,
)
from appliance.controller.delta import MetadataDelta
from appliance.controller.image import MetadataImage
from appliance.controller.records import ControllerClaimed
from appliance.controller.snapshots import CommitTimes, load_snapshot
from appliance.controller.store_calls import Found, Get, NoAnswer, Pause, StoreAnswer, StoreRequest, StoreSteps

CLUSTER_ID = "cluster-id"
POINTER = "metadata/pointer"
LOG_PREFIX = "metadata/log/"
SNAPSHOT_PREFIX = "metadata/snapshot/"

RETRY_FIRST_MS = 100
RETRY_MAX_MS = 2_000

_MARK_EVERY_MS = 600_000
"""A commit's time is remembered when the last one remembered is this much older."""
_MARKS_MAX = 1_024


def log_name(number: int) -> str:
    """Name of a commit object."""
    return f"{LOG_PREFIX}{number:020}"


def snapshot_name(number: int) -> str:
    """Name of a snapshot object."""
    return f"{SNAPSHOT_PREFIX}{number:020}"


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far the log has been read, or written, and what followed from it."""

    image: MetadataImage = field(default_factory=MetadataImage)
    nonce: bytes = NO_NONCE
    """Of the last commit in the image."""
    commit_times: CommitTimes = ()

    @property
    def next_number(self) -> int:
        """The number of the next commit."""
        return self.image.position + 1

    def after(self, commit: Commit) -> LogPosition:
        """Go one commit further.

        Raises:
            LogCorrupt: the commit does not follow this one (number, nonce of its predecessor, falling epoch), or its
                records do not fit the image.
        """
        image = self.image
        if commit.number != self.next_number:
            raise LogCorrupt(f"commit {self.next_number}: the object says that it is {commit.number}")
        if commit.previous_nonce != self.nonce:
            raise LogCorrupt(f"commit {commit.number}: was written after another commit {image.position}")
        claim = commit.records[0] if commit.records else None
        if commit.controller_epoch < image.controller_epoch:
            raise LogCorrupt(
                f"commit {commit.number}: controller epoch {commit.controller_epoch} after {image.controller_epoch}"
            )
        if commit.controller_epoch > image.controller_epoch and not (
            isinstance(claim, ControllerClaimed) and claim.controller_epoch == commit.controller_epoch
        ):
            raise LogCorrupt(f"commit {commit.number}: controller epoch {commit.controller_epoch} was never claimed")
        delta = MetadataDelta(image)
        try:
            delta.apply_commit(commit.number, commit.records)
            return LogPosition(delta.build(), commit.nonce, self._times_with(commit))
        except InvariantBroken as error:
            raise LogCorrupt(f"commit {commit.number}: {error}") from error

    def _times_with(self, commit: Commit) -> CommitTimes:
        times = self.commit_times
        if times and commit.timestamp_ms - times[-1][1] < _MARK_EVERY_MS:
            return times
        return (*times, (commit.number, commit.timestamp_ms))[-_MARKS_MAX:]


class LogReader:
    """Reads the log and remembers how far. Also the base of the writer."""

    def __init__(self, randomness: Randomness) -> None:
        self.position = LogPosition()
        self.pointer: Pointer | None = None
        """The newest that has been read."""
        self.trouble = ""
        """Why the store gives no answer at the moment; empty while it does."""
        self._randomness = randomness

    @property
    def image(self) -> MetadataImage:
        """The image as far as it has been read or written."""
        return self.position.image

    def read_round(self) -> StoreSteps[None]:
        """Rule M6: on to the first absent number, on a private image that is installed at the end.

        Raises:
            LogCorrupt: the log holds what it must not.
        """
        position = self.position
        if self.pointer is None:
            position = yield from self._read_snapshot(position)
        while True:
            start = position.next_number
            problem: LogCorrupt | None = None
            try:
                position = yield from self._read_commits(position)
            except LogCorrupt as error:
                # A trimmed number that a paused writer created again looks like this, too: the pointer decides.
                problem = error
            pointer, _ = yield from self._read_pointer()
            if pointer.trimmed >= start:
                position = yield from self._read_snapshot(self.position)
                continue
            if problem is not None:
                raise problem
            if position.image.position > self.image.position:
                self.position = position
            return

    def ask(self, request: StoreRequest) -> StoreSteps[StoreAnswer]:
        """Send a request again and again, unchanged, until there is an answer.

        The answer's `sent_ms` is when the first try left: what it shows was true at some time after that.
        """
        delay_ms, first_sent_ms = RETRY_FIRST_MS, -1
        while True:
            answer = yield request
            if first_sent_ms < 0:
                first_sent_ms = answer.sent_ms
            if not isinstance(answer.result, NoAnswer):
                self.trouble = ""
                return StoreAnswer(answer.result, first_sent_ms)
            self.trouble = answer.result.reason
            yield Pause(int(delay_ms * self._randomness.uniform(0.5, 1.0)))
            delay_ms = min(delay_ms * 2, RETRY_MAX_MS)

    def _read_commits(self, position: LogPosition) -> StoreSteps[LogPosition]:
        while True:
            result = (yield from self.ask(Get(log_name(position.next_number)))).result
            if not isinstance(result, Found):
                return position
            position = position.after(decode_commit(result.data))

    def _read_snapshot(self, position: LogPosition) -> StoreSteps[LogPosition]:
        """The snapshot that the pointer names, unless `position` is as new."""
        pointer, _ = yield from self._read_pointer()
        while pointer.snapshot > position.image.position:
            result = (yield from self.ask(Get(snapshot_name(pointer.snapshot)))).result
            if isinstance(result, Found):
                snapshot = decode_snapshot(result.data)
                if snapshot.number != pointer.snapshot:
                    raise LogCorrupt(f"snapshot {pointer.snapshot}: the object says that it is {snapshot.number}")
                image, commit_times = load_snapshot(snapshot)
                return LogPosition(image, snapshot.nonce, commit_times)
            gone = pointer.snapshot
            pointer, _ = yield from self._read_pointer()
            if pointer.snapshot == gone:
                raise LogCorrupt(f"snapshot {gone}: the pointer names it, but it is gone")
        return position

    def _read_pointer(self) -> StoreSteps[tuple[Pointer, str]]:
        """The pointer as it stands, and its ETag."""
        result = (yield from self.ask(Get(POINTER))).result
        if not isinstance(result, Found):
            raise LogCorrupt(f"{POINTER}: is gone")
        pointer = decode_pointer(result.data)
        if self.pointer is None or (pointer.snapshot, pointer.trimmed) > (self.pointer.snapshot, self.pointer.trimmed):
            self.pointer = pointer
        return pointer, result.etag
