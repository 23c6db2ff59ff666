"""What the supervisor makes of the events of a runtime; the runtime here only says what a test tells it to."""

from __future__ import annotations

import io
import json
import queue
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.base.errors import UserError
from appliance.broker_actors import supervisor as supervisor_module
from appliance.broker_actors.plan import ApplianceSettings, Targets
from appliance.broker_actors.runtime import (
    EXIT_NOT_INSTALLED,
    Post,
    ProcessEnded,
    ProcessEvent,
    ProcessReady,
    ProcessSpec,
    ProcessWorking,
    RuntimeLost,
)
from appliance.broker_actors.supervisor import BROKERS_STOP_MAX_MS, BROKERS_STOP_MS, Supervisor

Script = Callable[[ProcessSpec, int], list[ProcessEvent]]


class ScriptedRuntime:
    """Answers each start with events: by the spec and how often it was started before."""

    name = "scripted"

    def __init__(self, post: Post, script: Script) -> None:
        self.post = post
        self.script = script
        self.starts: dict[str, int] = {}
        self.closed = False

    def warm(self, name: str, target: str) -> None: ...

    def start(self, spec: ProcessSpec) -> None:
        count = self.starts.get(spec.name, 0)
        self.starts[spec.name] = count + 1
        for event in self.script(spec, count):
            self.post(event)

    def stop(self, name: str) -> None:
        self.post(ProcessEnded(name, "", 0))

    def kill(self, name: str) -> None: ...

    def close(self) -> None:
        self.closed = True


def serves(spec: ProcessSpec) -> ProcessReady:
    return ProcessReady(spec.name, f"{spec.settings.host}:{spec.settings.port}", 1)


class Output(io.StringIO):
    """Standard output that may take the runtime away when READY is said."""

    def __init__(self, on_ready: Callable[[], None]) -> None:
        super().__init__()
        self._on_ready = on_ready

    def flush(self) -> None:
        self._on_ready()


def run(
    folder: Path, script: Script, *, lose_after_ready: bool = False, **properties: str
) -> tuple[int, str, ScriptedRuntime]:
    """Run an appliance until the script says that the runtime is lost: exit code, standard output, runtime."""
    settings = ApplianceSettings(
        data_dir=folder,
        port=0,
        http_port=0,
        runtime="local",
        properties={name.replace("_", "."): text for name, text in properties.items()},
    ).checked()
    made: list[ScriptedRuntime] = []
    output = Output(lambda: made[0].post(RuntimeLost("gone")) if lose_after_ready else None)

    def runtime_of(post: Post, lock: int) -> ScriptedRuntime:
        made.append(ScriptedRuntime(post, script))
        return made[0]

    supervisor = Supervisor(
        settings,
        runtime_of,
        targets=Targets("c:c", "b:b", {"http": "h:h"}),
        ready_check=lambda addresses, timeout_ms: "cluster",
        output=output,
    )
    try:
        return supervisor.run(), output.getvalue(), made[0]
    finally:
        assert made[0].closed, "nothing may be left, whatever happened"


def test_services_start_when_brokers_serve_and_ready_comes_last(tmp_path: Path) -> None:
    def script(spec: ProcessSpec, count: int) -> list[ProcessEvent]:
        events: list[ProcessEvent] = [serves(spec)]
        if spec.name == "service-http":
            assert spec.settings.cluster_id == "cluster"
            events.append(RuntimeLost("gone"))
        return events

    code, said, _ = run(tmp_path, script)
    assert code == 1
    assert json.loads(said.removeprefix("READY "))["cluster_id"] == "cluster"


def test_what_the_runtime_brings_back_by_itself_is_waited_for(tmp_path: Path) -> None:
    def script(spec: ProcessSpec, count: int) -> list[ProcessEvent]:
        if spec.name == "broker-1":
            return [ProcessEnded("broker-1", "broker-1 is gone", 1, being_restarted=True), serves(spec)]
        return [serves(spec), *([RuntimeLost("gone")] if spec.name == "service-http" else [])]

    _, said, runtime = run(tmp_path, script)
    assert said.startswith("READY ")
    assert runtime.starts["broker-1"] == 1


