"""Which APIs a broker serves, by whom, and in which versions it says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from appliance.base.errors import ErrorCode
from appliance.controller.features import SHARE_VERSION, level_of
from appliance.partition.fetch_sessions import FetchSessions
from appliance.server.authentication import sasl_handlers
from appliance.server.context import Broker
from appliance.server.dispatcher import Handler, HandlerEntry, error_answer
from appliance.server.handlers import (
    acls,
    alter_log_dirs,
    api_versions,
    cluster,
    cluster_admin,
    configs,
    delete_records,
    fetch,
    fetch_fast,
    fetch_old,
    groups,
    import_records,
    list_offsets,
    log_dirs,
    log_ends,
    log_state,
    metadata,
    produce,
    produce_fast,
    produce_old,
    producer_ids,
    quotas,
    replicas,
    scram_credentials,
    share_acknowledge,
    share_fetch,
    share_groups,
    share_state,
    status,
    telemetry,
    topics,
    transactions,
)
from appliance.server.handlers.replica_fetch_fast import fast_replica_fetch
from appliance.server.requests import Pending, Request
from appliance.wire.api import ApiKey
from appliance.wire.messages.internal_import import IMPORT_RECORDS
from appliance.wire.messages.internal_metadata import CONTROLLER_STATUS, REPLICA_LOG_ENDS
from appliance.wire.messages.internal_status import BROKER_STATUS
from appliance.wire.schema import Struct


def broker_handlers(broker: Broker) -> dict[int, HandlerEntry]:
    """Everything that a client may ask a broker for."""
    sessions = FetchSessions(
        broker.config.get("max.incremental.fetch.session.cache.slots"),
        broker.config.get("min.incremental.fetch.session.eviction.ms"),
        broker.new_session_id,
    )
    fetch_max_bytes = broker.config.get("fetch.max.bytes")
    fetches = fetch.FetchHandler(sessions, fetch_max_bytes)
    fetches.old = fetch_old.old_fetches(fetches)
    return {
        ApiKey.PRODUCE: HandlerEntry(produce_old.handle, raw=produce_fast.fast_produce(broker), error=produce.failed),
        ApiKey.FETCH: HandlerEntry(
            fetches.handle,
            raw=fetch_fast.fast_fetch(broker, fetch_max_bytes, fast_replica_fetch(broker, fetches.followers)),
        ),
        ApiKey.LIST_OFFSETS: HandlerEntry(list_offsets.handle, error=list_offsets.failed),
        ApiKey.METADATA: HandlerEntry(metadata.MetadataHandler().handle, error=metadata.failed),
        ApiKey.API_VERSIONS: HandlerEntry(api_versions.handle),
        ApiKey.CREATE_TOPICS: HandlerEntry(topics.create, error=topics.create_failed),
        ApiKey.DELETE_TOPICS: HandlerEntry(topics.delete, error=topics.delete_failed),
        ApiKey.CREATE_PARTITIONS: HandlerEntry(topics.create_partitions, error=topics.create_partitions_failed),
        ApiKey.ELECT_LEADERS: HandlerEntry(replicas.elect, error=replicas.elect_failed),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: HandlerEntry(
            replicas.alter_reassignments, error=replicas.alter_reassignments_failed
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: HandlerEntry(replicas.list_under_way),
        ApiKey.UNREGISTER_BROKER: HandlerEntry(replicas.unregister, error=replicas.unregister_failed),
        ApiKey.DELETE_RECORDS: HandlerEntry(delete_records.handle, error=delete_records.failed),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: HandlerEntry(log_state.offset_for_leader_epoch),
        ApiKey.DESCRIBE_CONFIGS: HandlerEntry(configs.describe, error=configs.describe_failed),
        ApiKey.ALTER_CONFIGS: HandlerEntry(configs.alter, error=configs.alter_failed),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: HandlerEntry(
            configs.incremental_alter, error=configs.incremental_alter_failed
        ),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: HandlerEntry(quotas.describe),
        ApiKey.ALTER_CLIENT_QUOTAS: HandlerEntry(quotas.alter, error=quotas.alter_failed),
        ApiKey.DESCRIBE_QUORUM: HandlerEntry(cluster_admin.quorum),
        ApiKey.UPDATE_FEATURES: HandlerEntry(cluster_admin.update_features),
        ApiKey.LIST_CONFIG_RESOURCES: HandlerEntry(cluster_admin.list_config_resources),
        ApiKey.ALTER_REPLICA_LOG_DIRS: HandlerEntry(alter_log_dirs.handle),
        ApiKey.DESCRIBE_LOG_DIRS: HandlerEntry(log_dirs.describe_log_dirs),
        ApiKey.DESCRIBE_CLUSTER: HandlerEntry(cluster.describe_cluster),
        ApiKey.DESCRIBE_PRODUCERS: HandlerEntry(log_state.describe_producers),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: HandlerEntry(cluster.describe_topic_partitions),
        BROKER_STATUS: HandlerEntry(status.broker_status),
        IMPORT_RECORDS: HandlerEntry(import_records.handle, error=import_records.failed),
        REPLICA_LOG_ENDS: HandlerEntry(log_ends.replica_log_ends),
        CONTROLLER_STATUS: HandlerEntry(status.controller_status, error=status.controller_status_failed),
        **sasl_handlers(),
        **scram_credentials.scram_handlers(),
        **acls.acl_handlers(),
        **telemetry.telemetry_handlers(),
        **groups.group_handlers(),
        **_with_feature(SHARE_VERSION, share_groups.share_group_handlers()),
        **_with_feature(SHARE_VERSION, share_fetch.share_fetch_handlers()),
        **_with_feature(SHARE_VERSION, share_acknowledge.share_acknowledge_handlers()),
        **share_state.share_state_handlers(),
        **transactions.transaction_handlers(producer_ids.ProducerIds().handle),
    }


def _with_feature(name: str, entries: Mapping[int, HandlerEntry]) -> dict[int, HandlerEntry]:
    """These APIs while the feature is in force; without it they are UNSUPPORTED_VERSION, as in Kafka."""

    def guarded(entry: HandlerEntry) -> Handler:
        def handle(broker: Broker, request: Request) -> Struct | bytes | Pending | None:
            if level_of(broker.image, name) > 0:
                return entry.handle(broker, request)
            return error_answer(entry, request, ErrorCode.UNSUPPORTED_VERSION)

        return handle

    return {key: replace(entry, handle=guarded(entry)) for key, entry in entries.items()}
