from __future__ import annotations

import pytest

from appliance.security.exchanges import AuthenticationFailed, PlainExchange
from appliance.security.principals import Principal

USERS = {"alice": "secret"}


def test_a_name_with_its_password_is_that_user() -> None:
    for token in (b"\0alice\0secret", b"alice\0alice\0secret"):
        exchange = PlainExchange(USERS)
        assert exchange.evaluate(token) == b""
        assert exchange.principal == Principal("User", "alice")


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0bob\0secret", "Authentication failed: Invalid username or password"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"alice", ""),
        (b"\0a\0b\0c", ""),
        (b"\0\xff\0c", ""),
    ],
)
def test_everything_else_is_refused(token: bytes, told: str) -> None:
    exchange = PlainExchange(USERS)
    with pytest.raises(AuthenticationFailed) as refused:
        exchange.evaluate(token)
    assert refused.value.told == told and exchange.principal is None
