from __future__ import annotations

from appliance.wire.api import APIS, ApiKey, api_of


def test_every_api_with_a_name_is_declared_under_it() -> None:
    for key in ApiKey:
        assert APIS[key].name.upper() == key.name.replace("_", "")


def test_every_declared_api_of_kafka_has_a_name() -> None:
    assert [key for key in APIS if key < 20_000] == sorted(ApiKey)


def test_request_and_response_agree_on_key_and_versions() -> None:
    for api in APIS.values():
        request, response = api.request.__wire__, api.response.__wire__
        assert request.api_key == response.api_key == api.key
        assert request.versions == response.versions == (api.min_version, api.max_version)
        assert request.flexible_from == response.flexible_from == api.flexible_from


def test_an_unstable_version_is_declared_but_not_counted_as_stable() -> None:
    assert (APIS[ApiKey.INIT_PRODUCER_ID].max_version, APIS[ApiKey.INIT_PRODUCER_ID].max_stable_version) == (6, 5)
    assert (APIS[ApiKey.FETCH].max_version, APIS[ApiKey.FETCH].max_stable_version) == (18, 18)


def test_an_unknown_key_has_no_api() -> None:
    assert api_of(4) is None
    assert api_of(-1) is None
