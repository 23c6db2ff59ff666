"""Servers that tests start beside them, and that end by themselves when the pipe to their parent closes."""

from __future__ import annotations

import subprocess


def end_by_pipe(process: subprocess.Popen[str], patience_s: float) -> None:
    """Close the pipe and wait for the end; after `patience_s` seconds it is killed."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    try:
        process.wait(timeout=patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=patience_s)
    process.stdout.close()
