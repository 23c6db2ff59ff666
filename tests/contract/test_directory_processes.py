"""The directory store among processes that die in the middle of a swap."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from appliance.tiering.directory import DirectoryStore

# Adds its own name and a number to the list, by swap, for as long as it lives; prints the numbers that were answered.
_SWAPPER = """
import json, sys
from pathlib import Path
from appliance.base.object_store import ETagMismatch
from appliance.tiering.directory import DirectoryStore
store, me, number = DirectoryStore(Path(sys.argv[1])), sys.argv[2], 0
print("ready", flush=True)
while True:
    read = store.get("list")
    entries = json.loads(read.data)
    try:
        store.swap("list", json.dumps([*entries, [me, number]]).encode(), read.etag)
    except ETagMismatch:
        continue
    print(number, flush=True)
    number += 1
"""


def test_no_answered_swap_is_lost_when_swappers_are_killed(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.create("list", b"[]")
    answered: list[list[object]] = []
    for generation in range(3):
        names = [f"{generation}-{n}" for n in range(3)]
        processes = {
            name: subprocess.Popen(
                [sys.executable, "-c", _SWAPPER, str(tmp_path), name],
                stdout=subprocess.PIPE,
                cwd=Path(__file__).parents[2],
                text=True,
            )
            for name in names
        }
        for process in processes.values():
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(0.15)
        for name, process in processes.items():
            process.kill()
            # Not `communicate`: it does not know of lines that `readline` has read ahead.
            assert process.stdout is not None
            answered += [[name, int(line)] for line in process.stdout.read().splitlines() if line.isdigit()]
            process.wait(10)
            process.stdout.close()
    entries = json.loads(store.get("list").data)
    assert len(answered) > 30
    assert [entry for entry in answered if entry not in entries] == []
    assert len(entries) == len({(name, number) for name, number in entries}), "nothing happened twice"
    assert len(entries) <= len(answered) + 9, "at most one swap of each killed process was done and not answered"
    DirectoryStore(tmp_path)
    assert list((tmp_path / ".tmp").iterdir()) == []
    assert [row.name for row in store.list("")] == ["list"]
