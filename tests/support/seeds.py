"""How many random days a simulation lives through: a few in `make test`, more with `make sim SEEDS=...`."""

from __future__ import annotations

import os


def seeds(few: int) -> range:
    """Seeds 0 to `few`, or as many as the variable SEEDS asks for."""
    return range(int(os.environ.get("SEEDS") or few))
