"""Access control lists beside Apache Kafka 4.3 with its standard authorizer.

The lists themselves in every version; and all cases of all APIs once more, asked by users who may do nothing, some
things, or everything but what is the cluster's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.support.compat import AGAINST_KAFKA
from tests.support.differential import (
    all_cases,  # noqa: F401
    asked,
    configs,
    consumer_groups,
    groups,
    transactions,
)
from tests.support.differential.acls import ACL_CASES, GRANTED, USERS, ActingSide, grant, guarded_server
from tests.support.differential.meant import MEANT
from tests.support.differential.sasl import SASL_CASES
from tests.support.differential.sides import CASES, Case, Difference, Meant, Side, differences, told
from tests.support.repo import REPO

pytestmark = [
    pytest.mark.java,
    pytest.mark.xdist_group("differential-acls"),
    pytest.mark.skipif(AGAINST_KAFKA, reason="it compares ours with Apache Kafka"),
]

DENIALS = (29, 30, 31, 53)
REFUSED_OTHERWISE = [
    Meant(
        r"(INCREMENTAL_)?ALTER_CONFIGS .* responses\[\d+\]\.error_code"
        r"|PRODUCE (magic 3|transactional without an id) .*|DESCRIBE_PRODUCERS an illegal topic .*"
        r"|SHARE_FETCH a group that is null .*",
        "Who may not alter configs, write, read in a share group, or see producers is told so also where the request "
        "is wrong; Kafka looks for some mistakes first.",
    ),
]
"""Only where ours is a denial."""
WRONG_FIRST = [
    Meant(
        r"DELETE_TOPICS by name and by id .*",
        "A topic that DeleteTopics names twice, by name and by id, is INVALID_REQUEST also for who may not delete it.",
    ),
    Meant(
        r"SHARE_ACKNOWLEDGE a topic that is missing .*",
        "A topic id that nobody has is UNKNOWN_TOPIC_ID by itself in ShareFetch, and where there is an authorizer in "
        "ShareAcknowledge; Kafka answers UNKNOWN_SERVER_ERROR to the whole request.",
    ),
    Meant(
        r"DESCRIBE_USER_SCRAM_CREDENTIALS .* results\[\d+\]",
        "Who may not see SCRAM credentials is told so once; Kafka says it of each user, too.",
    ),
]
ASKED_BY_ROOT = ("list_config_resources",)
"""Cases that compare what a super user has set beforehand, and wait for some of it only."""


@dataclass(frozen=True)
class Servers:
    kafka: dict[str, int]
    ours: dict[str, int]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as stack:
        kafka = stack.enter_context(guarded_server("kafka", tmp_path_factory.mktemp("kafka")))
        ours = stack.enter_context(guarded_server("appliance", tmp_path_factory.mktemp("ours")))
        for ports in (kafka, ours):
            side = Side("", "127.0.0.1", ports["PLAINTEXT"])
            grant(side, GRANTED)
            for key_type in (0, 1):
                side.find_coordinator("anything", key_type)
            side.close()
        yield Servers(kafka, ours)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a case waits for may never come where it is denied."""
    for module in (configs, consumer_groups, groups, transactions):
        for name in ("SETTLING_S", "PATIENCE_S"):
            monkeypatch.setattr(module, name, 0.5, raising=False)


def unexpected_of(kafka: Side, ours: Side) -> list[Difference]:
    return [found for found in differences(kafka, ours) if not any(one.covers(found) for one in MEANT)]


def compare_in_all_versions(case: Case, servers: Servers, listener: str) -> None:
    kafka, ours = (Side(name, "127.0.0.1", ports[listener]) for name, ports in vars(servers).items())
    unexpected: list[Difference] = []
    counted: asked.Tally = {}
    for version in case.versions_of(kafka, ours):
        for side in (kafka, ours):
            side.begin(f"{case.name}-{version}", version)
            case.run(side)
            side.end()
        assert ours.seen
        unexpected += unexpected_of(kafka, ours)
        asked.add(counted, asked.tally(kafka.answered))
    kafka.close()
    ours.close()
    assert not unexpected, told(unexpected)
    asked.keep(case.name, counted)


@pytest.mark.parametrize("case", ACL_CASES, ids=lambda case: case.name)
def test_lists_come_and_go_as_in_apache_kafka(servers: Servers, case: Case) -> None:
    compare_in_all_versions(case, servers, "PLAINTEXT")


@pytest.mark.parametrize("case", SASL_CASES, ids=lambda case: case.name)
def test_clients_make_themselves_known_as_to_apache_kafka(servers: Servers, case: Case) -> None:
    compare_in_all_versions(case, servers, "CLEAR")


def run_as_far_as_it_goes(case: Case, side: ActingSide, name: str, version: int) -> None:
    """A case that stumbles over a denial has asked all that it could."""
    side.begin(name, version)
    try:
        case.run(side)
    except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        pass
    finally:
        side.end()


@pytest.mark.compat
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("case", [one for one in CASES if one.name not in ASKED_BY_ROOT], ids=lambda case: case.name)
def test_who_may_not_is_told_so_as_by_apache_kafka(servers: Servers, case: Case, user: str) -> None:
    kafka, ours = (ActingSide(name, ports["CLEAR"], ports["PLAINTEXT"], user) for name, ports in vars(servers).items())
    version = case.versions_of(kafka, ours)[-1]
    for side in (kafka, ours):
        run_as_far_as_it_goes(case, side, f"{case.name.replace('_', '-')}-{user}", version)
    unexpected = [
        found
        for found in unexpected_of(kafka, ours)
        if not any(one.covers(found) and found.ours in DENIALS for one in REFUSED_OTHERWISE)
        and not any(one.covers(found) for one in WRONG_FIRST)
    ]
    kafka.close()
    ours.close()
    assert not unexpected, told(unexpected)


def test_what_is_meant_to_be_refused_otherwise_is_told() -> None:
    page = (REPO / "docs" / "differences.md").read_text()
    assert [one.reason for one in REFUSED_OTHERWISE + WRONG_FIRST if one.reason not in page] == []
