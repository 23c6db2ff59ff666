"""Workers that Spark uses again search for garbage among what came after their first task only."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.repo import REPO

PROGRAM = """
import gc
from spark.source import ApplianceDataSource
source = ApplianceDataSource({})
first = gc.get_freeze_count()
ApplianceDataSource({})
print(first > 10_000, first == 0, gc.get_freeze_count() == first)
"""


@pytest.mark.parametrize(("variable", "said"), [("1", "True False True"), (None, "False True True")])
def test_only_a_worker_that_is_used_again_keeps_what_it_has_loaded(variable: str | None, said: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_REUSE_WORKER"}
    if variable is not None:
        environment["SPARK_REUSE_WORKER"] = variable
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == said
