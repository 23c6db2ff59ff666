"""Who may come in when: pure, with a clock of our own."""

from __future__ import annotations

import pytest

from appliance.quotas import connections
from appliance.quotas.connections import ConnectionLimits, ConnectionQuotas, ListenerLimits, is_address, plain_address

INSIDE, OUTSIDE = "INSIDE", "OUTSIDE"
A, B = "10.0.0.1", "10.0.0.2"


def with_rate(rate: float, address: str | None = A) -> ConnectionQuotas:
    quotas = ConnectionQuotas(ConnectionLimits())
    quotas.set_ip_rates({(("ip", address),): {"connection_creation_rate": rate}})
    return quotas


def test_without_limits_nobody_waits() -> None:
    quotas = ConnectionQuotas(ConnectionLimits())
    for now_ms in range(1_000):
        assert quotas.wait_ms(OUTSIDE, now_ms) == quotas.address_wait_ms(A, now_ms) == 0
        assert quotas.has_room(OUTSIDE) and not quotas.too_many_of(A)
        quotas.opened(OUTSIDE, A)


def test_who_comes_faster_than_the_rate_waits_but_never_longer_than_a_window() -> None:
    quotas = ConnectionQuotas(ConnectionLimits(creation_rate=2))
    # Silence counts: ten windows of two may come in one burst.
    assert [quotas.wait_ms(OUTSIDE, 0) for _ in range(20)] == [0] * 20
    assert quotas.wait_ms(OUTSIDE, 0) == 500
    assert [quotas.wait_ms(OUTSIDE, 0) for _ in range(20)][-1] == 1_000
    assert quotas.wait_ms(OUTSIDE, 12_000) == 0


def test_listeners_share_one_rate_and_have_their_own_besides() -> None:
    limits = ConnectionLimits(creation_rate=2, listeners={OUTSIDE: ListenerLimits(creation_rate=1)})
    quotas = ConnectionQuotas(limits)
    assert [quotas.wait_ms(OUTSIDE, 0) for _ in range(11)] == [0] * 10 + [1_000]
    assert [quotas.wait_ms("THIRD", 0) for _ in range(10)] == [0] * 9 + [500]


def test_the_listener_of_brokers_has_only_its_own_limits() -> None:
    listeners = {INSIDE: ListenerLimits(max_connections=2), OUTSIDE: ListenerLimits(max_connections=5)}
    quotas = ConnectionQuotas(ConnectionLimits(1, creation_rate=1, protected=INSIDE, listeners=listeners))
    assert [quotas.wait_ms(INSIDE, 0) for _ in range(30)] == [0] * 30
    quotas.opened(OUTSIDE, A)
    assert not quotas.has_room(OUTSIDE) and not quotas.one_must_go
    assert quotas.has_room(INSIDE)
    quotas.opened(INSIDE, B)
    assert quotas.one_must_go
    quotas.closed(OUTSIDE, A)
    assert not quotas.one_must_go
    quotas.opened(INSIDE, B)
    assert not quotas.has_room(INSIDE), "its own limit"


def test_an_address_above_its_rate_is_not_let_in_and_does_not_count() -> None:
    quotas = with_rate(1)
    assert [quotas.address_wait_ms(A, 0) for _ in range(10)] == [0] * 10
    assert [quotas.address_wait_ms(A, 0) for _ in range(100)] == [1_000] * 100
    assert quotas.address_wait_ms(B, 0) == 0, "others have no limit"
    assert quotas.address_wait_ms(A, 11_001) == 0, "who was turned away has not used anything"


def test_the_default_gives_each_address_its_own_rate_and_a_name_goes_before_it() -> None:
    quotas = with_rate(1, None)
    for address in (A, B):
        assert [quotas.address_wait_ms(address, 0) for _ in range(11)][-2:] == [0, 1_000]
    both = {(("ip", None),): {"connection_creation_rate": 1.0}, (("ip", A),): {"connection_creation_rate": 100.0}}
    quotas.set_ip_rates(both)
    assert quotas.address_wait_ms(A, 0) == 0
    assert quotas.address_wait_ms(B, 0) == 1_000
    quotas.set_ip_rates({})
    assert quotas.address_wait_ms(B, 0) == 0


def test_quotas_of_users_are_none_of_addresses() -> None:
    quotas = ConnectionQuotas(ConnectionLimits())
    quotas.set_ip_rates({(("user", "a"),): {"producer_byte_rate": 1.0}, (("client-id", None),): {}})
    assert [quotas.address_wait_ms(A, 0) for _ in range(100)] == [0] * 100


def test_an_address_has_its_number_of_connections_with_exceptions() -> None:
    quotas = ConnectionQuotas(ConnectionLimits(max_connections_per_ip=1, overrides={B: 2}))
    for address, most in ((A, 1), (B, 2)):
        for _ in range(most):
            assert not quotas.too_many_of(address)
            quotas.opened(OUTSIDE, address)
        assert quotas.too_many_of(address)
        quotas.closed(OUTSIDE, address)
        assert not quotas.too_many_of(address)


def test_other_limits_hold_at_once_and_the_past_still_counts() -> None:
    quotas = ConnectionQuotas(ConnectionLimits())
    for _ in range(50):
        quotas.wait_ms(OUTSIDE, 0)
        quotas.opened(OUTSIDE, A)
    quotas.set_limits(ConnectionLimits(max_connections=50, creation_rate=5))
    assert quotas.wait_ms(OUTSIDE, 0) == 200
    assert not quotas.has_room(OUTSIDE)


def test_so_many_rates_are_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "RATES_KEPT_MAX", 3)
    quotas = with_rate(1, None)
    for number in range(100):
        assert quotas.address_wait_ms(f"10.0.1.{number}", 0) == 0
    assert len(quotas._ip_rates) == 3


@pytest.mark.parametrize(
    ("host", "plain"),
    [
        (A, A),
        ("::ffff:10.0.0.1", A),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("here:there", "here:there"),
    ],
)
def test_an_address_is_written_in_one_way(host: str, plain: str) -> None:
    assert plain_address(host) == plain
    assert is_address(host) == (host != "here:there")
