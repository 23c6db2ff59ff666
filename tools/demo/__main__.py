"""`make demo`: start an appliance, bring real data in by three ways, tier it, and read it back as one table."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from appliance.base.errors import UserError
from appliance.client.client import Client
from tools.demo import ingest, tables
from tools.demo.report import FlightsJob, differences
from tools.demo.running import Addresses, running_appliance
from tools.demo.tables import Report
from tools.demo.tiers import PartitionTiers, wait_until_tiered

FOLDER = Path(".demo")
COUNTS = {ingest.FLIGHTS: 336_776, ingest.WEATHER: 26_115, ingest.PLANES: 3_322, ingest.AIRLINES: 16}
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
LEAST_WIDTH = 100
console = Console(highlight=False)
if console.width < LEAST_WIDTH:
    # The report has 14 columns; in a narrow window its lines wrap, which reads better than cut numbers.
    console = Console(highlight=False, width=LEAST_WIDTH)


class Interrupted(BaseException):
    """Ctrl-C or SIGTERM: end in good order."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo")
    parser.add_argument(
        "--once", action="store_true", help="end by itself when everything was shown (make demo ONCE=1)"
    )
    parser.add_argument("--runtime", choices=("ray", "local"), default="ray")
    options = parser.parse_args()

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        return run(options.once, options.runtime)
    except Interrupted:
        console.print("ended")
        return 0
    except UserError as error:
        console.print(f"[red]{error}[/red]")
        return 1


def run(once: bool, runtime: str) -> int:
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "input").mkdir(parents=True)
    folder = FOLDER.resolve()
    console.print(
        f"[bold]1. An appliance[/bold]: 3 brokers, a controller, HTTP ingest, connectors ({runtime}), in {FOLDER}/"
    )
    with running_appliance(folder, runtime) as addresses:
        console.print(
            f"   brokers {addresses.bootstrap_servers}  http {addresses.http}  connectors {addresses.connect}"
        )
        bring_in(addresses, folder)
        with Client(addresses.bootstrap_servers) as client:
            console.print("\n[bold]3. Tiering[/bold]: segments rolled, went to the object store, and left the disks")
            show_tiers(wait_until_tiered(client, ingest.FLIGHTS))
        wrong = read_back(addresses)
        if wrong:
            for line in wrong[:10]:
                console.print(f"[red]{line}[/red]")
            return 1
        show_addresses(addresses)
        if not once:
            console.print("\nThe appliance stays up; Ctrl-C ends it.")
            threading.Event().wait()
        console.print("stopping")
    return 0


def bring_in(addresses: Addresses, folder: Path) -> None:
    console.print(
        "\n[bold]2. Real data[/bold]: every flight that left New York City in 2013, its weather, planes, airlines"
    )
    with Client(addresses.bootstrap_servers) as client:
        ingest.create_topics(client)
    bar = Progress(
        TextColumn("   {task.description:<44}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )
    with bar:

        def task(what: str, total: int, work: Callable[[ingest.Progress], None]) -> None:
            number = bar.add_task(what, total=total)
            work(lambda count: bar.advance(number, count))

        by_kafka = sum(1 for row in tables.rows_of("flights") if int(str(row["month"])) <= ingest.LAST_MONTH_BY_KAFKA)
        servers, http = addresses.bootstrap_servers, addresses.http
        task("flights to September: a Kafka client", by_kafka, lambda p: ingest.flights_by_kafka(servers, p))
        task(
            "flights from October: HTTP, NDJSON",
            COUNTS["flights"] - by_kafka,
            lambda p: ingest.flights_by_http(http, p),
        )
        task("weather: HTTP, NDJSON", COUNTS["weather"], lambda p: ingest.weather_by_http(http, p))
        total = COUNTS["planes"] + COUNTS["airlines"]
        task(
            "planes and airlines: connectors",
            total,
            lambda p: ingest.tables_by_connector(addresses, folder / "input", p),
        )


def show_tiers(rows: list[PartitionTiers]) -> None:
    table = Table("partition", "log start", "local start", "tiered end", "log end", box=None, padding=(0, 2, 0, 3))
    for row in rows:
        numbers = (row.start, row.local_start, row.tiered_end, row.end)
        table.add_row(str(row.tp), *(f"{number:,}" for number in numbers))
    console.print(table)


def read_back(addresses: Addresses) -> list[str]:
    """The Spark job; returns what differs from the input."""
    console.print("\n[bold]4. Spark[/bold]: hot and tiered records as one table")
    with console.status("   reading"), stderr_to(FOLDER / "spark.log"), FlightsJob(addresses.bootstrap_servers) as job:
        counts = job.counts(list(COUNTS))
        found = job.punctuality()
    wrong = []
    table = Table("topic", "tiered", "hot", "together", "input", box=None, padding=(0, 2, 0, 3))
    for topic, expected in COUNTS.items():
        tiered, hot = counts[topic].get("tiered", 0), counts[topic].get("hot", 0)
        table.add_row(topic, f"{tiered:,}", f"{hot:,}", f"{tiered + hot:,}", f"{expected:,}")
        if tiered + hot != expected:
            wrong.append(f"{topic}: {tiered + hot} records were read, the input has {expected}")
    console.print(table)
    if not counts[ingest.FLIGHTS].get("tiered"):
        wrong.append("no flight came from the object store: nothing was tiered")
    wrong += differences(found, tables.expected_report())
    show_report(found)
    if not wrong:
        console.print("   equal to the input files, every count and every mean")
    return wrong


@contextlib.contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Send standard error, also that of children, to a file: Spark's JVM is talkative at its start."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as opened:
        os.dup2(opened.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def show_report(report: Report) -> None:
    console.print("\n   departures, and the mean delay in minutes for each month:")
    table = Table("  carrier", "departures", *MONTHS, box=None, padding=(0, 1, 0, 1))
    for carrier in sorted({carrier for _, carrier in report}):
        months = [report.get((month, carrier)) for month in range(1, 13)]
        departures = sum(month.departures for month in months if month)
        table.add_row(
            "  " + carrier, f"{departures:,}", *(f"{month.mean_delay:.1f}" if month else "" for month in months)
        )
    console.print(table)


def show_addresses(addresses: Addresses) -> None:
    servers, http = addresses.bootstrap_servers, addresses.http
    console.print("\n[bold]5. Try it[/bold]")
    lines = [
        f"kcat -b {servers} -C -t flights -o beginning -c 3 -f '%p %o %k %T %s\\n'",
        f'curl -s {http}/v1/topics/clicks/records -d \'{{"key": "anna", "value": {{"page": "/"}}}}\'',
        f"curl -s {addresses.connect}/connectors/planes-file/status",
        f".venv/bin/appliance consume clicks --from-beginning -n 1 --bootstrap-server {servers}",
        ".venv/bin/python -c 'from confluent_kafka import Producer; "
        f'p = Producer({{"bootstrap.servers": "{servers}"}}); p.produce("clicks", "hello"); p.flush()\'',
        ".venv/bin/python -c 'from spark.session import spark_session; "
        f'spark_session("try").read.format("appliance").option("kafka.bootstrap.servers", "{servers}")'
        '.option("subscribe", "flights").load().groupBy("partition").count().show()\'',
    ]
    for line in lines:
        console.print("   " + line, soft_wrap=True, markup=False)


if __name__ == "__main__":
    sys.exit(main())
