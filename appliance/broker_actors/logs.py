"""Logs go to standard error, one line each: time, level, process, part, text."""

from __future__ import annotations

import logging
import sys
import time

TALKATIVE = ("boto3", "botocore", "s3transfer", "urllib3", "fsspec", "s3fs", "adlfs", "azure", "google")
"""Libraries that tell at INFO what is of no interest unless one looks for it."""


def log_to_standard_error(process_name: str, level: str) -> None:
    """Set up logging for this process; `level` is debug, info, warning or error."""
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(
        level=level.upper(),
        stream=sys.stderr,
        force=True,
        format=f"%(asctime)s.%(msecs)03dZ %(levelname)s {process_name} %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
