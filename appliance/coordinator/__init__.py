"""Decide, append, replay: a coordinator over one internal partition. Groups and transactions share it."""
