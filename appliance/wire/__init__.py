"""Bytes to messages and back: Kafka's wire protocol, declared once for all versions and compiled per version."""
