"""Closed segments on their way to the object store, and every reader's way back to them."""
