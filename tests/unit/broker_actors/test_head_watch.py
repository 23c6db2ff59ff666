"""Whether Ray's head takes connections is told to whoever asks an actor's process."""

from __future__ import annotations

import socket

import pytest

from appliance.broker_actors import ray_actors
from appliance.broker_actors.ray_actors import HeadWatch
from tests.support.replicated import until


def test_a_head_that_is_away_is_told_of_until_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_actors, "HEAD_LOOK_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        watch = HeadWatch(f"127.0.0.1:{port}")
        listener.accept()[0].close()
        assert watch.problem() == ""
    until(watch.problem, "the head to be missed")
    assert f"127.0.0.1:{port} does not answer" in watch.problem()
    with socket.create_server(("127.0.0.1", port)):
        until(lambda: watch.problem() == "", "the head to be found")


def test_without_ray_there_is_nothing_to_tell() -> None:
    assert HeadWatch("").problem() == ""
