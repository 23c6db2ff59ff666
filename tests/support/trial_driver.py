"""A driver to be killed: copies a topic to another one, exactly once, from its checkpoint on, and ends.

python -m tests.support.trial_driver SERVERS SOURCE TARGET CHECKPOINT
"""

from __future__ import annotations

import sys

from spark.session import spark_session
from tests.support.java_tools import QUICK_START


def main(servers: str, source: str, target: str, checkpoint: str) -> None:
    session = spark_session("trial", cores=2, spark__driver__extraJavaOptions=" ".join(QUICK_START))
    reader = session.readStream.format("appliance").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", source).option("startingOffsets", "earliest")
    frame = reader.option("maxOffsetsPerTrigger", "200").load().select("key", "value")
    writer = frame.writeStream.format("appliance").option("kafka.bootstrap.servers", servers).option("topic", target)
    writer = writer.option("delivery", "exactly_once").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    print("DONE", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
