"""The security log: who came in and who was refused, one line each, in a logger of its own that can be kept apart."""

from __future__ import annotations

import logging

security_log = logging.getLogger("appliance.security.log")


def authenticated(who: str, how: str, peer: str, listener: str) -> None:
    """Somebody has shown who it is."""
    security_log.info("authenticated: %s by %s from %s on %s", who, how, peer, listener)


def refused(how: str, peer: str, listener: str, reason: str) -> None:
    """Somebody could not, or did not try in the right way."""
    security_log.warning("authentication failed: %s from %s on %s: %s", how or "no mechanism", peer, listener, reason)
