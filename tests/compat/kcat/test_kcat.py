"""kcat as people use it: a pipe into a topic and out of it again."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.compat import CODECS, PATIENCE_S, Sample, Server, produce, read_topic, wait_until

pytestmark = [
    pytest.mark.xdist_group("compat"),
    pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed"),
]

START = 1_600_000_000_000


def kcat(server: Server, *arguments: str, stdin: bytes = b"") -> bytes:
    """What it wrote to standard output; it must end well."""
    command = ["kcat", "-b", server.bootstrap_servers, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture(scope="module")
def timed(server: Server) -> str:
    """Ten records, a second apart."""
    name = server.new_topic(retention_ms="-1")
    produce(server, name, [Sample(None, b"%d" % number, [], START + number * 1_000) for number in range(10)])
    return name


def test_brokers_and_topics_are_listed(server: Server) -> None:
    topic = server.new_topic(3)
    listed = json.loads(kcat(server, "-L", "-J"))
    assert sorted(broker["name"] for broker in listed["brokers"]) == sorted(server.bootstrap_servers.split(","))
    assert listed["controllerid"] in {broker["id"] for broker in listed["brokers"]}
    (found,) = [each for each in listed["topics"] if each["topic"] == topic]
    assert [part["partition"] for part in found["partitions"]] == [0, 1, 2]
    assert b"3 partitions" in kcat(server, "-L", "-t", topic)


@pytest.mark.parametrize("codec", CODECS)
def test_lines_go_in_and_come_out(server: Server, codec: str) -> None:
    topic = server.new_topic()
    lines = b"".join(b"key-%d:value %d \xc3\xa4\n" % (number % 7, number) for number in range(10_000))
    kcat(server, "-P", "-t", topic, "-K", ":", "-z", codec, stdin=lines)
    assert kcat(server, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-K", ":") == lines


@pytest.mark.parametrize("codec", CODECS)
def test_files_go_in_and_come_out_byte_by_byte(server: Server, tmp_path: Path, codec: str) -> None:
    topic = server.new_topic()
    contents = [random.Random(1).randbytes(900_000), b"\x00" * 900_000, bytes(range(256)) * 100]
    files = []
    for number, content in enumerate(contents):
        files.append(tmp_path / str(number))
        files[-1].write_bytes(content)
    kcat(server, "-P", "-t", topic, "-p", "0", "-z", codec, *map(str, files))
    for number, content in enumerate(contents):
        place = ("-p", "0", "-o", str(number), "-c", "1")
        assert kcat(server, "-C", "-t", topic, *place, "-q", "-e", "-f", "%s") == content


def test_keys_headers_and_null_values_go_in_and_come_out(server: Server) -> None:
    topic = server.new_topic()
    kcat(server, "-P", "-t", topic, "-K", ":", "-Z", "-H", "a=1", "-H", "b=2", stdin=b"key:value\nonly:\n")
    assert [message.value() for message in read_topic(server, topic)] == [b"value", None]
    shown = kcat(server, "-C", "-t", topic, "-e", "-q", "-Z", "-f", "%p %o %k %K %s %S %h\n")
    assert shown == b"0 0 key 3 value 5 a=1,b=2\n0 1 only 4 NULL -1 a=1,b=2\n"


@pytest.mark.parametrize(
    ("place", "values"),
    [
        ("beginning", b"0123456789"),
        ("7", b"789"),
        ("-2", b"89"),
        (f"s@{START + 4_000}", b"456789"),
        (f"s@{START + 4_001}", b"56789"),
        (f"s@{START - 1}", b"0123456789"),
        ("end", b""),
    ],
)
def test_reading_begins_at_an_offset_or_a_time(server: Server, timed: str, place: str, values: bytes) -> None:
    assert kcat(server, "-C", "-t", timed, "-o", place, "-e", "-q", "-f", "%s") == values


def test_reading_ends_at_a_time(server: Server, timed: str) -> None:
    between = ("-o", f"s@{START + 2_000}", "-o", f"e@{START + 5_000}")
    assert kcat(server, "-C", "-t", timed, *between, "-e", "-q", "-f", "%s@%T ") == b"".join(
        b"%d@%d " % (number, START + number * 1_000) for number in range(2, 5)
    )


def test_offsets_are_asked_by_time(server: Server, timed: str) -> None:
    assert kcat(server, "-Q", "-t", f"{timed}:0:{START + 3_500}").split()[-1] == b"4"


class Member:
    """`kcat -G`, writing what it reads into a file."""

    def __init__(self, server: Server, group_id: str, topic: str, output: Path) -> None:
        options = ("-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=200", "-u")
        command = ["kcat", "-b", server.bootstrap_servers, *options, "-f", "%p:%o\n", "-G", group_id, topic]
        self._output = output
        with output.open("wb") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=subprocess.PIPE)

    def read(self) -> list[bytes]:
        return self._output.read_bytes().split()

    def leave(self) -> None:
        """As with Ctrl-C: it commits and leaves the group."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(PATIENCE_S) == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def members() -> Iterator[list[Member]]:
    started: list[Member] = []
    yield started
    for member in started:
        member.kill()


def test_a_group_shares_a_topic_and_goes_on_where_it_ended(
    server: Server, group_id: str, tmp_path: Path, members: list[Member]
) -> None:
    topic = server.new_topic(4)

    def join() -> Member:
        members.append(Member(server, group_id, topic, tmp_path / f"member-{len(members)}"))
        return members[-1]

    def send(count: int) -> None:
        for partition in range(4):
            produce(server, topic, [b"%d" % number for number in range(count)], partition=partition)

    def read() -> list[bytes]:
        return [line for member in members for line in member.read()]

    send(10)
    first = join()
    wait_until(lambda: len(read()) >= 40)
    second = join()
    described = server.admin.describe_consumer_groups

    def shares() -> list[int]:
        members = described([group_id])[group_id].result(PATIENCE_S).members
        return [len(member.assignment.topic_partitions) for member in members]

    wait_until(lambda: shares() == [2, 2])
    send(10)
    wait_until(lambda: len(read()) >= 80)
    assert first.read() and second.read()
    first.leave()
    second.leave()
    send(5)
    join()
    wait_until(lambda: len(read()) >= 100)
    assert sorted(set(read())) == sorted(b"%d:%d" % (part, offset) for part in range(4) for offset in range(25))
    assert len(read()) == 100, "nothing is read twice"
