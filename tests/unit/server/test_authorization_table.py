from __future__ import annotations

from appliance.authorizer.bindings import Operation
from appliance.server import broker_api
from appliance.server.authorization.table import FREE, RULES
from appliance.wire.api import APIS, ApiKey
from appliance.wire.messages.internal_access import ACT_AS
from appliance.wire.messages.internal_metadata import REPLICA_LOG_ENDS

FOR_BROKERS = {
    ACT_AS,
    REPLICA_LOG_ENDS,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
}
"""They have no rule, so nobody else may use them."""


class _Anything:
    """Stands for a broker of which handlers are only made."""

    def __getattr__(self, name: str) -> _Anything:
        return self

    def __call__(self, *arguments: object) -> int:
        return 1_000


def test_every_api_that_a_broker_serves_has_a_rule_or_is_meant_for_brokers() -> None:
    served = set(broker_api.broker_handlers(_Anything()))  # type: ignore[arg-type]
    assert {APIS[key].name for key in served - set(RULES)} == {APIS[key].name for key in FOR_BROKERS}


def test_of_a_controller_only_the_beginning_of_a_connection_is_for_everybody() -> None:
    assert set(FREE) == {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    assert Operation.CLUSTER_ACTION == 9
