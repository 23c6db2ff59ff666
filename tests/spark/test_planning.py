"""The driver's questions to brokers of which one has just died."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.client.client import Client
from appliance.client.results import NewTopic
from spark.options import SourceOptions
from spark.planning import object_store_url
from tests.support.broker import running_cluster

pytestmark = pytest.mark.spark


def test_the_object_store_is_known_although_the_first_broker_has_died(tmp_path: Path) -> None:
    with running_cluster(tmp_path, brokers=2) as brokers, Client(brokers.bootstrap_servers) as client:
        client.create_topics([NewTopic("any", 1)])
        known = client.metadata(["any"])
        options = SourceOptions(brokers.bootstrap_servers, subscribe=("any",))
        assert set(known.brokers) == {1, 2}
        brokers.brokers[1].stop()
        assert object_store_url(options, client, known) == brokers.object_store
