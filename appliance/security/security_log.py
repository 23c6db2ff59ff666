"""The security log: who came in, who was refused and who changed what, one line each.

It is a logger of its own, so that it can be kept apart.
"""

from __future__ import annotations

import logging

security_log = logging.getLogger("appliance.security.log")


def authenticated(who: str, how: str, peer: str, listener: str) -> None:
    """Somebody has shown who it is."""
    security_log.info("authenticated: %s by %s from %s on %s", who, how, peer, listener)


def refused(how: str, peer: str, listener: str, reason: str) -> None:
    """Somebody could not, or did not try in the right way."""
    security_log.warning("authentication failed: %s from %s on %s: %s", how or "no mechanism", peer, listener, reason)


def denied(who: str, host: str, operation: str, kind: str, name: str, api: str) -> None:
    """Somebody wanted what it may not."""
    security_log.warning("denied: %s at %s: %s on %s %s for %s", who, host, operation, kind, name, api)


def allowed(who: str, host: str, operation: str, kind: str, name: str, api: str) -> None:
    """Somebody was let do a change."""
    security_log.info("allowed: %s at %s: %s on %s %s for %s", who, host, operation, kind, name, api)
