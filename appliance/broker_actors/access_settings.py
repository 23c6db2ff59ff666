"""The authorizer that the configs of a broker or controller ask for."""

from __future__ import annotations

import logging

from appliance.authorizer.authorizer import Authorizer, parse_super_users
from appliance.base.clock import Clock
from appliance.base.config import BrokerConfig
from appliance.base.errors import UserError
from appliance.client.security import ClientSecurity
from appliance.security.principals import ANONYMOUS, USER, Principal
from appliance.server.access import AccessControl

_log = logging.getLogger(__name__)


def access_control_of(config: BrokerConfig, clock: Clock) -> AccessControl | None:
    """None where everybody may do everything. Raises: UserError, `super.users` cannot be read."""
    if not config.get("authorizer.class.name"):
        return None
    try:
        super_users = parse_super_users(config.get("super.users"))
    except ValueError as error:
        raise UserError(f"super.users: {error}") from None
    authorizer = Authorizer(super_users, allow_without_acl=config.get("allow.everyone.if.no.acl.found"))
    return AccessControl(authorizer, clock)


def warn_of_locked_doors(control: AccessControl, security: ClientSecurity) -> None:
    """Say so where brokers are no super users to each other: unless lists allow it, nothing will work."""
    if security.sasl is not None:
        who = Principal(USER, security.sasl.username)
    elif security.tls is None:
        who = ANONYMOUS
    else:
        # Its name is in the certificate, and may be mapped.
        return
    if str(who) not in control.authorizer.super_users:
        _log.warning("super.users does not name %s, as which brokers reach each other and the controller", who)
