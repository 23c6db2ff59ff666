"""The writer's side of the metadata log: claim, commit, prove, snapshot and trim (rules M1 to M5, C2).

Each method is a piece of protocol (`StoreSteps`): it yields what to ask of the store and takes the answers. `claim` and
`commit` never run at the same time as each other; `prove` and `snapshot_and_trim` may run beside them.
"""

from __future__ import annotations

from collections.abc import Sequence

from appliance.base.errors import invariant
from appliance.base.randomness import Randomness
from appliance.controller.commits import (
    NONCE_BYTES,
    Commit,
    LogCorrupt,
    Pointer,
    Snapshot,
    decode_commit,
    encode_commit,
    encode_pointer,
    encode_snapshot,
)
from appliance.controller.log_reader import (
    CLUSTER_ID,
    LOG_PREFIX,
    POINTER,
    SNAPSHOT_PREFIX,
    LogPosition,
    LogReader,
    log_name,
    snapshot_name,
)
from appliance.controller.records import ClusterCreated, ControllerClaimed, FeatureLevelSet, Record
from appliance.controller.snapshots import snapshot_body
from appliance.controller.store_calls import (
    Absent,
    Create,
    Delete,
    Exists,
    Found,
    Get,
    ListNames,
    Names,
    NoAnswer,
    Pause,
    StoreSteps,
    Swap,
    Written,
)

COMMIT_RETENTION_MS = 24 * 3_600_000
"""Commits younger than this are kept, so that one can see what happened."""
DELETES_PER_TRIM = 1_000
SWAP_TRIES = 10

FEATURES = {"appliance.metadata.version": 1}
"""Feature levels of a new cluster."""


class SteppedDown(Exception):
    """Another controller has taken over, or this one cannot know: it answers nothing more."""


class WrongCluster(Exception):
    """The store holds another cluster than the configuration names."""


