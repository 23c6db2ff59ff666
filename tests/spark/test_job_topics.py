"""Jobs between topics, in true Spark: pipeline, joins, audit, redrive, small files and SQL, by their command lines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession

from appliance.records.builder import NewRecord
from spark.jobs import audit, compact_files, join_streams, join_table, offline_load, pipeline, redrive, sql
from spark.jobs.common import read_batch
from spark.jobs.load_plan import LoadFolder
from spark.jobs.table_state import TablePartition, TableTooLarge
from spark.options import parse_options
from spark.sink_options import parse_sink_options
from tests.support.spark_jobs import JobRunner, JobsCluster, jobs_cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240), pytest.mark.xdist_group("spark")]

MINUTE_MS = 60_000
START_MS = 28_000_000 * MINUTE_MS


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobsCluster]:
    with jobs_cluster(tmp_path_factory.mktemp("jobs")) as found:
        yield found


@pytest.fixture
def run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> JobRunner:
    return JobRunner(spark, monkeypatch, capsys)


def at(minute: float, key: bytes | None, value: object) -> NewRecord:
    data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    return (START_MS + int(minute * MINUTE_MS), key, data, [])


def test_a_pipeline_chooses_changes_and_re_keys(cluster: JobsCluster, spark: SparkSession) -> None:
    cluster.topic("steps", 1)
    cluster.write("steps", 0, [at(n, b"k", {"origin": "JFK" if n % 2 else "EWR", "delay": n}) for n in range(20)])
    steps = pipeline.Steps("origin string, delay int", "delay >= 10", "origin", "to_json(struct(delay * 2 as twice))")
    frame = pipeline.pipeline(read_batch(spark, cluster.options("steps")), steps)
    found = sorted((bytes(row["key"], "ascii"), json.loads(row["value"])["twice"]) for row in frame.collect())
    assert found == sorted((b"JFK" if n % 2 else b"EWR", 2 * n) for n in range(10, 20))
    same = pipeline.pipeline(read_batch(spark, cluster.options("steps")), pipeline.Steps())
    assert same.columns == ["key", "value", "timestamp"] and same.count() == 20


@pytest.mark.soak
def test_a_pipeline_goes_on_from_its_checkpoint_and_keeps_headers_and_times(
    cluster: JobsCluster, run: JobRunner, tmp_path: Path
) -> None:
    source, target = cluster.topic("raw"), cluster.topic("by-origin", 3)

    def write(numbers: range) -> None:
        for n in numbers:
            record = (START_MS + n, b"%d" % n, b'{"origin": "%s", "delay": %d}' % (b"JFK" if n % 2 else b"EWR", n), [])
            cluster.write(source, n % 2, [(*record[:3], [("trace", b"%d" % n)])])

    write(range(20))
    given = cluster.arguments(source, "--to", target, "--schema", "origin string, delay int", "--where", "delay >= 10")
    given += ["--key", "origin", "--checkpoint", str(tmp_path)]
    assert run(pipeline.main, [*given, "--dry-run"])["columns"] == ["key", "value", "timestamp", "headers"]
    assert cluster.rows(target) == []
    assert run(pipeline.main, given)["rows"] == 20
    assert [batch["rows"] for batch in run.progress if "rows" in batch] == [20]
    write(range(20, 30))
    assert run(pipeline.main, given)["rows"] == 10
    rows = cluster.rows(target)
    assert Counter(row["key"] for row in rows) == {b"JFK": 10, b"EWR": 10}
    assert len({(row["key"], row["partition"]) for row in rows}) == 2, "a key has one partition"
    assert sorted(json.loads(row["value"])["delay"] for row in rows) == list(range(10, 30))
    assert all(row["headers"] == [{"key": "trace", "value": b"%d" % json.loads(row["value"])["delay"]}] for row in rows)
    assert {int(row["timestamp"].timestamp() * 1000) for row in rows} == {START_MS + n for n in range(10, 30)}


def test_two_streams_join_where_their_times_are_near(cluster: JobsCluster, run: JobRunner, tmp_path: Path) -> None:
    for name in ("orders", "payments", "paid"):
        cluster.topic(name, 1)
    cluster.write("orders", 0, [at(0, b"a", b"o1"), at(1, b"b", b"o2"), at(2, None, b"o3"), at(30, b"a", b"o4")])
    cluster.write("payments", 0, [at(4, b"a", b"p1"), at(20, b"b", b"p2"), at(26, b"a", b"p3"), at(90, b"z", b"p9")])
    given = cluster.arguments("orders", "--with", "payments", "--to", "paid", "--within", "5 minutes")
    facts = run(join_streams.main, [*given, "--checkpoint", str(tmp_path)])
    assert facts["rows"] == 8 and facts["batches"] >= 1
    assert [batch["rows"] for batch in run.progress if batch.get("rows")] == [8]
    found = sorted((row["key"], *json.loads(row["value"]).values()) for row in cluster.rows("paid"))
    assert found == [(b"a", "o1", "p1"), (b"a", "o4", "p3")]


@pytest.mark.soak
def test_what_comes_in_a_later_run_joins_with_what_is_kept(
    cluster: JobsCluster, run: JobRunner, tmp_path: Path
) -> None:
    for name in ("asked", "answered", "both"):
        cluster.topic(name, 1)
    given = cluster.arguments("asked", "--with", "answered", "--to", "both", "--how", "left_outer")
    cluster.write("asked", 0, [at(0, b"a", b"q1"), at(1, b"b", b"q2")])
    cluster.write("answered", 0, [at(2, b"z", b"r0")])
    run(join_streams.main, [*given, "--checkpoint", str(tmp_path)])
    cluster.write("asked", 0, [at(200, b"c", b"q3")])
    cluster.write("answered", 0, [at(3, b"a", b"r1"), at(200, b"y", b"r2")])
    run(join_streams.main, [*given, "--checkpoint", str(tmp_path)])
    rows = [(row["key"], json.loads(row["value"])) for row in cluster.rows("both")]
    expected = [(b"a", {"left": "q1", "right": "r1"}), (b"b", {"left": "q2"})]
    assert sorted(rows, key=lambda row: row[0]) == expected


def test_records_join_the_partition_of_a_table_that_has_their_keys(cluster: JobsCluster, spark: SparkSession) -> None:
    for name, partitions in (("clicks", 3), ("users", 3), ("odd", 2)):
        cluster.topic(name, partitions)
    keys = [b"u%d" % n for n in range(12)]
    cluster.write_by_key("users", 3, [at(0, key, b"name of " + key) for key in keys])
    cluster.write_by_key("users", 3, [at(5, keys[0], b"new name"), at(5, keys[1], None)])
    cluster.write_by_key("clicks", 3, [at(minute, key, b"c%d" % minute) for key in keys for minute in (4, 6)])
    frame = read_batch(spark, cluster.options("clicks"))
    table = join_table.table_options({"kafka.bootstrap.servers": cluster.servers}, "users")
    joined = join_table.as_record(join_table.join_table(frame, table, as_of=True)).collect()
    rows = [(bytes(row["key"]), *json.loads(row["value"]).values()) for row in joined]
    first = {(keys[0], "c4", "name of u0"), (keys[0], "c6", "new name"), (keys[1], "c4", "name of u1")}
    others = {(key, f"c{minute}", f"name of {key.decode()}") for key in keys[2:] for minute in (4, 6)}
    assert sorted(rows) == sorted(first | others)
    cells = join_table.join_table(frame, table, "left_outer").select("key", "table_value").toArrow()
    found = Counter(zip(*(column.to_pylist() for column in cells.columns), strict=True))
    expected = {(key, b"name of " + key): 2 for key in keys[2:]}
    assert found == {**expected, (keys[0], b"new name"): 2, (keys[1], None): 2}
    with pytest.raises(join_table.NotCoPartitioned, match="odd has 2 partitions"):
        join_table.check_co_partitioned(parse_options(cluster.options("odd"), streaming=True), table)


def test_a_table_is_known_at_any_time() -> None:
    table = TablePartition(as_of=True)
    table.take([(b"a", b"1", 0, 10), (b"a", b"3", 1, 30), (b"a", b"2", 2, 20), (b"a", None, 3, 40), (None, b"x", 4, 0)])
    found = [(cell := table.at(b"a", time)) and cell.value for time in (9, 10, 19, 25, 30, 39, 40)]
    assert found == [None, b"1", b"1", b"2", b"3", b"3", None]
    latest = TablePartition(as_of=False, rows_max=1)
    latest.take([(b"a", b"1", 0, 50), (b"a", b"2", 1, 10)])
    cell = latest.at(b"a", 0)
    assert cell is not None and cell.value == b"2", "offsets decide what is the latest"
    with pytest.raises(TableTooLarge):
        latest.take([(b"b", b"1", 2, 0)])


def test_an_audit_counts_each_record_in_its_bucket_and_tier(
    cluster: JobsCluster, run: JobRunner, tmp_path: Path
) -> None:
    cluster.topic("counted")
    for partition in (0, 1):
        cluster.write("counted", partition, [at(minute, None, b"x") for minute in range(0, 150, 5)])
    facts = run(audit.main, cluster.arguments("counted", "--out", str(tmp_path)))
    assert (facts["records"], facts["topics"]) == (60, {"counted": {"hot": 60}})
    table = parquet.read_table(list(tmp_path.glob("*.parquet"))).to_pylist()
    buckets = {(row["partition"], int(row["bucket"].timestamp() * 1000) - START_MS): row for row in table}
    hour = 60 * MINUTE_MS
    start = START_MS // hour * hour - START_MS
    expected = Counter((start + (minute * MINUTE_MS - start) // hour * hour) for minute in range(0, 150, 5))
    for partition in (0, 1):
        assert {begin: row["records"] for (p, begin), row in buckets.items() if p == partition} == expected
    assert min(row["first_offset"] for row in table) == 0 and max(row["last_offset"] for row in table) == 29


@pytest.mark.soak
def test_dead_letters_go_back_to_where_they_came_from_once(
    cluster: JobsCluster, run: JobRunner, tmp_path: Path
) -> None:
    for name in ("letters", "home-1", "home-2", "lost"):
        cluster.topic(name)
    records = []
    for n in range(40):
        headers = [("own", b"%d" % n), (redrive.ERRORS_TOPIC, b"home-%d" % (n % 2 + 1))]
        records.append((START_MS + n, b"k%d" % n, b"%d" % n, headers if n % 10 else [("own", b"%d" % n)]))
    for partition in (0, 1):
        cluster.write("letters", partition, records[partition::2])
    given = cluster.arguments("letters", "--back", "--state", str(tmp_path), "--option", "maxRecordsPerPartition=8")
    with pytest.raises(Exception, match="has no header"):
        redrive.main(given)
    given += ["--to", "lost"]
    assert run(redrive.main, [*given, "--dry-run"])["resumed"] is True
    facts = run(redrive.main, given)
    # Ranges that were sent before the one that failed are not sent again.
    assert facts["resumed"] and facts["ranges"] == 6
    assert run(redrive.main, given)["ranges"] == 0, "there is nothing new"
    expected = {"lost": range(0, 40, 10), "home-1": [n for n in range(0, 40, 2) if n % 10], "home-2": range(1, 40, 2)}
    for topic, numbers in expected.items():
        rows = cluster.rows(topic)
        assert sorted(int(row["value"]) for row in rows) == list(numbers), topic
        for row in rows:
            names = [header["key"] for header in row["headers"]]
            assert names == ["own", redrive.FROM]
            place = f"letters-{int(row['value']) % 2}@{int(row['value']) // 2}"
            assert row["headers"][-1]["value"] == place.encode()


def test_a_range_is_sent_again_with_its_times_and_a_run_that_died_is_finished(
    cluster: JobsCluster, run: JobRunner, spark: SparkSession, tmp_path: Path
) -> None:
    cluster.topic("history", 1)
    cluster.topic("again", 1)
    cluster.write("history", 0, [at(n, b"k", b"%d" % n) for n in range(100)])
    edges = {"startingOffsets": '{"history":{"0":20}}', "endingOffsets": '{"history":{"0":70}}'}
    source = parse_options(cluster.options("history", maxRecordsPerPartition="10", **edges))
    sink = parse_sink_options(
        {"kafka.bootstrap.servers": cluster.servers, "topic": "again", "delivery": "exactly_once"}
    )
    to = redrive.Destination("again", keep_timestamps=True)
    first = redrive.redrive(spark, source, sink, to, str(tmp_path))
    assert (first["records"], first["ranges"], first["resumed"]) == (50, 5, False)
    # As if it had died before it noted its end.
    (tmp_path / "_load" / "plan-00000000.done").unlink()
    second = redrive.redrive(spark, source, sink, to, str(tmp_path))
    assert (second["resumed"], second["records"], second["ranges_before"]) == (True, 0, 5)
    rows = cluster.rows("again")
    assert sorted(int(row["value"]) for row in rows) == list(range(20, 70))
    assert all(int(row["timestamp"].timestamp() * 1000) == at(int(row["value"]), b"", b"")[0] for row in rows)


def test_small_files_become_one_and_a_merge_that_died_is_finished(
    cluster: JobsCluster, run: JobRunner, spark: SparkSession, tmp_path: Path
) -> None:
    cluster.topic("small")
    options = parse_options(cluster.options("small", maxRecordsPerPartition="10"))
    for partition in (0, 1):
        cluster.write("small", partition, [at(n, None, b"%d" % (partition * 100 + n)) for n in range(50)])
    offline_load.offline_load(spark, options, str(tmp_path))

    def files() -> list[str]:
        return sorted(path.name for path in (tmp_path / "small").rglob("*.parquet") if path.name[0] != "_")

    def loaded() -> list[int]:
        return [int(row["value"]) for row in spark.read.parquet(str(tmp_path / "small")).orderBy("timestamp").collect()]

    assert len(files()) == 10
    folder = LoadFolder.of(str(tmp_path))
    merges = compact_files.plan_merges(compact_files._files_of(folder), 1 << 20)
    assert run(compact_files.main, ["--out", str(tmp_path), "--dry-run"])["files"] == len(merges) == 2
    # One run died when the hidden file was whole and a source was gone.
    folder.write_whole(compact_files.PLAN, b"[" + b",".join(map(encode, merges)) + b"]")
    compact_files.Merger(str(tmp_path))._write(folder, merges[0])
    (tmp_path / merges[0].sources[0].name).unlink()
    facts = run(compact_files.main, ["--out", str(tmp_path)])
    assert (facts["resumed"], facts["files_before"], facts["records"]) == (True, 10, 100)
    assert files() == [f"{0:020d}-{50:020d}.parquet"] * 2
    assert sorted(loaded()) == [*range(50), *range(100, 150)]
    assert run(compact_files.main, ["--out", str(tmp_path)])["files"] == 0
    cluster.write("small", 0, [at(60, None, b"60")])
    assert offline_load.offline_load(spark, options, str(tmp_path))["records"] == 1, "the load goes on where it was"


def encode(merge: compact_files.Merge) -> bytes:
    import msgspec

    return msgspec.json.encode(merge)


def test_topics_are_tables_for_sql(cluster: JobsCluster, run: JobRunner) -> None:
    cluster.topic("web.visits")
    cluster.topic("pages-of", 1)
    for n in range(30):
        value = {"page": f"p{n % 3}", "ms": n, **({"share": 0.5} if n % 2 else {})}
        cluster.write("web.visits", n % 2, [at(n, b"k%d" % n, value)])
    cluster.write("web.visits", 0, [at(99, b"odd", b"no JSON")])
    cluster.write("pages-of", 0, [at(0, None, {"page": f"p{n}", "tags": [n]}) for n in range(2)])
    query = (
        "select tags[0] as tag, count(*) as visits, sum(ms) as ms, avg(share) as share, max(web_visits._offset) as last"
        " from web_visits join pages_of using (page) group by all order by tag"
    )
    facts = run(sql.main, cluster.arguments("web.visits,pages-of", "--query", query))
    assert facts["views"] == {"web.visits": "web_visits", "pages-of": "pages_of"}
    expected = [{"tag": tag, "visits": 10, "ms": sum(range(tag, 30, 3)), "share": 0.5} for tag in (0, 1)]
    found = [json.loads(line) for line in run.lines]
    assert [{name: row[name] for name in row if name != "last"} for row in found] == expected
    # A view reads what is there when it is asked.
    given = cluster.arguments("web.visits", "--schema", "web.visits=page string", "--query")
    assert run(sql.main, [*given, "select count(page) as n, count(*) as m from web_visits"])["rows"] == 1
    assert json.loads(run.lines[0]) == {"n": 30, "m": 31}
