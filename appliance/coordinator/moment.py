"""What time it is, for a coordinator."""

from __future__ import annotations

from typing import NamedTuple


class Moment(NamedTuple):
    """One instant on two clocks.

    Time-outs run on the monotonic one, so that a jump of the host's clock expires nobody; stamps that go into records
    and are compared with retention come from the wall clock.
    """

    wall_ms: int
    monotonic_ms: int
