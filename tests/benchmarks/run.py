"""`make bench`: Apache Kafka and one broker of ours, side by side on this machine, load by load in turn.

    python -m tests.benchmarks.run [--quick] [--pairs N] [--only NAME ...] [--kafka-alone] [--print]

Both are warmed with the same requests. Then each load runs in pairs, first one server, then the other, and in the next
pair the other way round; a ratio is of one pair, so of the same minute. Figures go into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.benchmarks.figures import LOADS, Load, run_client
from tests.benchmarks.report import BEGIN, END, Pair, section, with_section
from tests.benchmarks.servers import Appliance, BenchmarkedServer, Kafka, SideBySide
from tests.support.java import find_java
from tests.support.repo import PACKAGES, REPO

DOCUMENT = REPO / "docs" / "benchmarks.md"
PAIRS, QUICK_PAIRS = 5, 2
WARM_UP_REQUESTS, QUICK_WARM_UP_REQUESTS = 2_000_000, 100_000
SETTLE_S = 1.0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parser_of(target: str, about: str | None) -> argparse.ArgumentParser:
    """Of the benchmark that `make target` runs."""
    return argparse.ArgumentParser(
        prog=f"make {target}", description=about, formatter_class=argparse.RawTextHelpFormatter
    )


def add_pairs(parser: argparse.ArgumentParser, of_what: str, pairs: int, quick_pairs: int) -> None:
    few = "one short pair" if quick_pairs == 1 else "few and short pairs"
    parser.add_argument("--quick", action="store_true", help=f"{few}, while developing: not to be quoted")
    parser.add_argument("--pairs", type=int, default=0, help=f"pairs per {of_what} ({pairs}; quick {quick_pairs})")


def add_loads(parser: argparse.ArgumentParser, loads: Sequence[Load]) -> None:
    parser.add_argument("--only", nargs="+", choices=[load.name for load in loads], default=[], help="only these loads")


def add_ours_alone(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ours-alone", action="store_true", help="no Apache Kafka; prints, while developing")


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """With the option that each benchmark has which writes a section."""
    parser.add_argument("--print", action="store_true", help="print the section instead of writing the document")
    return parser.parse_args(arguments)


def give(text: str, begin: str, end: str, *, prints: bool) -> None:
    """A section, in its place in the document or for the eye alone."""
    if prints:
        print(text)
    else:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(), text, begin, end))
        say(f"written: {DOCUMENT.relative_to(REPO)}")


def pair_of(number: int, run: Callable[[int], dict[str, float]]) -> Pair:
    """Runs of the first server, 0, and of the last, -1, which may be the same. Who begins changes with the number."""
    order = (0, -1) if number % 2 == 0 else (-1, 0)
    runs = {side: run(side) for side in order}
    return runs[0], runs[-1]


def warm_up(server: BenchmarkedServer, requests: int) -> None:
    """So that Kafka's just-in-time compiler has done its work; ours gets the same."""
    topic = "warm-up"
    say(f"warming {server.name} with {requests:,} requests")
    server.create_topic(topic)
    small = ("--topic", topic, "--requests", str(requests), "--depth", "8", "--seconds", "240")
    run_client(server, "produce_load", small)
    run_client(server, "produce_load", ("--topic", topic, "--requests", str(requests // 10), "--idempotent"))
    run_client(server, "produce_load", ("--topic", topic, "--requests", str(requests // 500), "--records", "600"))
    run_client(server, "fetch_drain", ("--topic", topic, "--bytes", str(requests * 300)))
    run_client(server, "end_to_end", ("--topic", topic, "--records", str(requests // 500)))
    server.delete_topic(topic)


def run_load(load: Load, servers: Sequence[BenchmarkedServer], pairs: int, *, quick: bool) -> list[Pair]:
    """The runs of every pair: Kafka's and ours, whichever came first. A server that is alone runs twice."""
    arguments = (*load.arguments, *(load.quick if quick else ()))
    kept = f"{load.name}-kept"
    if load.prepare:
        for server in servers:
            server.create_topic(kept, load.partitions)
            run_client(server, "produce_load", (*load.prepare, "--topic", kept))
    results: list[Pair] = []
    for number in range(pairs):
        sides = [(0, servers[0]), (1, servers[-1])]
        runs: list[dict[str, float]] = [{}, {}]
        for side, server in sides if number % 2 == 0 else reversed(sides):
            topic = kept if load.prepare else f"{load.name}-{number}-{side}"
            if not load.prepare:
                server.create_topic(topic, load.partitions)
            time.sleep(SETTLE_S)
            run = runs[side] = run_client(server, load.program, (*arguments, "--topic", topic))
            if not load.prepare:
                server.delete_topic(topic)
            told = ", ".join(f"{m.name} {m.of(run):,.{m.digits}f} {m.unit}" for m in load.measures)
            say(f"  {load.name} {number + 1}/{pairs} {server.name}: {told}")
        results.append((runs[0], runs[1]))
    if load.prepare:
        for server in servers:
            server.delete_topic(kept)
    return results


def run_loads(
    loads: Sequence[Load], servers: Sequence[BenchmarkedServer], pairs: int, warm: int, *, quick: bool
) -> tuple[list[tuple[Load, list[Pair]]], list[tuple[int, int]]]:
    """After a warm-up: the pairs of each load, and the memory of both servers after each."""
    for server in servers:
        warm_up(server, warm)
    results: list[tuple[Load, list[Pair]]] = []
    memory: list[tuple[int, int]] = []
    for load in loads:
        results.append((load, run_load(load, servers, pairs, quick=quick)))
        memory.append((servers[0].memory_bytes(), servers[-1].memory_bytes()))
    return results, memory


def output_of(*command: str) -> str:
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=60, check=False)
    return (done.stdout or done.stderr).strip()


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    return f"{os.cpu_count()} cores, {model}"


def machine_facts(pairs: int, began: float) -> list[tuple[str, str]]:
    """What every table of figures says about where it comes from."""
    commit = output_of("git", "rev-parse", "--short=12", "HEAD")
    changed = " with uncommitted changes" if output_of("git", "status", "--porcelain", "--", *PACKAGES) else ""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    java = output_of(find_java(), "-version").splitlines()[0]
    return [
        ("Commit", commit + changed),
        (
            "Date",
            time.strftime("%Y-%m-%d %H:%M", time.gmtime(began)) + f" UTC, {(time.time() - began) / 60:.0f} minutes",
        ),
        ("Machine", f"{processor()}, {memory:.0f} GiB; Linux {platform.release()}"),
        ("Versions", f"Python {platform.python_version()}; {java}"),
        ("Load average at the end", " ".join(f"{load:.1f}" for load in os.getloadavg())),
        ("Runs", f"{pairs} per row, in turn; median (min–max)"),
    ]


def facts_of(pairs: int, warm: int, began: float) -> list[tuple[str, str]]:
    return [
        *machine_facts(pairs, began),
        ("Apache Kafka", "4.3.0, one KRaft node, 1 GiB heap, otherwise its defaults"),
        ("appliance", "`appliance up --brokers 1 --runtime local`, otherwise its defaults"),
        ("Warmed with", f"{warm:,} requests each"),
    ]


def main() -> int:
    parser = parser_of("bench", __doc__)
    add_pairs(parser, "load", PAIRS, QUICK_PAIRS)
    add_loads(parser, LOADS)
    parser.add_argument("--kafka-alone", action="store_true", help="Apache Kafka against itself: shows the noise")
    chosen = parsed(parser)
    pairs = chosen.pairs or (QUICK_PAIRS if chosen.quick else PAIRS)
    warm = QUICK_WARM_UP_REQUESTS if chosen.quick else WARM_UP_REQUESTS
    loads = [load for load in LOADS if not chosen.only or load.name in chosen.only]
    began = time.time()
    with SideBySide(Kafka, *([] if chosen.kafka_alone else [Appliance])) as servers:
        results, memory = run_loads(loads, servers, pairs, warm, quick=chosen.quick)
        facts = facts_of(pairs, warm, began)
    quotable = pairs >= PAIRS and not chosen.quick and not chosen.kafka_alone
    text = section(facts, results, (servers[0].name, servers[-1].name), quotable=quotable, memory=memory)
    give(text, BEGIN, END, prints=chosen.print or chosen.kafka_alone or bool(chosen.only))
    return 0


if __name__ == "__main__":
    sys.exit(main())
