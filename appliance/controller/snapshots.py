"""An image as the records that rebuild it, and with it the times at which commits were made."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from appliance.controller.commits import LogCorrupt, Snapshot
from appliance.controller.delta import image_of
from appliance.controller.image import MetadataImage
from appliance.controller.records import (
    AclSet,
    BrokerConfigSet,
    BrokerFenced,
    BrokerRegistered,
    BrokerShuttingDown,
    BrokerUnfenced,
    ClientQuotaSet,
    ClusterCreated,
    ControllerClaimed,
    FeatureLevelSet,
    PartitionChanged,
    ProducerIdsAllocated,
    Record,
    ResourceConfigSet,
    ScramCredentialSet,
    TopicConfigSet,
    TopicCreated,
    TopicObjectsLeft,
)

CommitTimes = tuple[tuple[int, int], ...]
"""(commit number, wall clock in ms), ascending: a few marks along the log, so that a day of commits can be kept."""


class _Body(msgspec.Struct, array_like=True):
    records: list[Record]
    commit_times: CommitTimes


_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")
_decoder = msgspec.msgpack.Decoder(_Body)


def snapshot_body(image: MetadataImage, commit_times: CommitTimes) -> bytes:
    """The body of the snapshot object of an image."""
    return _encoder.encode(_Body(list(records_of(image)), commit_times))


def load_snapshot(snapshot: Snapshot) -> tuple[MetadataImage, CommitTimes]:
    """What `snapshot_body` wrote. Raises: LogCorrupt."""
    try:
        body = _decoder.decode(snapshot.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LogCorrupt(f"snapshot {snapshot.number}: {error}") from error
    return image_of(body.records, position=snapshot.number), body.commit_times


def records_of(image: MetadataImage) -> Iterator[Record]:
    """Records that rebuild the image from nothing, in an order that `MetadataDelta` accepts."""
    if image.cluster_id:
        yield ClusterCreated(image.cluster_id)
    for name, level in sorted(image.features.items()):
        yield FeatureLevelSet(name, level)
    if image.controller_epoch:
        yield ControllerClaimed(
            image.controller_epoch, image.controller_id, image.controller_host, image.controller_port
        )
    yield from _broker_records(image)
    for name, topic in sorted(image.topics.items()):
        yield TopicCreated(name, topic.topic_id)
        for key, value in sorted(topic.configs.items()):
            yield TopicConfigSet(topic.topic_id, key, value)
        for partition in topic.partitions:
            yield PartitionChanged(topic.topic_id, partition)
    for topic_id, name in sorted(image.deleted_topics.items()):
        yield TopicObjectsLeft(topic_id, name)
    for (resource_type, name), configs in sorted(image.resource_configs.items()):
        for key, value in sorted(configs.items()):
            yield ResourceConfigSet(resource_type, name, key, value)
    for entity, quotas in sorted(image.client_quotas.items(), key=repr):
        for key, rate in sorted(quotas.items()):
            yield ClientQuotaSet(entity, key, rate)
    for (user, mechanism), kept in sorted(image.scram_credentials.items()):
        yield ScramCredentialSet(user, mechanism, kept.salt, kept.iterations, kept.stored_key, kept.server_key)
    for acl in sorted(image.acls):
        yield AclSet(*acl)
    if image.next_producer_id:
        yield ProducerIdsAllocated(-1, -1, image.next_producer_id)


def _broker_records(image: MetadataImage) -> Iterator[Record]:
    for broker_id, broker in sorted(image.brokers.items()):
        yield BrokerRegistered(
            broker_id,
            broker.incarnation_id,
            broker.listeners,
            broker.rack,
            broker.node,
            broker.directory_ids,
            broker.log_state,
            broker.broker_epoch,
        )
        if not broker.fenced:
            yield BrokerUnfenced(broker_id, broker.broker_epoch)
            if broker.shutting_down:
                yield BrokerShuttingDown(broker_id, broker.broker_epoch)
        elif broker.dead or broker.shutting_down:
            yield BrokerFenced(broker_id, broker.broker_epoch, broker.dead, broker.shutting_down)
    for name, configs in sorted(image.broker_configs.items()):
        for key, value in sorted(configs.items()):
            yield BrokerConfigSet(name, key, value)