class MetadataLog(LogReader):
    """One controller's hold on the log."""

    def __init__(self, controller_id: int, randomness: Randomness, *, host: str = "", port: int = -1) -> None:
        super().__init__(randomness)
        self.controller_id = controller_id
        self.host = host
        self.port = port
        """Where this controller serves; written into its claims."""
        self.epoch = -1
        """The controller epoch that was claimed; -1 before."""
        self.proven_ms = -1
        """When the last request left whose answer showed that nobody else has claimed; -1 before the first."""
        self._cluster_id = ""
        self._unsettled: Commit | None = None

    def open(self, cluster_id: str | None, new_cluster_id: str) -> StoreSteps[str]:
        """First bootstrap, if it is one; then read the log to its end. Returns the cluster id.

        Raises:
            WrongCluster: `cluster_id` is given, and the store holds another.
            LogCorrupt: see `read_round`.
        """
        wanted = (cluster_id or new_cluster_id).encode()
        found = wanted
        if isinstance((yield from self.ask(Create(CLUSTER_ID, wanted))).result, Exists):
            result = (yield from self.ask(Get(CLUSTER_ID))).result
            if not isinstance(result, Found):
                raise LogCorrupt(f"{CLUSTER_ID}: exists, but cannot be read")
            found = result.data
        text = found.decode("utf-8", "replace").strip()
        if cluster_id is not None and text != cluster_id:
            raise WrongCluster(f"the object store belongs to cluster {text}, not to cluster.id {cluster_id}")
        yield from self._create_pointer()
        yield from self.read_round()
        if self.image.position >= 0 and self.image.cluster_id != text:
            raise LogCorrupt(f"{CLUSTER_ID} says {text}, but the log belongs to cluster {self.image.cluster_id}")
        self._cluster_id = text
        return text

    def claim(self, now_ms: int) -> StoreSteps[Commit]:
        """Rule M1: take the next controller epoch. `now_ms` is the wall clock.

        Raises:
            SteppedDown: another candidate was faster.
        """
        while True:
            epoch = self.image.controller_epoch + 1
            records: list[Record] = [ControllerClaimed(epoch, self.controller_id, self.host, self.port)]
            if self.image.position < 0:
                records.append(ClusterCreated(self._cluster_id))
                records += [FeatureLevelSet(name, level) for name, level in sorted(FEATURES.items())]
            commit = self._next(records, epoch, now_ms)
            if (other := (yield from self._settle(commit))) is None:
                self.epoch = epoch
                return self._installed(commit)
            yield from self.read_round()
            if self.image.controller_epoch >= epoch:
                raise SteppedDown(
                    f"lost the race for controller epoch {epoch}: commit {other.number} was written "
                    f"by controller {other.writer_id}"
                )

    def commit(self, records: Sequence[Record], now_ms: int) -> StoreSteps[Commit]:
        """Rules M2 to M4: write the next commit; it is in the image when this returns. `now_ms` is the wall clock.

        Raises:
            SteppedDown: the number was taken by another controller, or trimmed.
        """
        invariant(self.epoch >= 0, "a controller that has not claimed an epoch may not commit")
        commit = self._next(records, self.epoch, now_ms)
        if (other := (yield from self._settle(commit))) is not None:
            raise SteppedDown(
                f"replaced: commit {other.number} was written by controller {other.writer_id} "
                f"in controller epoch {other.controller_epoch}"
            )
        return self._installed(commit)

    def prove(self) -> StoreSteps[None]:
        """Rule C2: see that nobody else has written the next number. Gives up silently when the store is away.

        Raises:
            SteppedDown: somebody has.
        """
        number = self.position.next_number
        answer = yield Get(log_name(number))
        match answer.result:
            case Absent():
                # Absent may also mean trimmed: by others during a very long pause, or by ourselves meanwhile.
                pointer, _ = yield from self._read_pointer()
                if self.image.position < number <= pointer.trimmed:
                    raise SteppedDown(f"replaced: commit {number} was written and trimmed by another controller")
                self.trouble = ""
                self.proven_ms = max(self.proven_ms, answer.sent_ms)
            case Found(data):
                own = self._unsettled
                if self.image.position >= number or (own is not None and own.nonce == decode_commit(data).nonce):
                    return
                other = decode_commit(data)
                raise SteppedDown(
                    f"replaced: commit {number} was written by controller {other.writer_id} "
                    f"in controller epoch {other.controller_epoch}"
                )
            case NoAnswer(reason):
                self.trouble = reason
            case _:
                pass

    def commits_since_snapshot(self) -> int:
        """How many commits a reader that begins now has to read."""
        return self.image.position - (self.pointer.snapshot if self.pointer else -1)

    def snapshot_and_trim(self, now_ms: int, retention_ms: int = COMMIT_RETENTION_MS) -> StoreSteps[None]:
        """Rule M5, for the image as it is now. `now_ms` is the wall clock. Gives up when the pointer stays undecided.

        Raises:
            SteppedDown: the pointer shows a later controller.
        """
        position = self.position
        number = position.image.position
        snapshot = Snapshot(
            number=number,
            controller_epoch=self.epoch,
            writer_id=self.controller_id,
            timestamp_ms=now_ms,
            nonce=position.nonce,
            body=snapshot_body(position.image, position.commit_times),
        )
        # One that exists is of the same image: from an earlier try, or from the controller before.
        yield from self.ask(Create(snapshot_name(number), encode_snapshot(snapshot)))
        covered = yield from self._move_pointer(number, _old_enough(position, now_ms - retention_ms))
        if covered is not None:
            yield from self._delete_covered(covered)

    def _move_pointer(self, snapshot: int, trimmed: int) -> StoreSteps[Pointer | None]:
        for _ in range(SWAP_TRIES):
            pointer, etag = yield from self._read_pointer()
            if pointer.controller_epoch > self.epoch:
                raise SteppedDown(f"replaced: controller epoch {pointer.controller_epoch} has moved the pointer")
            if pointer.snapshot >= snapshot and pointer.trimmed >= trimmed:
                return pointer
            wanted = Pointer(
                snapshot=max(pointer.snapshot, snapshot),
                trimmed=max(pointer.trimmed, trimmed),
                controller_epoch=self.epoch,
                writer_id=self.controller_id,
                nonce=self._randomness.random_bytes(NONCE_BYTES),
            )
            # Whatever the answer is, only the pointer as it is read next counts.
            answer = yield Swap(POINTER, encode_pointer(wanted), etag)
            if not isinstance(answer.result, Written):
                yield Pause(int(self._randomness.uniform(50, 500)))
        return None

    def _delete_covered(self, pointer: Pointer) -> StoreSteps[None]:
        for prefix, last in ((LOG_PREFIX, pointer.trimmed), (SNAPSHOT_PREFIX, pointer.snapshot - 1)):
            result = (yield from self.ask(ListNames(prefix, DELETES_PER_TRIM))).result
            names = result.names if isinstance(result, Names) else ()
            for name in names:
                digits = name.removeprefix(prefix)
                if digits.isdecimal() and int(digits) <= last:
                    yield from self.ask(Delete(name))

    def _create_pointer(self) -> StoreSteps[None]:
        if isinstance((yield from self.ask(Get(POINTER))).result, Found):
            return
        result = (yield from self.ask(ListNames(LOG_PREFIX, 1))).result
        if isinstance(result, Names) and result.names:
            # Another bootstrap may have come this far since; `read_round` says so if not.
            return
        nonce = self._randomness.random_bytes(NONCE_BYTES)
        yield from self.ask(Create(POINTER, encode_pointer(Pointer(-1, -1, 0, self.controller_id, nonce))))

    def _next(self, records: Sequence[Record], epoch: int, now_ms: int) -> Commit:
        invariant(self._unsettled is None, "one commit at a time")
        return Commit(
            number=self.position.next_number,
            controller_epoch=epoch,
            writer_id=self.controller_id,
            timestamp_ms=now_ms,
            nonce=self._randomness.random_bytes(NONCE_BYTES),
            previous_nonce=self.position.nonce,
            records=tuple(records),
        )

    def _settle(self, commit: Commit) -> StoreSteps[Commit | None]:
        """Rule M3. None: the commit stands. Else the commit that stands in its place.

        Raises:
            SteppedDown: the number was trimmed already.
        """
        name, data = log_name(commit.number), encode_commit(commit)
        self._unsettled = commit
        while True:
            answer = yield from self.ask(Create(name, data))
            if isinstance(answer.result, Exists):
                result = (yield from self.ask(Get(name))).result
                if not isinstance(result, Found):
                    continue
                other = decode_commit(result.data)
                if other.nonce != commit.nonce:
                    self._unsettled = None
                    return other
            pointer, _ = yield from self._read_pointer()
            if pointer.trimmed >= commit.number:
                raise SteppedDown(f"replaced: commit {commit.number} was written and trimmed by another controller")
            self.proven_ms = max(self.proven_ms, answer.sent_ms)
            return None

    def _installed(self, commit: Commit) -> Commit:
        self._unsettled = None
        self.position = self.position.after(commit)
        return commit


def _old_enough(position: LogPosition, cutoff_ms: int) -> int:
    """The last commit that is known to be older than the cut-off; -1 for none."""
    last = -1
    for number, time_ms in position.commit_times:
        if time_ms > cutoff_ms:
            break
        last = number
    return last
