from __future__ import annotations

import base64

import pytest

from appliance.security.scram import (
    ScramClient,
    ScramCredential,
    ScramFailed,
    ScramMechanism,
    ScramServer,
    credential_of,
    salted,
)

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def credential(mechanism: ScramMechanism, password: str = "pencil") -> ScramCredential:
    return credential_of(mechanism, salted(mechanism, password, SALT, 4096), SALT, 4096)


def test_the_example_of_rfc_7677_comes_out() -> None:
    server = ScramServer(SHA_256, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert server.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == "user"
    challenge = server.challenge(credential(SHA_256))
    assert challenge == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    client = ScramClient(SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    final = client.final(challenge)
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    proof = server.final(final)
    assert proof == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client.verify(proof)


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_both_sides_agree_on_names_with_commas_and_refuse_another_password(mechanism: ScramMechanism) -> None:
    for password, fits in (("right", True), ("wrong", False)):
        server, client = ScramServer(mechanism, "server"), ScramClient(mechanism, "a,=b", password, "client")
        assert server.first(client.first()) == "a,=b"
        final = client.final(server.challenge(credential(mechanism, "right")))
        if fits:
            client.verify(server.final(final))
        else:
            with pytest.raises(ScramFailed, match="password"):
                server.final(final)


@pytest.mark.parametrize(
    "first",
    [b"", b"\xff", b"y,,n=user,r=x", b"n,a=other,n=user,r=x", b"n,,n=us=er,r=x", b"n,,n=user", b"n,,n=user,r=a b"],
)
def test_a_first_message_that_cannot_be_is_refused(first: bytes) -> None:
    with pytest.raises(ScramFailed):
        ScramServer(SHA_256, "s").first(first)


def test_a_proof_for_another_exchange_is_refused() -> None:
    server, client = ScramServer(SHA_256, "one"), ScramClient(SHA_256, "user", "pencil", "c")
    server.first(client.first())
    other = ScramServer(SHA_256, "two")
    other.first(client.first())
    server.challenge(credential(SHA_256))
    final = client.final(other.challenge(credential(SHA_256)))
    with pytest.raises(ScramFailed, match="nonce"):
        server.final(final)
    for nonsense in (b"", b"c=biws,r=cone", b"c=biws,r=cone,p=AAAA", b"c=biws,r=cone,p=A", b"c=biws,r=cone,p=A=="):
        with pytest.raises(ScramFailed):
            server.final(nonsense)


def test_nobody_can_be_challenged_who_is_not_there() -> None:
    server = ScramServer(SHA_256, "s")
    server.first(b"n,,n=ghost,r=x")
    with pytest.raises(ScramFailed, match="no user ghost"):
        server.challenge(None)


def test_a_client_believes_no_server_that_asks_for_little_or_does_not_know_the_password() -> None:
    client = ScramClient(SHA_256, "user", "pencil", "c")
    for challenge in (b"r=other,s=AAAA,i=4096", b"r=cx,s=AAAA,i=1", b"nothing"):
        with pytest.raises(ScramFailed):
            client.final(challenge)
    client.final(b"r=cx,s=AAAA,i=4096")
    with pytest.raises(ScramFailed):
        client.verify(b"v=AAAA")
