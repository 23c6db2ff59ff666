"""`appliance up` with stand-ins in place of broker and controller: python -m tests.support.standin_up FLAGS.

`--broker`, `--controller` and `--http` choose another stand-in than the one that works. Everything else is real.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from appliance.base.errors import UserError
from appliance.broker_actors.plan import Targets
from appliance.cli.up import run_up
from tests.support import standins


def ready_check(addresses: Sequence[str], timeout_ms: int) -> str:
    for address in addresses:
        standins.ask(address, "pid")
    return standins.CLUSTER_ID


def main(arguments: Sequence[str]) -> int:
    flags: dict[str, str | None] = {}
    chosen = {"broker": "run_broker", "controller": "run_controller", "http": "run_service"}
    config = None
    for flag, value in zip(arguments[::2], arguments[1::2], strict=True):
        name = flag.removeprefix("--").replace("-", ".").replace("object.store", "object.store.url")
        if name in chosen:
            chosen[name] = value
        elif name == "config":
            config = Path(value)
        else:
            flags[name] = value
    target = {name: f"tests.support.standins:{function}" for name, function in chosen.items()}
    services = {"http": target["http"], "connect": "not_installed_package.service:serve"}
    try:
        return run_up(
            flags,
            os.environ,
            config,
            targets=Targets(target["controller"], target["broker"], services),
            ready_check=ready_check,
        )
    except UserError as error:
        print(f"appliance: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
