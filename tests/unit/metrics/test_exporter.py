from __future__ import annotations

import socket
import urllib.request

import pytest

from appliance.base.errors import UserError
from appliance.metrics.broker_numbers import BrokerNumbers, PartitionNumbers, ReplicationNumbers
from appliance.metrics.collector import BrokerCollector
from appliance.metrics.exporter import Exporter
from appliance.metrics.latency_buckets import LatencyBuckets


def partition(topic: str, number: int, **changes: int) -> PartitionNumbers:
    numbers = PartitionNumbers(topic, number, True, False, 5, 50, 1_000, 20, 7, 700)
    for name, value in changes.items():
        setattr(numbers, name, value)
    return numbers


def scraped(numbers: BrokerNumbers) -> dict[str, float]:
    exporter = Exporter("127.0.0.1", 0, BrokerCollector(lambda: numbers))
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=10) as response:
            lines = response.read().decode().splitlines()
    finally:
        exporter.close()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }


def test_partitions_that_lack_replicas_have_the_names_that_alerts_know() -> None:
    found = scraped(BrokerNumbers(1, replication=ReplicationNumbers(1, 2, 3, 4, 5, 6)))
    assert found["kafka_server_replicamanager_underreplicatedpartitions"] == 1
    assert found["kafka_server_replicamanager_underminisrpartitioncount"] == 2
    assert found["kafka_server_replicamanager_reassigningpartitions"] == 3
    assert found["kafka_controller_kafkacontroller_globalpartitioncount"] == 4
    assert found["kafka_controller_kafkacontroller_offlinepartitionscount"] == 5
    assert found["kafka_controller_kafkacontroller_preferredreplicaimbalancecount"] == 6


def test_numbers_have_the_names_that_dashboards_know() -> None:
    numbers = BrokerNumbers(1, requests={"Produce": 9}, connections=3, bytes_received=77, has_lease=True)
    numbers.partitions = [partition("a", 0), partition("a", 1), partition("b", 0, is_leader=False, records_in=0)]
    found = scraped(numbers)
    assert found["kafka_server_replicamanager_partitioncount"] == 3
    assert found["kafka_server_replicamanager_leadercount"] == 2
    assert found['kafka_server_brokertopicmetrics_messagesin_total{topic="a"}'] == 14
    assert found['kafka_server_brokertopicmetrics_bytesin_total{topic="b"}'] == 700
    assert found['kafka_topic_partition_current_offset{partition="1",topic="a"}'] == 50
    assert found['kafka_log_log_size{partition="0",topic="b"}'] == 1_000
    assert found['kafka_network_requestmetrics_requests_total{request="Produce"}'] == 9
    assert found["kafka_server_socket_server_metrics_connection_count"] == 3
    assert found["appliance_received_bytes_total"] == 77
    assert found["appliance_broker_lease"] == 1


def test_the_tail_of_the_loops_lag_is_that_since_the_last_scrape() -> None:
    buckets = LatencyBuckets()
    told: list[float] = []

    def numbers() -> BrokerNumbers:
        return BrokerNumbers(1, loop_lag_counts=list(buckets.counts), loop_lag_total_us=buckets.total_us)

    collector = BrokerCollector(numbers)
    for durations in ([100] * 998 + [50_000] * 2, [200] * 1_000, []):
        for duration_us in durations:
            buckets.record(duration_us)
        samples = {
            (sample.name, sample.labels.get("le", "")): sample.value
            for metric in collector.collect()
            for sample in metric.samples
        }
        told.append(samples["appliance_event_loop_lag_p999_seconds", ""])
    assert 0.05 <= told[0] <= 0.0625
    assert 0.0002 <= told[1] <= 0.00025
    assert told[2] == 0
    assert samples["appliance_event_loop_lag_seconds_count", ""] == 2_000
    assert samples["appliance_event_loop_lag_seconds_bucket", "0.000128"] == 998


def test_each_scrape_reads_anew() -> None:
    numbers = BrokerNumbers(1)
    assert scraped(numbers)["appliance_log_write_errors_total"] == 0
    numbers.log_write_errors = 2
    assert scraped(numbers)["appliance_log_write_errors_total"] == 2


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UserError) as caught:
        Exporter("127.0.0.1", taken.getsockname()[1], BrokerCollector(lambda: BrokerNumbers(1)))
    assert caught.value.exit_code == 3
