"""A driver to be killed: copies a topic to another one, exactly once, from its checkpoint on, and ends.

python -m tests.support.trial_driver SERVERS SOURCE TARGET CHECKPOINT [CONFIG TRIAL]

CONFIG and TRIAL are JSON: of the session, in the place of a local one, and the options of a writer whose executor dies.
"""

from __future__ import annotations

import json
import sys

from spark.session import spark_session
from tests.support.java_tools import QUICK_START
from tests.support.trial_sink import TrialSource


def main(servers: str, source: str, target: str, checkpoint: str, config: str = "", trial: str = "") -> None:
    local = {"spark__driver__extraJavaOptions": " ".join(QUICK_START)}
    session = spark_session("trial", cores=2, **(json.loads(config) if config else local))
    session.dataSource.register(TrialSource)
    reader = session.readStream.format("appliance").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", source).option("startingOffsets", "earliest")
    frame = reader.option("maxOffsetsPerTrigger", "200").load().select("key", "value")
    writer = frame.writeStream.format("appliance_trial" if trial else "appliance").options(**json.loads(trial or "{}"))
    writer = writer.option("kafka.bootstrap.servers", servers).option("topic", target)
    writer = writer.option("delivery", "exactly_once").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    print("DONE", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
