"""The metadata log on S3: moto's server over HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from appliance.base.errors import ErrorCode
from tests.support.controller import ControllerProcess, LineOfABroker, wait_for
from tests.support.moto_server import CREDENTIALS, MotoServer

BUCKET = "metadata"


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with MotoServer() as server:
        environment = {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}"}
        client = boto3.client(
            "s3",
            endpoint_url=environment["AWS_ENDPOINT_URL"],
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            region_name=CREDENTIALS["AWS_DEFAULT_REGION"],
        )
        client.create_bucket(Bucket=BUCKET)
        yield environment


def test_topics_survive_a_killed_controller(s3: dict[str, str], tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/one"
    environment = {**os.environ, **s3}
    first = ControllerProcess(url, environment=environment, metadata_snapshot_interval_commits="5")
    line = None
    try:
        first.wait_until_active()
        line = LineOfABroker(1, [first.address], tmp_path / "broker-1")
        wait_for(line.is_unfenced, "the broker serves")
        for number in range(4):
            assert line.create_topic(f"t{number}") == ErrorCode.NONE
        wait_for(lambda: first.status().snapshot >= 4, "a snapshot is written")
        cluster_id = first.status().cluster_id
        first.kill()
        second = ControllerProcess(url, environment=environment, port=first.port)
        try:
            second.wait_until_active()
            wait_for(lambda: line.image.controller_epoch == 2, "the broker follows")
            assert line.create_topic("after") == ErrorCode.NONE
            status = second.status()
            assert (status.cluster_id, status.topics, status.store_state) == (cluster_id, 5, "ok")
        finally:
            second.close()
    finally:
        if line is not None:
            line.die()
        first.close()


def test_of_two_controllers_at_one_bucket_one_is_active(s3: dict[str, str]) -> None:
    environment = {**os.environ, **s3}
    controllers = [ControllerProcess(f"s3://{BUCKET}/two", controller_id=n, environment=environment) for n in (1, 2)]
    try:
        wait_for(lambda: any(c.answers() and c.status().active for c in controllers), "one is active", timeout_s=30)
        # The other has lost the race and ended with a line, or it came late and stands by.
        active = [c for c in controllers if c.answers() and c.status().active]
        assert len(active) == 1
    finally:
        for controller in controllers:
            controller.close()
