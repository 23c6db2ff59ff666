"""Sink connectors, one file each."""