def test_a_service_that_is_not_installed_is_left_out(tmp_path: Path) -> None:
    def script(spec: ProcessSpec, count: int) -> list[ProcessEvent]:
        if spec.name == "broker-1":
            # It was warmed at the same time, and loading failed before the brokers served.
            return [ProcessEnded("service-http", "no module", EXIT_NOT_INSTALLED), serves(spec)]
        return [serves(spec)]

    _, said, runtime = run(tmp_path, script, lose_after_ready=True)
    assert json.loads(said.removeprefix("READY "))["http"] is None
    assert "service-http" not in runtime.starts


def test_who_ends_is_started_again_and_who_is_brought_back_is_not(tmp_path: Path) -> None:
    def script(spec: ProcessSpec, count: int) -> list[ProcessEvent]:
        if spec.name == "service-http" and count == 0:
            return [
                serves(spec),
                ProcessEnded("broker-1", "broker-1 is gone", 1, being_restarted=True),
                ProcessEnded("service-http", "", 0),
            ]
        return [serves(spec), *([RuntimeLost("gone")] if count else [])]

    _, _, runtime = run(tmp_path, script, service_restart_backoff_ms="1")
    assert runtime.starts == {"controller-1": 1, "broker-1": 1, "service-http": 2}


def test_who_is_not_ready_in_time_is_named(tmp_path: Path) -> None:
    def script(spec: ProcessSpec, count: int) -> list[ProcessEvent]:
        return [] if spec.name == "broker-1" else [serves(spec)]

    with pytest.raises(UserError, match=r"not ready in time \(up\.ready\.timeout\.ms\): broker-1"):
        run(tmp_path, script, up_ready_timeout_ms="20")


def test_the_first_failure_before_ready_is_the_answer(tmp_path: Path) -> None:
    def script(spec: ProcessSpec, count: int) -> list[ProcessEvent]:
        return [ProcessEnded(spec.name, "the store is away", 4)] if spec.name == "controller-1" else []

    with pytest.raises(UserError, match="the store is away") as refused:
        run(tmp_path, script)
    assert refused.value.exit_code == 4


class Agenda:
    """Events at their times; whoever waits for one moves the time."""

    def __init__(self, events: list[tuple[int, ProcessEvent]]) -> None:
        self.now_ms = 0
        self.events = events

    def get(self, timeout: float) -> ProcessEvent:
        until_ms = self.now_ms + round(timeout * 1_000)
        if not self.events or self.events[0][0] > until_ms:
            self.now_ms = until_ms
            raise queue.Empty
        self.now_ms, event = self.events.pop(0)
        return event


def killed_at_ms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, events: list[tuple[int, ProcessEvent]]) -> int | None:
    """When a broker is killed that was told to end at 0 and of which one hears this; None if it is not."""
    agenda, killed = Agenda(events), []
    monkeypatch.setattr(supervisor_module, "_now_ms", lambda: agenda.now_ms)
    settings = ApplianceSettings(data_dir=tmp_path, port=0, http_port=0, runtime="local").checked()
    runtime = ScriptedRuntime(lambda event: None, lambda spec, count: [])
    runtime.kill = lambda name: killed.append(agenda.now_ms)
    supervisor = Supervisor(settings, lambda post, lock: runtime, output=io.StringIO())
    supervisor._runtime, supervisor._events = runtime, agenda
    supervisor._running = {"broker-1", "controller-1"}
    assert supervisor._wait_until_ended({"broker-1"}, BROKERS_STOP_MS)
    return killed[0] if killed else None


def test_a_broker_that_says_nothing_is_killed_in_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    others = [(at, ProcessWorking("broker-2")) for at in range(0, 20_000, 1_000)]
    assert killed_at_ms(monkeypatch, tmp_path, others) == BROKERS_STOP_MS


def test_a_broker_that_closes_thousands_of_logs_is_given_more_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    events: list[tuple[int, ProcessEvent]] = [(at, ProcessWorking("broker-1")) for at in range(1_000, 40_000, 1_000)]
    assert killed_at_ms(monkeypatch, tmp_path, [*events, (45_000, ProcessEnded("broker-1", "", 0))]) is None


def test_but_not_for_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    events: list[tuple[int, ProcessEvent]] = [(at, ProcessWorking("broker-1")) for at in range(1_000, 400_000, 1_000)]
    assert killed_at_ms(monkeypatch, tmp_path, events) == BROKERS_STOP_MAX_MS
