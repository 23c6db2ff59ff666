from __future__ import annotations

from pathlib import Path

import pytest

from appliance.base.config import BrokerConfig
from appliance.base.errors import UserError
from appliance.security.tls import ReloadingContext, TlsFiles, tls_files
from tests.support.certificates import Authority


def files_of(**properties: str) -> TlsFiles:
    return tls_files(BrokerConfig({name.replace("_", "."): text for name, text in properties.items()}), "SSL")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("keys"))


@pytest.mark.parametrize(
    ("standard", "openssl"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "ECDHE-ECDSA-AES128-SHA"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
    ],
)
def test_cipher_suites_may_have_the_standards_names(authority: Authority, standard: str, openssl: str) -> None:
    """All of these are OpenSSL's own pairs (`openssl ciphers -stdname`)."""
    context = files_of(
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(authority.issue("server", CN="s")),
        ssl_cipher_suites=standard,
    ).server_context()
    assert openssl in [one["name"] for one in context.get_ciphers()]


def test_the_suites_that_are_named_are_the_only_ones(authority: Authority) -> None:
    context = files_of(
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(authority.issue("server", CN="s")),
        ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_AES_256_GCM_SHA384",
        ssl_enabled_protocols="TLSv1.2",
    ).server_context()
    names = [one["name"] for one in context.get_ciphers() if not one["name"].startswith("TLS_")]
    assert names == ["ECDHE-ECDSA-AES256-GCM-SHA384"]
    with pytest.raises(UserError, match="cannot be used"):
        files_of(ssl_keystore_key="x", ssl_cipher_suites="ROT13").server_context()


def test_a_key_with_a_password_needs_it(authority: Authority) -> None:
    path = str(authority.issue("locked", password="secret", CN="s"))
    files_of(ssl_keystore_type="PEM", ssl_keystore_location=path, ssl_key_password="secret").server_context()
    for password in ({}, {"ssl_key_password": "other"}):
        with pytest.raises(UserError, match="cannot be used"):
            files_of(ssl_keystore_type="PEM", ssl_keystore_location=path, **password).server_context()


def test_a_context_is_made_anew_only_when_a_file_has_changed_and_can_be_used(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    path = authority.issue("server", CN="one")
    holder = ReloadingContext(
        files_of(ssl_keystore_type="PEM", ssl_keystore_location=str(path)), TlsFiles.server_context
    )
    first = holder.context
    assert not holder.reload_if_changed() and holder.context is first
    path.write_text("half a ke")
    assert not holder.reload_if_changed() and holder.context is first
    path.unlink()
    assert not holder.reload_if_changed() and holder.context is first
    authority.issue("server", CN="two")
    assert holder.reload_if_changed() and holder.context is not first
    assert not holder.reload_if_changed()


def test_a_listener_without_a_key_is_refused() -> None:
    with pytest.raises(UserError, match=r"ssl\.keystore\.location"):
        files_of().server_context()
