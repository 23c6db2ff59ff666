"""A cluster that can lose all of its brokers' disks, and come back over the same object store."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from appliance.base.errors import UserError
from appliance.cli.main import app
from tests.support.broker import RunningCluster, running_cluster

TIERING = {
    "tiering.task.interval.ms": "50",
    "tiering.groups.interval.ms": "200",
    "log.retention.check.interval.ms": "200",
    "tiering.retry.backoff.ms": "50",
}


@contextmanager
def cluster_over(folder: Path, store: Path, brokers: int, properties: Mapping[str, str]) -> Iterator[RunningCluster]:
    """A controller and brokers 1…n whose disks lie in `folder`, over the object store in `store`."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "object-store").exists():
        store.mkdir(exist_ok=True)
        (folder / "object-store").symlink_to(store)
    with running_cluster(folder, brokers, {**TIERING, **properties}) as cluster:
        yield cluster


def lose_disks(folder: Path) -> None:
    """Nothing of the brokers is left."""
    shutil.rmtree(folder)


def tier(*arguments: str) -> tuple[int, Any]:
    """`appliance tier …` with JSON: exit code and document."""
    result = CliRunner().invoke(app, ["tier", *arguments, "--format", "json"])
    if isinstance(result.exception, UserError):
        return result.exception.exit_code, None
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, json.loads(result.stdout) if result.stdout.strip() else None
