"""Importing this makes `sides.CASES` whole."""

from tests.support.differential import (  # noqa: F401
    administration,
    configs,
    consumer_groups,
    groups,
    records,
    share_groups,
    share_state,
    streams_groups,
    topics,
    transactions,
)
