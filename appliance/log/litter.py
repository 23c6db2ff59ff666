"""Deletions of segments that a crash has cut in two.

Retention renames the `.log` of each old segment away, from the oldest on; a helper thread removes the files later. A
power cut may keep a later rename and lose an earlier one, as long as nobody has flushed the folder. So the folder is
flushed before a renamed file is removed: while the first segments may still come back, the renamed file behind them
tells that they had to go, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import pairwise

from appliance.log.segment import Segment
from appliance.records.errors import CorruptBatch

logger = logging.getLogger(__name__)


def segments_that_came_back(segments: list[Segment], deleted: Iterable[int]) -> int:
    """How many of the first segments retention had deleted already, when those at `deleted` were.

    Such a segment ends where a deleted one began, and no other begins there.
    """
    count = 0
    gone = set(deleted)
    for number, (segment, following) in enumerate(pairwise(segments)):
        if any(segment.base_offset < offset < following.base_offset for offset in gone):
            end = _end_of(segment)
            if end in gone:
                logger.warning("%s: deleted before the crash, up to offset %d", segment.path, following.base_offset)
                count = number + 1
    return count


def _end_of(segment: Segment) -> int:
    end = segment.base_offset
    try:
        for _, header in segment.headers():
            end = header.next_offset
    except CorruptBatch:
        return -1
    return end
