from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.base.errors import UserError
from appliance.broker_actors.data_folder import DataFolder


def test_what_is_remembered_is_there_at_the_next_start(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "new" / "data")
    folder.state.controller_ports = [20_001, 20_002]
    folder.state.placement = {"1": "node-a"}
    folder.save()
    folder.close()
    again = DataFolder(tmp_path / "new" / "data")
    assert (again.state.controller_ports, again.state.placement) == ([20_001, 20_002], {"1": "node-a"})
    again.close()


def test_two_cannot_hold_one_folder(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    with pytest.raises(UserError, match=rf"in use by another appliance \(process {os.getpid()}\)") as refused:
        DataFolder(tmp_path)
    assert refused.value.exit_code == 3
    folder.close()
    DataFolder(tmp_path).close()


def test_a_folder_is_held_as_long_as_a_child_lives(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        pass_fds=[folder.lock_descriptor],
    ) as child:
        folder.close()
        with pytest.raises(UserError, match="in use"):
            DataFolder(tmp_path)
        child.communicate()
    DataFolder(tmp_path).close()


def test_the_port_that_an_appliance_of_one_controller_wrote_is_found(tmp_path: Path) -> None:
    (tmp_path / "appliance.json").write_text('{"version": 1, "controller_port": 20001, "placement": {}}')
    folder = DataFolder(tmp_path)
    assert folder.state.controller_ports == [20_001]
    folder.close()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"version": 1}', '{"version": 1, "controller_port": "x", "placement": {}}']
)
def test_a_state_that_cannot_be_read_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "appliance.json").write_text(content)
    with pytest.raises(UserError, match=r"appliance\.json cannot be read") as refused:
        DataFolder(tmp_path)
    assert refused.value.exit_code == 3


def test_a_state_of_a_newer_version_is_not_overwritten(tmp_path: Path) -> None:
    newer = json.dumps({"version": 2})
    (tmp_path / "appliance.json").write_text(newer)
    with pytest.raises(UserError, match="has version 2"):
        DataFolder(tmp_path)
    assert (tmp_path / "appliance.json").read_text() == newer


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is not usable") as refused:
        DataFolder(tmp_path / "file" / "below")
    assert refused.value.exit_code == 3
