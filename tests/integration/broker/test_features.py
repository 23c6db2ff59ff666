"""Features of the cluster are lowered and raised, and brokers do as they say: here and after a restart."""

from __future__ import annotations

from pathlib import Path

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.controller.features import FEATURES, SAFE_DOWNGRADE, UPGRADE
from appliance.wire.messages.api_versions import ApiVersionsRequest
from appliance.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from appliance.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from appliance.wire.messages.share_fetch import ShareFetchRequest
from appliance.wire.messages.share_group_describe import ShareGroupDescribeRequest
from appliance.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from appliance.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from appliance.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.support.broker import RunningCluster, running_cluster

KINDS = ("group.version", "share.version", "streams.version")
HEARTBEATS = (ConsumerGroupHeartbeatRequest, ShareGroupHeartbeatRequest, StreamsGroupHeartbeatRequest)


def update(connection: Connection, level: int, kind: int, version: int = 2) -> UpdateFeaturesResponse:
    keys = [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name in KINDS]
    return connection.call(UpdateFeaturesRequest(feature_updates=keys), version)


def finalized(connection: Connection) -> dict[str, int]:
    answer = connection.call(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
    assert [row.name for row in answer.supported_features] == list(FEATURES)
    return {row.name: row.max_version_level for row in answer.finalized_features}


def served(connection: Connection) -> list[bool]:
    """Whether members of the three kinds of groups are heard, whatever is said to them."""
    codes = [connection.call(each(group_id="g", member_epoch=-1)).error_code for each in HEARTBEATS]
    return [code != ErrorCode.UNSUPPORTED_VERSION for code in codes]


def test_groups_of_a_kind_are_served_while_its_feature_is_in_force(tmp_path: Path) -> None:
    def connected(cluster: RunningCluster) -> Connection:
        return Connection("127.0.0.1", cluster.brokers[1].port)

    with running_cluster(tmp_path) as cluster, connected(cluster) as connection:
        assert all(served(connection))
        whole = finalized(connection)
        assert update(connection, 0, SAFE_DOWNGRADE).error_code == 0
        assert not any(served(connection))
    with running_cluster(tmp_path) as cluster, connected(cluster) as connection:
        assert finalized(connection) == {name: level for name, level in whole.items() if name not in KINDS}
        assert not any(served(connection))
        assert connection.call(ShareFetchRequest(group_id="g")).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert connection.call(ShareAcknowledgeRequest(group_id="g")).error_code == ErrorCode.UNSUPPORTED_VERSION
        (described,) = connection.call(ShareGroupDescribeRequest(group_ids=["g"])).groups
        assert described.error_code == ErrorCode.UNSUPPORTED_VERSION
        raised = update(connection, 1, UPGRADE, version=1)
        assert [(row.feature, row.error_code) for row in raised.results] == [(name, 0) for name in KINDS]
        assert finalized(connection) == whole
        assert all(served(connection))
