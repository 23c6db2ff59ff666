"""Which of several limits holds."""

from __future__ import annotations

from appliance.quotas.table import Entity, find_limit

KEY = "producer_byte_rate"
IN_ORDER: list[Entity] = [
    (("client-id", "c"), ("user", "u")),
    (("client-id", None), ("user", "u")),
    (("user", "u"),),
    (("client-id", "c"), ("user", None)),
    (("client-id", None), ("user", None)),
    (("user", None),),
    (("client-id", "c"),),
    (("client-id", None),),
]


def test_the_most_special_limit_holds() -> None:
    for place in range(len(IN_ORDER)):
        quotas = {entity: {KEY: float(number)} for number, entity in enumerate(IN_ORDER) if number >= place}
        found = find_limit(quotas, KEY, "u", "c")
        assert found is not None
        assert found.value == place


def test_limits_of_others_do_not_count() -> None:
    quotas = {(("user", "other"),): {KEY: 1.0}, (("client-id", "other"),): {KEY: 1.0}, (("user", "u"),): {"else": 1.0}}
    assert find_limit(quotas, KEY, "u", "c") is None


def shared(entity: Entity, user: str, client: str) -> object:
    found = find_limit({entity: {KEY: 1.0}}, KEY, user, client)
    assert found is not None
    return found.shared_by


def test_a_users_clients_share_its_limit_and_defaults_are_for_each() -> None:
    assert shared((("user", "u"),), "u", "a") == shared((("user", "u"),), "u", "b")
    assert shared((("user", None),), "u", "a") == shared((("user", None),), "u", "b")
    assert shared((("user", None),), "u", "a") != shared((("user", None),), "v", "a")
    assert shared((("client-id", "a"),), "u", "a") == shared((("client-id", "a"),), "v", "a")
    assert shared((("client-id", None),), "u", "a") != shared((("client-id", None),), "u", "b")
    both: Entity = (("client-id", None), ("user", None))
    assert shared(both, "u", "a") != shared(both, "u", "b")
