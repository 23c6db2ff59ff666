"""The process of a broker: whose its folders are and which cluster it is of, then the broker itself, to its end.

`run_broker` is a plain blocking function. It runs in a process of its own, in a Ray actor, or on a thread in a test.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from appliance.base.clock import SystemClock
from appliance.base.config import BrokerConfig
from appliance.base.disk import Disk, SystemDisk
from appliance.base.errors import UserError
from appliance.base.object_store import ObjectNotFound, ObjectStore, StoreUnavailable
from appliance.base.processes import BrokerSettings, ProcessHandle
from appliance.broker_actors.broker import Broker
from appliance.broker_actors.event_loop import new_event_loop
from appliance.controller.log_reader import CLUSTER_ID
from appliance.log.checkpoints import META_PROPERTIES_FILE, read_properties
from appliance.log.directory_identity import DirectoryLock
from appliance.log.log_manager import LogManager
from appliance.log.open_files import open_segments_max
from appliance.tiering.stores import open_store

CLUSTER_ID_WAIT_S = 60.0
CLUSTER_ID_POLL_S = 0.05


def config_of(settings: BrokerSettings) -> BrokerConfig:
    """The configuration of this broker; what it was told otherwise stands in it too, for those who ask for it.

    Raises:
        UserError: a key that does not exist, or a value that its key does not take.
    """
    told = {
        "node.id": str(settings.broker_id),
        "log.dirs": ",".join(map(str, settings.log_dirs or [settings.data_dir])),
        "object.store.url": settings.object_store,
    }
    return BrokerConfig({**settings.properties, **told})


def run_broker(settings: BrokerSettings, handle: ProcessHandle) -> None:
    """Serve until `handle.stopping` is set. Blocks.

    Raises:
        UserError: port or data directory cannot be used (exit code 3), or the controllers refuse this broker.
    """
    config = config_of(settings)
    store = open_store(settings.object_store, config)
    disk, clock = SystemDisk(), SystemClock()
    directories = settings.log_dirs or [settings.data_dir]
    cluster_id = _known_cluster_id(disk, directories) or _cluster_id(store, handle)
    if cluster_id is None:
        return
    # Whoever knows the epoch of an earlier process, which is noted there, must hold its lock.
    home = _home_of(settings.data_dir) if settings.data_dir not in directories else None
    logs = LogManager(
        directories,
        broker_id=settings.broker_id,
        cluster_id=cluster_id,
        clock=clock,
        disk=disk,
        min_free_bytes=config.get("log.dir.min.free.bytes"),
        max_open_segments=open_segments_max(),
        producer_id_expiration_ms=config.get("producer.id.expiration.ms"),
        producers_max=config.get("producer.ids.per.partition.max"),
        recovery_threads=config.get("num.recovery.threads.per.data.dir"),
        writeback_bytes=config.get("log.writeback.bytes"),
    )
    loop = new_event_loop()
    broker = Broker(settings, config, loop, logs, store, handle, clock=clock)

    def stop_when_told() -> None:
        handle.stopping.wait()
        broker.background.post(broker.stop)

    try:
        broker.start()
        threading.Thread(target=stop_when_told, name="stop", daemon=True).start()
        loop.run_forever()
    finally:
        broker.close()
        loop.close()
        if home is not None:
            home.release()
    if broker.failure is not None:
        raise broker.failure


def _known_cluster_id(disk: Disk, directories: Sequence[Path]) -> str | None:
    """The cluster that the directories belong to; None at their first start."""
    for directory in directories:
        try:
            stored = read_properties(disk, directory / META_PROPERTIES_FILE)
        except OSError:
            # The others may be usable; if none is, `LogManager` says so.
            continue
        if stored is not None and "cluster.id" in stored:
            return stored["cluster.id"]
    return None


def _home_of(data_dir: Path) -> DirectoryLock:
    """Hold the broker's own folder, when its logs lie elsewhere."""
    try:
        return DirectoryLock(data_dir)
    except OSError as error:
        raise UserError(f"cannot use the data folder {data_dir}: {error.strerror}", exit_code=3) from error


def _cluster_id(store: ObjectStore, handle: ProcessHandle) -> str | None:
    """At a broker's very first start: the id that the first controller put into the store. None when told to stop."""
    waited_s = 0.0
    while waited_s < CLUSTER_ID_WAIT_S:
        try:
            return bytes(store.get(CLUSTER_ID).data).decode("ascii").strip()
        except (ObjectNotFound, StoreUnavailable):
            pass
        if handle.stopping.wait(CLUSTER_ID_POLL_S):
            return None
        waited_s += CLUSTER_ID_POLL_S
    raise UserError(f"no controller has begun a cluster in {store.url} within {CLUSTER_ID_WAIT_S:.0f} s")
