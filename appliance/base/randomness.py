"""The randomness seam."""

from __future__ import annotations

import os
import random
import uuid
from typing import Protocol


class Randomness(Protocol):
    """Where chance comes from; passed in by the constructor, so that a seed can replay a run."""

    def random_bytes(self, count: int) -> bytes:
        """`count` random bytes."""

    def uniform(self, low: float, high: float) -> float:
        """A number between `low` and `high`, for jitter."""


class SystemRandomness:
    """The operating system's randomness."""

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def uniform(self, low: float, high: float) -> float:
        return random.uniform(low, high)


class SeededRandomness:
    """The same numbers for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


def random_uuid(randomness: Randomness) -> uuid.UUID:
    """A version 4 UUID from the given source."""
    return uuid.UUID(bytes=randomness.random_bytes(16), version=4)
