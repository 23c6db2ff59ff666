"""What every test shares: the peer, the rule about skips, and the last line of a run.

A test that skips tells nothing. On a developer's machine that is allowed; with CI set a skip is a failure, unless
`tests/skips.allow` names the test and says why.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.kafka_peer import KafkaPeer
from tests.support.second_try import try_again

# With several workers a group of tests stays on one of them, so that what costs much to start is started once. Other
# tests are grouped by file, unless a file says `xdist_group` itself. Groups start in the order of this list, the long
# ones first.
LONG_GROUPS = ("terraform", "spark", "ray", "java", "compat")

SKIPS_ALLOWED = Path(__file__).parent / "skips.allow"


def allowed_skips(text: str) -> list[tuple[str, str]]:
    """(pattern of node ids, reason) from lines `pattern # reason`; comments and empty lines say nothing."""
    lines = [line.strip() for line in text.splitlines()]
    pairs = [line.partition(" # ") for line in lines if line and not line.startswith("#")]
    return [(pattern.strip(), reason.strip()) for pattern, _, reason in pairs]


def skip_is_allowed(node_id: str) -> bool:
    return any(fnmatchcase(node_id, pattern) for pattern, _ in allowed_skips(SKIPS_ALLOWED.read_text()))


@cache
def group_of(path: Path) -> str:
    """What a file's tests share: the group that it names, its first long mark, else they are a group of their own."""
    text = path.read_text(encoding="utf-8")
    named = _NAMED_GROUP.search(text)
    if named:
        return named[1]
    return next((name for name in LONG_GROUPS if f"pytest.mark.{name}" in text), str(path))


_NAMED_GROUP = re.compile(r'xdist_group\("([a-z]+)"\)')


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        group = group_of(item.path)
        return LONG_GROUPS.index(group) if group in LONG_GROUPS else len(LONG_GROUPS)

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A group stays on one worker. (`--dist loadgroup` of pytest-xdist 3.8 does not see groups under pytest 9.)"""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(config.rootpath / nodeid.partition("::")[0])

    return ByGroup(config, log)


def in_ci() -> bool:
    return os.environ.get("CI", "") not in ("", "0", "false")


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if in_ci() and report.skipped and not hasattr(report, "wasxfail") and not skip_is_allowed(report.nodeid):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: {reason}\nA skip fails where CI is set, unless tests/skips.allow names it."


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Iterator[None]:
    report: pytest.TestReport = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Iterator[None]:
    report: pytest.CollectReport = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    try_again(terminalreporter)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """The counts alone on the last line, behind everything that pytest prints itself."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None or hasattr(config, "workerinput") or config.option.collectonly or config.option.help:
        return
    count = {kind: len(reports) for kind, reports in terminal.stats.items()}
    passed = count.get("passed", 0) + count.get("xfailed", 0)
    failed = count.get("failed", 0) + count.get("error", 0)
    print(f"{passed} passed, {failed} failed, {count.get('skipped', 0)} skipped", flush=True)


@pytest.fixture(scope="session")
def kafka_peer() -> Iterator[KafkaPeer]:
    """One Apache Kafka node for the whole run: use topics of your own."""
    with KafkaPeer() as peer:
        yield peer
