"""A few failed tests of real processes are run once more, alone, at the end of a run where CI is set.

Such tests wait for real sockets, disks and other people's programs on a machine that others use too. Whoever fails
twice has failed. Whoever passes the second time is named as unsteady, with all that the first failure said: that is a
bug to be found, in the test or behind it, but none that keeps everybody else's change out. Tests of pure code fail at
once: nothing about them may depend on the day.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

SECOND_TRIES_MAX = 5
"""More failed tests than this are no accident."""

SECOND_TRY_TIMEOUT_S = 900

REAL_PARTS = tuple(f"tests/{name}/" for name in ("integration", "compat", "connectors", "spark", "soak", "terraform"))

_IS_SECOND_TRY = "SECOND_TRY"


def may_try_again(failed: Sequence[str], environment: dict[str, str]) -> bool:
    """Whether these failed tests (node ids) are few, and all of them of real processes."""
    in_ci = environment.get("CI", "") not in ("", "0", "false")
    if not in_ci or _IS_SECOND_TRY in environment or not 0 < len(set(failed)) <= SECOND_TRIES_MAX:
        return False
    return all(node_id.startswith(REAL_PARTS) for node_id in failed)


def try_again(terminal: Any) -> None:
    """Run the failed tests of pytest's terminal reporter once more; what passes counts as passed from now on."""
    failures = [*terminal.stats.get("failed", ()), *terminal.stats.get("error", ())]
    failed = sorted({report.nodeid for report in failures})
    environment = dict(os.environ)
    if not may_try_again(failed, environment):
        return
    terminal.section("second try, alone")
    unsteady = [node_id for node_id in failed if _passes(node_id, environment)]
    for node_id in unsteady:
        terminal.write_line(f"UNSTEADY {node_id}: failed at first (see above), passed alone")
    for kind in ("failed", "error"):
        terminal.stats[kind] = [report for report in terminal.stats.get(kind, ()) if report.nodeid not in unsteady]
        if not terminal.stats[kind]:
            del terminal.stats[kind]
    terminal.stats.setdefault("passed", []).extend(_last_of(failures, node_id) for node_id in unsteady)
    if len(unsteady) == len(failed):
        terminal._session.exitstatus = 0


def _passes(node_id: str, environment: dict[str, str]) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", node_id]
    try:
        code = subprocess.call(command, env={**environment, _IS_SECOND_TRY: "1"}, timeout=SECOND_TRY_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return False
    return code == 0


def _last_of(reports: Sequence[Any], node_id: str) -> Any:
    return [report for report in reports if report.nodeid == node_id][-1]
