"""`make bench-replicated`: three nodes of Apache Kafka and three of ours, side by side, three replicas, load by load.

    python -m tests.benchmarks.replicated [--quick] [--pairs N] [--only NAME ...] [--print]

As `make bench`: both are warmed, then each load runs in pairs in turn; figures go into docs/benchmarks.md.
"""

from __future__ import annotations

import sys
import time

from tests.benchmarks.figures import (
    BULK,
    CPU_PER_GB_PRODUCED,
    CPU_PER_RECORD,
    MEAN,
    P50,
    P99,
    P999,
    PRODUCED,
    SMALL,
    Load,
)
from tests.benchmarks.report import section
from tests.benchmarks.run import (
    add_loads,
    add_ours_alone,
    add_pairs,
    give,
    machine_facts,
    parsed,
    parser_of,
    run_loads,
)
from tests.benchmarks.servers import SideBySide
from tests.benchmarks.three_nodes import ApplianceNodes, KafkaNodes

BEGIN = "<!-- replicated figures: written by `make bench-replicated`, from here -->"
END = "<!-- replicated figures: to here -->"
PAIRS, QUICK_PAIRS = 5, 2
WARM_UP_REQUESTS, QUICK_WARM_UP_REQUESTS = 400_000, 50_000
STEADY_RATE = 2_000


def loads_of(acks: int) -> tuple[Load, ...]:
    word = "all" if acks < 0 else str(acks)
    told = ("--acks", str(acks))
    return (
        Load(
            f"small-{word}",
            f"Produce, one record of 100 B per request, acks={word}, 32 connections, 8 in flight",
            "produce_load",
            (*told, "--connections", "32", "--depth", "8", "--requests", "200000"),
            SMALL,
            quick=("--requests", "40000"),
        ),
        Load(
            f"single-{word}",
            f"Produce, one record of 100 B per request, acks={word}, 32 connections, 1 in flight",
            "produce_load",
            (*told, "--connections", "32", "--depth", "1", "--requests", "100000"),
            SMALL,
            quick=("--requests", "20000"),
        ),
        Load(
            f"bulk-{word}",
            f"Produce in bulk, frames of 66 kB (600 records of 100 B), acks={word}, 2 connections, 4 in flight",
            "produce_load",
            (*told, *BULK, "--requests", "6000"),
            (PRODUCED, P50, P99, CPU_PER_GB_PRODUCED),
            quick=("--requests", "1500"),
        ),
        Load(
            f"steady-{word}",
            f"Produce at a fixed {STEADY_RATE:,} requests/s (open loop), acks={word}, 32 connections",
            "produce_load",
            (*told, "--connections", "32", "--depth", "64", "--requests", "20000", "--rate", str(STEADY_RATE)),
            (P50, P99, P999, SMALL[-1]),
            quick=("--requests", "8000"),
        ),
    )


LOADS = (
    *loads_of(1),
    *loads_of(-1),
    Load(
        "end-to-end-all",
        "One record of 100 B from producer (acks=all) to a waiting consumer, one at a time",
        "end_to_end",
        ("--records", "5000", "--acks", "-1"),
        (MEAN, P50, P99, P999, CPU_PER_RECORD),
        quick=("--records", "1000"),
    ),
)


def main() -> int:
    parser = parser_of("bench-replicated", __doc__)
    add_pairs(parser, "load", PAIRS, QUICK_PAIRS)
    add_loads(parser, LOADS)
    add_ours_alone(parser)
    chosen = parsed(parser)
    pairs = chosen.pairs or (QUICK_PAIRS if chosen.quick else PAIRS)
    warm = QUICK_WARM_UP_REQUESTS if chosen.quick else WARM_UP_REQUESTS
    loads = [load for load in LOADS if not chosen.only or load.name in chosen.only]
    began = time.time()
    with SideBySide(*([] if chosen.ours_alone else [KafkaNodes]), ApplianceNodes) as servers:
        results, memory = run_loads(loads, servers, pairs, warm, quick=chosen.quick)
        facts = [
            *machine_facts(pairs, began),
            ("Apache Kafka", "4.3.0, three KRaft nodes, 1 GiB heap each, otherwise defaults"),
            ("appliance", "three brokers and two controllers as processes, defaults"),
            ("Topics", "one partition, three replicas, `min.insync.replicas` 2"),
            ("Warmed with", f"{warm:,} requests each"),
        ]
    quotable = pairs >= PAIRS and not chosen.quick and not chosen.ours_alone
    names = servers[0].name, servers[-1].name
    text = section(facts, results, names, quotable=quotable, memory=memory, begin=BEGIN, end=END)
    give(text, BEGIN, END, prints=chosen.print or chosen.ours_alone or bool(chosen.only))
    return 0


if __name__ == "__main__":
    sys.exit(main())
