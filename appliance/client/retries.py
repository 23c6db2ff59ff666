"""How often and how long an operation is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from appliance.base.clock import Clock
from appliance.base.errors import KafkaError
from appliance.base.randomness import Randomness

Sleep = Callable[[float], None]
"""Waits for so many seconds."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Up to `retry_limit` further attempts; waits double from `backoff_ms` to `backoff_max_ms`, give or take 20 %."""

    retry_limit: int = 10
    backoff_ms: int = 50
    backoff_max_ms: int = 1_000


class Retry:
    """The attempts of one operation.

    Args:
        policy: how often and with which waits.
        attempt_timeout_ms: for one attempt.
        timeout_ms: for the whole operation, waits included.
        clock, randomness, sleep: the seams.
    """

    def __init__(
        self,
        policy: RetryPolicy,
        attempt_timeout_ms: int,
        timeout_ms: int,
        clock: Clock,
        randomness: Randomness,
        sleep: Sleep = time.sleep,
    ) -> None:
        self._policy = policy
        self._attempt_timeout_ms = attempt_timeout_ms
        self._clock = clock
        self._randomness = randomness
        self._sleep = sleep
        self._deadline_ms = clock.monotonic_ms() + timeout_ms
        self._failures = 0

    def attempt_ms(self) -> int:
        """How long the attempt that runs now may still take, at least 1."""
        return max(1, min(self._attempt_timeout_ms, self._deadline_ms - self._clock.monotonic_ms()))

    def pause(self, failure: Exception) -> None:
        """Wait before the next attempt.

        Raises:
            the failure itself: trying again would not help, or attempts or time are used up.
        """
        if isinstance(failure, KafkaError) and not failure.code.retriable:
            raise failure
        wait_ms = min(self._policy.backoff_max_ms, self._policy.backoff_ms << min(self._failures, 16))
        wait_ms = round(wait_ms * self._randomness.uniform(0.8, 1.2))
        self._failures += 1
        if self._failures > self._policy.retry_limit or wait_ms >= self._deadline_ms - self._clock.monotonic_ms():
            failure.add_note(f"tried {self._failures} times")
            raise failure
        self._sleep(wait_ms / 1000)
