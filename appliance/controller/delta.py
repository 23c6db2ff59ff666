"""From one metadata image to the next: the only place where committed records change the state.

Used by the controller for what it is about to commit, and by everybody for what was committed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar, assert_never

import msgspec

from appliance.authorizer.bindings import AclBinding
from appliance.base.errors import InvariantBroken, invariant
from appliance.controller.image import BrokerState, MetadataImage, TopicState
from appliance.controller.records import (
    AclSet,
    BrokerConfigSet,
    BrokerFenced,
    BrokerRegistered,
    BrokerShuttingDown,
    BrokerUnfenced,
    BrokerUnregistered,
    ClientQuotaSet,
    ClusterCreated,
    ControllerClaimed,
    FeatureLevelSet,
    PartitionChanged,
    PartitionState,
    ProducerIdsAllocated,
    Record,
    ResourceConfigSet,
    ScramCredentialSet,
    TopicConfigSet,
    TopicCreated,
    TopicDeleted,
    TopicObjectsGone,
    TopicObjectsLeft,
    commit_number_of,
    position_of,
)
from appliance.security.scram import ScramCredential

Place = TypeVar("Place")
Value = TypeVar("Value")


class MetadataDelta:
    """Records applied on top of an image. Copies a table of the image only when it changes it."""

    def __init__(self, image: MetadataImage) -> None:
        self.base = image
        self.changed_topics: set[uuid.UUID] = set()
        """Ids of topics created, deleted or changed in any way."""
        self._number = image.position
        self._controller = (image.controller_epoch, image.controller_id, image.controller_host, image.controller_port)
        self._cluster_id = image.cluster_id
        self._scram_credentials = image.scram_credentials
        self._next_producer_id = image.next_producer_id
        self._features = image.features
        self._broker_configs = image.broker_configs
        self._resource_configs = image.resource_configs
        self._client_quotas = image.client_quotas
        self._brokers: dict[int, BrokerState] | None = None
        self._topics: dict[str, TopicState] | None = None
        self._topics_by_id: dict[uuid.UUID, TopicState] | None = None
        self._deleted_topics: dict[uuid.UUID, str] | None = None
        self._acls: dict[AclBinding, None] | None = None
        # Partitions and configs under construction, so that a topic of n partitions costs n steps and not n^2.
        self._partitions: dict[uuid.UUID, list[PartitionState]] = {}
        self._configs: dict[uuid.UUID, dict[str, str]] = {}

    def apply_commit(self, number: int, records: Iterable[Record]) -> None:
        """Apply the records of commit `number`."""
        for index, record in enumerate(records):
            self.apply(record, position_of(number, index))
        self._number = number

    def apply(self, record: Record, position: int) -> None:
        """Apply one record that stands at `position` of the log."""
        match record:
            case PartitionChanged():
                self._set_partition(record, position)
            case TopicCreated():
                self._add_topic(record)
            case TopicConfigSet():
                self._set_topic_config(record)
            case TopicDeleted():
                self._remove_topic(record)
            case TopicObjectsLeft():
                self._mutable_deleted_topics()[record.topic_id] = record.name
            case TopicObjectsGone():
                self._mutable_deleted_topics().pop(record.topic_id, None)
            case BrokerRegistered():
                self._register(record, position)
            case BrokerFenced():
                self._replace_broker(
                    replace(self._broker(record), fenced=True, dead=record.dead, shutting_down=record.shutting_down)
                )
            case BrokerUnfenced():
                self._replace_broker(replace(self._broker(record), fenced=False))
            case BrokerShuttingDown():
                self._replace_broker(replace(self._broker(record), shutting_down=True))
            case BrokerUnregistered():
                self._broker(record)
                del self._mutable_brokers()[record.broker_id]
            case BrokerConfigSet():
                self._broker_configs = _with_entry(self._broker_configs, record.broker, record.key, record.value)
            case ResourceConfigSet():
                place = (record.resource_type, record.name)
                self._resource_configs = _with_entry(self._resource_configs, place, record.key, record.value)
            case ClientQuotaSet():
                self._client_quotas = _with_entry(self._client_quotas, record.entity, record.key, record.value)
            case ScramCredentialSet():
                self._set_credential(record)
            case AclSet():
                self._set_acl(record)
            case ProducerIdsAllocated():
                self._next_producer_id = record.next_producer_id
            case ControllerClaimed():
                self._controller = (record.controller_epoch, record.controller_id, record.host, record.port)
            case ClusterCreated():
                self._cluster_id = record.cluster_id
            case FeatureLevelSet():
                self._features = {**self._features, record.name: record.level}
            case _:
                assert_never(record)

    def build(self) -> MetadataImage:
        """The image after all that was applied. The delta can go on from there."""
        self._finish_topics()
        epoch, controller_id, host, port = self._controller
        image = MetadataImage(
            position=self._number,
            controller_epoch=epoch,
            controller_id=controller_id,
            controller_host=host,
            controller_port=port,
            cluster_id=self._cluster_id,
            brokers=self.base.brokers if self._brokers is None else self._brokers,
            topics=self.base.topics if self._topics is None else self._topics,
            topics_by_id=self.base.topics_by_id if self._topics_by_id is None else self._topics_by_id,
            broker_configs=self._broker_configs,
            resource_configs=self._resource_configs,
            client_quotas=self._client_quotas,
            scram_credentials=self._scram_credentials,
            acls=self.base.acls if self._acls is None else self._acls,
            next_producer_id=self._next_producer_id,
            features=self._features,
            deleted_topics=self.base.deleted_topics if self._deleted_topics is None else self._deleted_topics,
        )
        # What was handed out is never changed again.
        self.base, self._brokers, self._topics, self._topics_by_id = image, None, None, None
        self._deleted_topics = self._acls = None
        return image

    def _mutable_brokers(self) -> dict[int, BrokerState]:
        if self._brokers is None:
            self._brokers = dict(self.base.brokers)
        return self._brokers

    def _mutable_topics(self) -> tuple[dict[str, TopicState], dict[uuid.UUID, TopicState]]:
        if self._topics is None or self._topics_by_id is None:
            self._topics, self._topics_by_id = dict(self.base.topics), dict(self.base.topics_by_id)
        return self._topics, self._topics_by_id

    def _mutable_deleted_topics(self) -> dict[uuid.UUID, str]:
        if self._deleted_topics is None:
            self._deleted_topics = dict(self.base.deleted_topics)
        return self._deleted_topics

    def _topic(self, topic_id: uuid.UUID) -> TopicState:
        topics = self.base.topics_by_id if self._topics_by_id is None else self._topics_by_id
        state = topics.get(topic_id)
        if state is None:
            raise InvariantBroken(f"metadata record names topic id {topic_id}, which does not exist")
        return state

    def _register(self, record: BrokerRegistered, position: int) -> None:
        self._mutable_brokers()[record.broker_id] = BrokerState(
            broker_id=record.broker_id,
            broker_epoch=position if record.broker_epoch < 0 else record.broker_epoch,
            incarnation_id=record.incarnation_id,
            listeners=record.listeners,
            rack=record.rack,
            node=record.node,
            directory_ids=record.directory_ids,
            log_state=record.log_state,
            fenced=True,
        )

    def _broker(self, record: BrokerFenced | BrokerUnfenced | BrokerShuttingDown | BrokerUnregistered) -> BrokerState:
        brokers = self.base.brokers if self._brokers is None else self._brokers
        broker = brokers.get(record.broker_id)
        if broker is None or broker.broker_epoch != record.broker_epoch:
            raise InvariantBroken(
                f"metadata record names broker {record.broker_id} at epoch {record.broker_epoch}, not registered"
            )
        return broker

    def _replace_broker(self, broker: BrokerState) -> None:
        self._mutable_brokers()[broker.broker_id] = broker

    def _add_topic(self, record: TopicCreated) -> None:
        topics, by_id = self._mutable_topics()
        invariant(record.name not in topics, f"topic {record.name} created twice")
        topics[record.name] = by_id[record.topic_id] = TopicState(record.name, record.topic_id)
        deleted = self.base.deleted_topics if self._deleted_topics is None else self._deleted_topics
        if record.topic_id in deleted:
            # It is brought back.
            del self._mutable_deleted_topics()[record.topic_id]
        self.changed_topics.add(record.topic_id)

    def _remove_topic(self, record: TopicDeleted) -> None:
        state = self._topic(record.topic_id)
        topics, by_id = self._mutable_topics()
        del topics[state.name], by_id[record.topic_id]
        self._mutable_deleted_topics()[record.topic_id] = state.name
        self._partitions.pop(record.topic_id, None)
        self._configs.pop(record.topic_id, None)
        self.changed_topics.add(record.topic_id)

    def _set_partition(self, record: PartitionChanged, position: int) -> None:
        partitions = self._partitions.get(record.topic_id)
        if partitions is None:
            partitions = self._partitions[record.topic_id] = list(self._topic(record.topic_id).partitions)
        state = record.state
        if any(earlier.commit < 0 for earlier in state.earlier_leaders):
            state = _dated(state, commit_number_of(position))
        number = state.partition
        invariant(number <= len(partitions), f"partition {number} of topic id {record.topic_id} leaves a gap")
        if number == len(partitions):
            partitions.append(state)
        else:
            partitions[number] = state
        self.changed_topics.add(record.topic_id)

    def _set_topic_config(self, record: TopicConfigSet) -> None:
        configs = self._configs.get(record.topic_id)
        if configs is None:
            configs = self._configs[record.topic_id] = dict(self._topic(record.topic_id).configs)
        if record.value is None:
            configs.pop(record.key, None)
        else:
            configs[record.key] = record.value
        self.changed_topics.add(record.topic_id)

    def _set_credential(self, record: ScramCredentialSet) -> None:
        key = (record.name, record.mechanism)
        credentials = {name: kept for name, kept in self._scram_credentials.items() if name != key}
        if record.salt is not None:
            credentials[key] = ScramCredential(record.salt, record.iterations, record.stored_key, record.server_key)
        self._scram_credentials = credentials

    def _set_acl(self, record: AclSet) -> None:
        if self._acls is None:
            self._acls = dict(self.base.acls)
        binding = AclBinding(
            record.resource_type,
            record.name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission,
        )
        if record.present:
            self._acls[binding] = None
        else:
            self._acls.pop(binding, None)

    def _finish_topics(self) -> None:
        for topic_id in sorted({*self._partitions, *self._configs}):
            state = self._topic(topic_id)
            if (partitions := self._partitions.pop(topic_id, None)) is not None:
                state = replace(state, partitions=tuple(partitions))
            if (configs := self._configs.pop(topic_id, None)) is not None:
                state = replace(state, configs=configs)
            topics, by_id = self._mutable_topics()
            topics[state.name] = by_id[topic_id] = state


def _with_entry(
    tables: Mapping[Place, Mapping[str, Value]], place: Place, key: str, value: Value | None
) -> Mapping[Place, Mapping[str, Value]]:
    """The tables with one entry set, or removed for None; a table without entries goes."""
    entries = dict(tables.get(place, {}))
    if value is None:
        entries.pop(key, None)
    else:
        entries[key] = value
    changed = {**tables, place: entries}
    if not entries:
        del changed[place]
    return changed


def _dated(state: PartitionState, commit: int) -> PartitionState:
    """With the number of the commit that took leadership from those who lost it just now."""
    earlier_leaders = tuple(
        msgspec.structs.replace(earlier, commit=commit) if earlier.commit < 0 else earlier
        for earlier in state.earlier_leaders
    )
    return msgspec.structs.replace(state, earlier_leaders=earlier_leaders)


def image_of(records: Iterable[Record], *, position: int = 0) -> MetadataImage:
    """The image of one commit on top of nothing; snapshots are loaded and tests begin with it."""
    delta = MetadataDelta(MetadataImage())
    delta.apply_commit(position, records)
    return delta.build()
