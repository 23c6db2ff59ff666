from __future__ import annotations

import pytest

from appliance.base.errors import UserError
from appliance.security.jaas import parse_jaas


def test_an_entry_has_a_module_its_options_and_users() -> None:
    entry = parse_jaas(
        'org.apache.kafka.common.security.plain.PlainLoginModule required\n username="admin" password=\'a;"b\' '
        'user_admin="x\\"y" user_b.c=plain;'
    )
    assert entry.module.endswith("PlainLoginModule")
    assert entry.options["password"] == 'a;"b'
    assert entry.users == {"admin": 'x"y', "b.c": "plain"}
    assert parse_jaas("scram.Module required;").options == {}


@pytest.mark.parametrize(
    "text", ["", "Module", 'Module required user="secret"', 'Module maybe user="secret";', 'M required user "secret";']
)
def test_what_is_no_entry_is_refused_without_telling_secrets(text: str) -> None:
    with pytest.raises(UserError, match=r"sasl\.jaas\.config") as refused:
        parse_jaas(text)
    assert "secret" not in str(refused.value)


def test_a_quote_must_end() -> None:
    with pytest.raises(UserError, match="quote"):
        parse_jaas('Module required user="secret;')
