"""Transactions: who writes under which id, which partitions take part, and how each one ends. Pure."""
