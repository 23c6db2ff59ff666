"""Each API that is served is compared with Apache Kafka's: in each version one success and two errors at least.

What the cases ask stands in `asked.json`, which their tests hold true (see tests/support/differential/asked.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from appliance.server.broker_api import broker_handlers
from appliance.server.handlers.api_versions import FIRST_OWN_API_KEY, served_versions
from appliance.wire.api import APIS, ApiKey
from tests.support.differential import all_cases  # noqa: F401
from tests.support.differential.acls import ACL_CASES
from tests.support.differential.asked import Counts, Tally, add, kafka_serves, read
from tests.support.differential.sasl import SASL_CASES
from tests.support.differential.sides import CASES
from tests.support.repo import REPO

SUCCESSES, ERRORS = 1, 2
COMPARED_ELSEWHERE = {
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "tests/compat/differential/test_telemetry.py",
    ApiKey.PUSH_TELEMETRY: "tests/compat/differential/test_telemetry.py",
}
"""Apache Kafka offers them only with a plugin, and has a server of its own there."""
ALL = range(100)
NOT_THERE_IS_NO_ERROR = "What is not there is no error there, and nothing else can be wrong."
WITHOUT: Mapping[tuple[int, str], tuple[range, str]] = {
    (ApiKey.PRODUCE, "success"): (range(3), "Apache Kafka names them for the sake of clients and does not serve them."),
    (ApiKey.PRODUCE, "errors"): (range(3), "Apache Kafka names them for the sake of clients and does not serve them."),
    (ApiKey.OFFSET_FETCH, "errors"): (range(9), NOT_THERE_IS_NO_ERROR),
    (ApiKey.DESCRIBE_GROUPS, "errors"): (range(6), NOT_THERE_IS_NO_ERROR),
    (ApiKey.DESCRIBE_LOG_DIRS, "errors"): (ALL, NOT_THERE_IS_NO_ERROR),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, "success"): (ALL, "With one broker nothing can be under way to another."),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, "errors"): (ALL, NOT_THERE_IS_NO_ERROR),
    (ApiKey.UNREGISTER_BROKER, "success"): (ALL, "The one broker that there is would have to go."),
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "errors"): (ALL, NOT_THERE_IS_NO_ERROR),
    (ApiKey.FIND_COORDINATOR, "errors"): (range(1), "It asks for groups only, and each name of a group is taken."),
    (ApiKey.LIST_GROUPS, "errors"): (ALL, NOT_THERE_IS_NO_ERROR),
    (ApiKey.API_VERSIONS, "errors"): (range(3), "The client says nothing of itself that could be wrong."),
    (ApiKey.DESCRIBE_CLUSTER, "errors"): (range(1), "There is nothing to be named that could be wrong."),
    (ApiKey.LIST_TRANSACTIONS, "errors"): (range(2), NOT_THERE_IS_NO_ERROR),
    (ApiKey.LIST_CONFIG_RESOURCES, "errors"): (range(1), "There is nothing to be named that could be wrong."),
}
"""By API and `success` or `errors`: the versions in which it cannot be had, and why."""


class _AnyBroker:
    """Stands for a broker of which handlers are only made."""

    def __getattr__(self, name: str) -> _AnyBroker:
        return self

    def __call__(self, *arguments: object) -> int:
        return 1_000


def served() -> dict[int, tuple[int, int]]:
    return served_versions(key for key in broker_handlers(_AnyBroker()) if key < FIRST_OWN_API_KEY)  # type: ignore[arg-type]


def asked() -> Tally:
    counted: Tally = {}
    for case in read().values():
        add(counted, case)
    return counted


def test_each_version_has_been_compared_in_success_and_in_error() -> None:
    counted, theirs = asked(), kafka_serves()
    missing: list[str] = []
    for key, (low, high) in sorted(served().items()):
        if key in COMPARED_ELSEWHERE:
            continue
        for version in range(max(low, theirs[key][0]), min(high, theirs[key][1]) + 1):
            counts = counted.get((key, version), Counts())
            place = f"{APIS[key].name} version {version}"
            if counts.successes < SUCCESSES and version not in excepted(key, "success"):
                missing.append(f"{place}: no success")
            if counts.errors < ERRORS and version not in excepted(key, "errors"):
                missing.append(f"{place}: {counts.errors} errors")
    assert missing == []


def excepted(key: int, what: str) -> range:
    return WITHOUT.get((key, what), (range(0), ""))[0]


def test_what_is_not_compared_has_a_reason_that_holds() -> None:
    counted, theirs = asked(), kafka_serves()
    assert all((REPO / path).exists() for path in COMPARED_ELSEWHERE.values())
    for (key, what), (versions, reason) in WITHOUT.items():
        low, high = theirs[key]
        found = {
            version: counted.get((key, version), Counts()) for version in range(low, high + 1) if version in versions
        }
        for version, one in found.items():
            enough = one.successes >= SUCCESSES if what == "success" else one.errors >= ERRORS
            assert not enough, f"{APIS[key].name} has its {what} by now in version {version}"
        assert found and len(reason.split()) > 4


def test_only_cases_that_there_are_count() -> None:
    assert set(read()) == {case.name for case in [*CASES, *ACL_CASES, *SASL_CASES]}
