"""What `appliance status` tells, without a process for each look."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from appliance.cli.main import app


def status_of(bootstrap_servers: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["status", "-b", bootstrap_servers, "--format", "json"])
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"problems": [f"no status: {done.output} {done.exception}"], "brokers": []}
    return document
