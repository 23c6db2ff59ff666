"""`appliance`: the commands, and how their errors end: one line on standard error and an exit code.

0 done, 1 the cluster said no or did not answer, 2 usage, 3 port or folder not usable, 4 object store not reachable.
Imports are lazy, so that `--help` and completion answer at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from appliance.base.errors import KafkaError, UserError
from appliance.cli import cluster, consume, lake, produce, secured, status, tier, topics, up

app = typer.Typer(
    name="appliance",
    help="An ingestion appliance that speaks Apache Kafka's protocol.",
    no_args_is_help=True,
    # Rich alone takes longer to import than the whole help may take.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def options(
    command_config: Annotated[
        Path | None,
        typer.Option(help="A file of client configs for secured brokers: security.protocol, ssl.*, sasl.*."),
    ] = None,
) -> None:
    """An ingestion appliance that speaks Apache Kafka's protocol."""
    secured.use(command_config)


app.command("up")(up.up)
app.add_typer(topics.app, name="topics")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("status")(status.status)
app.add_typer(tier.app, name="tier")
app.add_typer(lake.app, name="lake")
app.add_typer(cluster.app, name="cluster")

EXIT_FAILED = 1


def main() -> None:
    """The entry point of the package."""
    try:
        app()
    except UserError as error:
        _fail(str(error), error.exit_code)
    except KafkaError as error:
        _fail(str(error), EXIT_FAILED)
    except BrokenPipeError:
        # Whoever read our output has had enough, as `head` does.
        sys.stderr.close()
        sys.exit(EXIT_FAILED)
    except OSError as error:
        _fail(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(message: str, exit_code: int) -> None:
    print(f"appliance: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(exit_code)
