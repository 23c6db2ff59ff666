from __future__ import annotations

import pytest

from appliance.base.errors import ErrorCode
from appliance.coordinator.failures import told


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_clients_are_told_what_makes_them_find_the_coordinator_again(error: ErrorCode, code: ErrorCode) -> None:
    assert told(error) is code
