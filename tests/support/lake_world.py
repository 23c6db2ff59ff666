"""Lake workers on one partition through bad days: kills, zombies, lost, late and refused answers, retention, sweeps.

The machine, the policy and the ledger's bytes are the real ones; records are offsets, and a file is the tuple of them.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any

from appliance.tiering.lake import machine, policy
from appliance.tiering.lake.ledger import LakeFile, Ledger, Plan, encode_ledger, parse_ledger, parse_page
from appliance.tiering.lake.names import DATA, DEAD, Output, file_name, ledger_name, parse_file_name
from appliance.tiering.lake.spec import LakeSpec
from tests.support.tier_objects import TOPIC, TOPIC_ID

OUTPUT = Output(TOPIC_ID, 0)
LEDGER = ledger_name(OUTPUT, 0)
EMPTY = Ledger(str(OUTPUT), TOPIC, TOPIC_ID, 0)
Steps = Generator[None, None, None]


class Undecided(Exception):
    """No usable answer."""


class Refused(Exception):
    """The condition does not hold."""


@dataclass
class Lakes:
    """The store, the tier, the workers and the sweeper. `broken` names one way to break the protocol."""

    seed: int
    broken: str = ""
    objects: dict[str, Any] = field(default_factory=dict)
    start: int = 0
    ends: list[int] = field(default_factory=list)
    """Of the tier's segments, whole history; retention moves `start`."""
    late: list[Callable[[], object]] = field(default_factory=list)
    trouble: bool = True
    changes: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.running: list[Steps] = [self.worker(), self.worker(), self.sweeper()]
        self.known = EMPTY

    # ------------------------------------------------------------------------------------------------------ the store

    def etag(self, name: str) -> str:
        return hashlib.sha256(repr(self.objects[name]).encode()).hexdigest()

    def read(self, name: str) -> Any:
        if self.trouble and self.chance.random() < 0.05:
            raise Undecided
        return self.objects.get(name)

    def write(self, act: Callable[[], object]) -> None:
        """Raises: Refused, Undecided."""
        fate = self.chance.choice(["", "", "", "", "lose", "refuse", "late"]) if self.trouble else ""
        if fate == "late":
            self.late.append(act)
        if fate in ("late", "refuse"):
            raise Undecided
        act()
        if fate == "lose":
            raise Undecided

    def create(self, name: str, body: Any) -> None:
        def act() -> None:
            if name in self.objects:
                raise Refused
            self.objects[name] = body
            self.changed(name)

        self.write(act)

    def swap(self, name: str, body: Any, etag: str) -> None:
        def act() -> None:
            if self.broken != "blind swap" and (name not in self.objects or self.etag(name) != etag):
                raise Refused
            self.objects[name] = body
            self.changed(name)

        self.write(act)

    def delete(self, name: str) -> None:
        def act() -> None:
            self.objects.pop(name, None)
            self.changed(name)

        self.write(act)

    # ----------------------------------------------------------------------------------------------------- invariants

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else 0

    @property
    def ledger(self) -> Ledger:
        return parse_ledger(self.objects[LEDGER]) if LEDGER in self.objects else EMPTY

    def listed(self, ledger: Ledger) -> list[LakeFile]:
        folder = LEDGER.removesuffix("ledger.json")
        paged = [one for page in ledger.pages for one in parse_page(self.objects[folder + page.name], page)]
        return [*paged, *ledger.files]

    def changed(self, name: str) -> None:
        self.changes += 1
        ledger = self.ledger
        if name == LEDGER:
            assert ledger.version == self.known.version + 1, "a version was passed over or written twice"
            assert ledger.next_offset >= self.known.next_offset, "the next offset goes back"
            assert ledger.plan_no >= self.known.plan_no, "a plan's number goes back"
            self.known = ledger
        elif parse_file_name(name.removeprefix(OUTPUT.folder)) is None:
            return
        self.check(ledger)

    def check(self, ledger: Ledger) -> None:
        files = self.listed(ledger)
        rows: list[int] = []
        for file in files:
            content = self.objects.get(OUTPUT.folder + file.name)
            assert content is not None, f"{file.name} is listed and not there"
            assert (content[0], content[-1] + 1, len(content)) == (file.start, file.end, file.rows), (
                f"{file.name} is not what is listed"
            )
            rows += content
        gone = {offset for low, high, _ in ledger.skipped for offset in range(low, high)}
        wanted = [offset for offset in range(ledger.next_offset) if visible(offset) and offset not in gone]
        assert sorted(rows) == wanted, "records are in no file, or in two"

    # ---------------------------------------------------------------------------------------------------- the workers

    def worker(self) -> Steps:
        """Rounds until it is killed; how much a plan takes is another thing each time."""
        while True:
            spec = LakeSpec(max_bytes=self.chance.randint(1, 12), max_age_ms=0, partition_by=())
            rounds = machine.lake_round(spec)
            try:
                request = next(rounds)
                while True:
                    yield
                    request = rounds.send((yield from self.perform(request)))
            except (Undecided, StopIteration):
                yield

    def perform(self, request: machine.Request) -> Generator[None, None, Any]:
        match request:
            case machine.LoadLedger():
                body = self.read(LEDGER)
                if body is None:
                    return machine.LoadedLedger(EMPTY, None)
                return machine.LoadedLedger(parse_ledger(body), self.etag(LEDGER))
            case machine.LoadTier(next_offset, max_bytes):
                return self.tier(next_offset, max_bytes)
            case machine.StoreLedger(ledger, etag):
                try:
                    if etag is None:
                        self.create(LEDGER, encode_ledger(ledger))
                    else:
                        self.swap(LEDGER, encode_ledger(ledger), etag)
                    return True
                except (Refused, Undecided):
                    return False
            case machine.StorePage(page, data):
                name = LEDGER.removesuffix("ledger.json") + page.name
                try:
                    self.create(name, data)
                except Refused:
                    assert self.objects[name] == data, "a page has two contents"
                return True
            case machine.WriteFiles(ledger):
                return (yield from self.write_files(ledger))

    def tier(self, next_offset: int, max_bytes: int) -> policy.Tier:
        pending = []
        before = 0
        for end in self.ends if max_bytes else ():
            low = max(before, next_offset, self.start)
            if end > low:
                pending.append(policy.Pending(low, end, end - low, 1))
            before = end
        return policy.Tier(self.start, self.end, tuple(pending))

    def write_files(self, ledger: Ledger) -> Generator[None, None, policy.Written | machine.Failed]:
        plan = ledger.plan
        assert plan is not None
        if self.broken == "no plan":
            # As Secor: what is written depends on what is there by now.
            plan = replace(plan, end=max(plan.end, self.end))
        files = []
        for number, content in enumerate(cut(plan)):
            yield
            if self.start > plan.start:
                return machine.Failed.EXPIRED
            kind = DEAD if number == 1 else DATA
            name = file_name(kind, "", 0, 0 if self.broken == "one number" else plan.no, number)
            try:
                self.create(OUTPUT.folder + name, content)
            except Refused:
                there = self.read(OUTPUT.folder + name)
                if self.broken not in ("no plan", "adopt") and there != content:
                    return machine.Failed.CLASH
            except Undecided:
                if self.broken != "undecided is written":
                    raise
            files.append(LakeFile(kind, plan.no, name, content[0], content[-1] + 1, len(content), 1, 1))
        yield
        return policy.Written(tuple(files), "")

    def sweeper(self) -> Steps:
        """As `outputs.sweep`, with pauses."""
        while True:
            yield
            try:
                names = sorted(self.objects)
                yield
                body = self.read(LEDGER)
                ledger = parse_ledger(body) if body is not None else EMPTY
                yield
                if self.broken == "open plan is dead" and ledger.plan is not None:
                    ledger = replace(ledger, plan=None)
                listed = {file.name for file in self.listed(ledger)}
                if self.broken == "higher numbers are dead":
                    ledger = replace(ledger, plan=None, plan_no=ledger.plan_no + 1_000)
                for name in names:
                    yield
                    own = name.removeprefix(OUTPUT.folder)
                    if policy.is_dead(own, 0, ledger, listed):
                        self.delete(name)
            except Undecided:
                continue

    # --------------------------------------------------------------------------------------------------------- events

    def event(self) -> None:
        chance = self.chance
        dice = chance.random()
        if dice < 0.05 and self.end < 120:
            self.ends.append(self.end + chance.randint(1, 6))
        elif dice < 0.06 and self.end > self.start:
            self.start = chance.randint(self.start, min(self.end, self.start + 6))
        elif dice < 0.09 and self.late:
            try:
                self.late.pop(chance.randrange(len(self.late)))()
            except Refused:
                return
        elif dice < 0.11:
            at = chance.randrange(len(self.running))
            self.running[at] = self.sweeper() if at == 2 else self.worker()
        else:
            next(chance.choice(self.running))

    def run(self, events: int) -> None:
        for _ in range(events):
            self.event()
        self.settle()

    def settle(self) -> None:
        """No more trouble: everything is done, and nothing dead is left."""
        while self.late:
            try:
                self.late.pop()()
            except Refused:
                continue
        self.trouble = False
        worker = self.worker()
        for _ in range(3_000):
            next(worker)
            if self.ledger.next_offset == self.end and self.ledger.plan is None:
                break
        else:
            raise AssertionError("what is in the tier never becomes files")
        sweeper = self.sweeper()
        for _ in range(len(self.objects) * 2 + 10):
            next(sweeper)
        names = {name.removeprefix(OUTPUT.folder) for name in self.objects}
        left = {name for name in names if parse_file_name(name)} - {file.name for file in self.listed(self.ledger)}
        assert not left, f"dead files are left: {sorted(left)}"
        self.check(self.ledger)


def visible(offset: int) -> bool:
    """Every seventh is a marker."""
    return offset % 7 != 3


def cut(plan: Plan) -> list[tuple[int, ...]]:
    """The files of a plan: two event times, at most three rows in each file."""
    offsets = [offset for offset in range(plan.start, plan.end) if visible(offset)]
    return [
        tuple(some[first : first + 3]) for some in (offsets[0::2], offsets[1::2]) for first in range(0, len(some), 3)
    ]
