"""The writer of streams with a worker, or the executor it belongs to, that dies by SIGKILL at a chosen moment, once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark.sink import ApplianceStreamWriter
from spark.sink_client import SinkClient
from spark.sink_options import SinkOptions, parse_sink_options
from spark.source import ApplianceDataSource
from tests.support.spark_cluster import executor_of

MOMENTS = ("before the commit", "after the commit")
OWN_OPTIONS = ("moment", "flag", "executor")


class TrialSource(ApplianceDataSource):
    """`format("appliance_trial")`, options: `moment`; `flag`, a file that says who died; `executor`, if it is one."""

    @classmethod
    def name(cls) -> str:
        return "appliance_trial"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options = {name: self.options[name] for name in self.options if name not in OWN_OPTIONS}
        own = self.options
        return TrialWriter(parse_sink_options(options), own["moment"], Path(own["flag"]), "executor" in own)


class TrialWriter(ApplianceStreamWriter):
    def __init__(self, options: SinkOptions, moment: str, flag: Path, executor: bool) -> None:
        super().__init__(options)
        self._moment = moment
        self._flag = flag
        self._executor = executor

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        if self._flag.exists():
            return super().write(iterator)
        end = SinkClient.end_transaction

        def and_die(client: SinkClient, name: str, producer: tuple[int, int], commit: bool) -> None:
            if self._moment == MOMENTS[1]:
                end(client, name, producer, commit)
            victim = executor_of(os.getpid()) if self._executor else os.getpid()
            self._flag.write_text(str(victim))
            os.kill(victim, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

        SinkClient.end_transaction = and_die  # type: ignore[method-assign]  # this worker has no life after it
        return super().write(iterator)
