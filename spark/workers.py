"""Processes of Python that Spark uses for task after task.

Behind each task Spark has all objects searched for garbage, and the next task waits for it: some 20 ms, nearly all for
modules, which are never garbage. What is loaded by the end of a first task is taken out of the search.
"""

from __future__ import annotations

import functools
import gc
import os

REUSED_VARIABLE = "SPARK_REUSE_WORKER"
"""Spark sets it for workers that outlive a task."""


@functools.cache
def keep_what_is_loaded() -> None:
    """In a worker that is used again: what lives now is not searched for garbage any more. Once per process."""
    if REUSED_VARIABLE in os.environ:
        gc.collect()
        gc.freeze()
