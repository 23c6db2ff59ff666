"""The table: each API and its rule. What has none is for brokers and controllers alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from appliance.authorizer.bindings import Operation
from appliance.base.errors import ErrorCode
from appliance.server.access import Access, AccessControl
from appliance.server.authorization import administration, groups, records, topics, transactions
from appliance.server.authorization.rules import (
    CLUSTER,
    GROUP,
    TEXTS,
    TOPIC,
    TRANSACTIONAL_ID,
    Rule,
    amend,
    free,
    needs,
    needs_for_each,
)
from appliance.server.authorization.share_groups import SHARE_RULES
from appliance.server.context import Broker
from appliance.server.dispatcher import BadRequest, HandlerEntry, error_answer
from appliance.server.handlers import configs as config_handlers
from appliance.server.handlers import delete_records, list_offsets
from appliance.server.handlers import groups as group_handlers
from appliance.server.handlers import streams_groups as streams_handlers
from appliance.server.handlers import topics as topic_handlers
from appliance.server.handlers import transactions as transaction_handlers
from appliance.server.requests import Pending, Request
from appliance.wire.api import APIS, ApiKey
from appliance.wire.messages.delete_groups import DeleteGroupsRequest
from appliance.wire.messages.internal_clients import BROKER_CLIENTS
from appliance.wire.messages.internal_import import IMPORT_RECORDS
from appliance.wire.messages.internal_metadata import CONTROLLER_STATUS
from appliance.wire.messages.internal_status import BROKER_STATUS
from appliance.wire.schema import Struct

READ, DESCRIBE, DELETE, ALTER = Operation.READ, Operation.DESCRIBE, Operation.DELETE, Operation.ALTER
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
_ONLY_BROKERS = needs(Operation.CLUSTER_ACTION)
_CLUSTER_ERROR = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _name(row: Any) -> str:
    return str(row.name)


def _itself(row: Any) -> str:
    return str(row)


def _describe_groups(broker: Broker, request: Request, access: Access) -> Struct | ErrorCode | None:
    groups.tell_operations(request, access)
    return _EACH_GROUP(broker, request, access)


def _describe_consumer_groups(broker: Broker, request: Request, access: Access) -> Struct | ErrorCode | None:
    groups.tell_operations(request, access)
    amend(request, lambda response: groups.hide_members(broker, access, response))
    return _EACH_CONSUMER_GROUP(broker, request, access)


def _describe_streams_groups(broker: Broker, request: Request, access: Access) -> Struct | ErrorCode | None:
    groups.tell_operations(request, access)
    amend(request, lambda response: groups.hide_streams(broker, access, response))
    return _EACH_STREAMS_GROUP(broker, request, access)


def _delete_groups(broker: Broker, request: Request, access: Access) -> Struct | ErrorCode | None:
    """A group that is named twice has one row in the answer, as it has where nothing is denied."""
    body = cast(DeleteGroupsRequest, request.body)
    body.groups_names = list(dict.fromkeys(body.groups_names))
    return _EACH_DELETED_GROUP(broker, request, access)


def _describe_transactions(broker: Broker, request: Request, access: Access) -> Struct | ErrorCode | None:
    amend(request, lambda response: transactions.hide_topics(access, response))
    return _EACH_TRANSACTION(broker, request, access)


_EACH_GROUP = needs_for_each("groups", "groups", group_handlers.describe_failed, DESCRIBE, GROUP, _itself)
_EACH_CONSUMER_GROUP = needs_for_each(
    "group_ids", "groups", groups.consumer_describe_failed, DESCRIBE, GROUP, _itself, text=True
)
_EACH_STREAMS_GROUP = needs_for_each(
    "group_ids", "groups", streams_handlers.describe_failed, DESCRIBE, GROUP, _itself, text=True
)
_EACH_DELETED_GROUP = needs_for_each("groups_names", "results", group_handlers.delete_failed, DELETE, GROUP, _itself)
_EACH_TRANSACTION = needs_for_each(
    "transactional_ids",
    "transaction_states",
    transaction_handlers.describe_failed,
    DESCRIBE,
    TRANSACTIONAL_ID,
    _itself,
)

RULES: Mapping[int, Rule] = {
    ApiKey.API_VERSIONS: free,
    ApiKey.SASL_HANDSHAKE: free,
    ApiKey.SASL_AUTHENTICATE: free,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: free,
    ApiKey.PUSH_TELEMETRY: free,
    # Ask by themselves, for each topic.
    ApiKey.METADATA: free,
    ApiKey.PRODUCE: records.produce,
    ApiKey.FETCH: records.fetch,
    # Records
    ApiKey.LIST_OFFSETS: needs_for_each("topics", "topics", list_offsets.failed, DESCRIBE, TOPIC, _name),
    ApiKey.DELETE_RECORDS: needs_for_each("topics", "topics", delete_records.failed, DELETE, TOPIC, _name),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: records.offset_for_leader_epoch,
    ApiKey.DESCRIBE_PRODUCERS: records.describe_producers,
    IMPORT_RECORDS: records.import_records,
    # Topics
    ApiKey.CREATE_TOPICS: topics.create,
    ApiKey.DELETE_TOPICS: topics.delete,
    ApiKey.CREATE_PARTITIONS: needs_for_each(
        "topics", "results", topic_handlers.create_partitions_failed, ALTER, TOPIC, _name, text=True, once=True
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: topics.describe_partitions,
    # Configs and quotas
    ApiKey.DESCRIBE_CONFIGS: administration.configs("results", config_handlers.describe_failed, DESCRIBE_CONFIGS),
    ApiKey.ALTER_CONFIGS: administration.configs("responses", config_handlers.alter_failed, ALTER_CONFIGS),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: administration.configs(
        "responses", config_handlers.incremental_alter_failed, ALTER_CONFIGS
    ),
    ApiKey.LIST_CONFIG_RESOURCES: needs(DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: administration.describe_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: needs(ALTER_CONFIGS),
    # The cluster
    ApiKey.DESCRIBE_CLUSTER: administration.describe_cluster,
    ApiKey.ALTER_REPLICA_LOG_DIRS: administration.alter_log_dirs,
    ApiKey.DESCRIBE_LOG_DIRS: administration.describe_log_dirs,
    ApiKey.DESCRIBE_QUORUM: needs(DESCRIBE),
    ApiKey.UPDATE_FEATURES: needs(ALTER),
    ApiKey.ELECT_LEADERS: needs(ALTER),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: administration.alter_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: administration.list_reassignments,
    ApiKey.UNREGISTER_BROKER: needs(ALTER),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: needs(DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: needs(ALTER),
    ApiKey.DESCRIBE_ACLS: needs(DESCRIBE),
    ApiKey.CREATE_ACLS: needs(ALTER),
    ApiKey.DELETE_ACLS: needs(ALTER),
    BROKER_STATUS: needs(DESCRIBE),
    BROKER_CLIENTS: needs(DESCRIBE),
    CONTROLLER_STATUS: needs(DESCRIBE),
    # Groups
    ApiKey.FIND_COORDINATOR: groups.find,
    ApiKey.JOIN_GROUP: groups.join,
    ApiKey.SYNC_GROUP: groups.sync,
    ApiKey.HEARTBEAT: needs(READ, GROUP, "group_id"),
    ApiKey.LEAVE_GROUP: needs(READ, GROUP, "group_id"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: groups.heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _describe_consumer_groups,
    ApiKey.STREAMS_GROUP_HEARTBEAT: groups.streams_heartbeat,
    ApiKey.STREAMS_GROUP_DESCRIBE: _describe_streams_groups,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.LIST_GROUPS: groups.list_groups,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.OFFSET_COMMIT: groups.commit,
    ApiKey.OFFSET_FETCH: groups.fetch_offsets,
    ApiKey.OFFSET_DELETE: groups.delete_offsets,
    # Transactions
    ApiKey.INIT_PRODUCER_ID: transactions.init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.add_offsets,
    ApiKey.END_TXN: needs(Operation.WRITE, TRANSACTIONAL_ID, "transactional_id"),
    ApiKey.WRITE_TXN_MARKERS: transactions.write_markers,
    ApiKey.TXN_OFFSET_COMMIT: groups.commit_in_transaction,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.LIST_TRANSACTIONS: transactions.list_transactions,
    **SHARE_RULES,
}

FREE: Mapping[int, Rule] = {
    ApiKey.API_VERSIONS: free,
    ApiKey.SASL_HANDSHAKE: free,
    ApiKey.SASL_AUTHENTICATE: free,
}
"""Of a controller, whose other APIs are for brokers and controllers alone."""


def guarded(
    handlers: Mapping[int, HandlerEntry],
    control: AccessControl,
    rules: Mapping[int, Rule],
    *,
    in_force: Callable[[], bool] = lambda: True,
) -> dict[int, HandlerEntry]:
    """The same handlers, each behind its rule. `in_force`: whether rules are looked at now."""
    return {key: _guarded(entry, control, rules.get(key, _ONLY_BROKERS), in_force) for key, entry in handlers.items()}


def _guarded(entry: HandlerEntry, control: AccessControl, rule: Rule, in_force: Callable[[], bool]) -> HandlerEntry:
    def handle(context: Any, request: Request) -> Struct | bytes | Pending | None:
        if not in_force():
            return entry.handle(context, request)
        access = request.access = control.of(request.connection, APIS[request.api_key].name)
        refusal = rule(context, request, access)
        if refusal is None:
            return entry.handle(context, request)
        if isinstance(refusal, Struct):
            return refusal
        text = TEXTS[CLUSTER] if refusal is _CLUSTER_ERROR else None
        answer = error_answer(entry, request, refusal, text)
        if answer is None:
            raise BadRequest(f"{request!r} is not authorized: {refusal.name}")
        return answer

    return replace(entry, handle=handle)
