"""DescribeConfigs 0-4 from this broker's own knowledge; AlterConfigs 0-2 and IncrementalAlterConfigs 0-1 forwarded.

All keys of a topic or broker are listed, with their values, where those come from, synonyms, types and documentation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from appliance.base.config import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    BrokerConfig,
    ConfigRow,
    describe_broker,
    describe_topic,
)
from appliance.base.config_resources import RESOURCES, describe_resource
from appliance.base.config_types import ConfigSource
from appliance.base.errors import ErrorCode, KafkaError
from appliance.server.context import Broker
from appliance.server.forwarding import forward
from appliance.server.handlers.metadata import is_legal_topic_name
from appliance.server.requests import Pending, Request
from appliance.wire.messages import alter_configs as alter_messages
from appliance.wire.messages import incremental_alter_configs as incremental_messages
from appliance.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from appliance.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
SOURCES_SINCE = 1
"""Before this version of DescribeConfigs only defaults are told from other values."""


def describe(broker: Broker, request: Request) -> DescribeConfigsResponse:
    body = cast(DescribeConfigsRequest, request.body)
    results = [_describe_one(broker, body, resource) for resource in body.resources]
    if request.api_version < SOURCES_SINCE:
        for row in (row for result in results for row in result.configs):
            row.is_default = row.config_source == ConfigSource.DEFAULT_CONFIG
    return DescribeConfigsResponse(results=results)


def _describe_one(
    broker: Broker, body: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        rows = _rows(broker, resource)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message or ""
        return result
    # As in Kafka, an empty text where all is well.
    result.error_message = ""
    result.configs = [_row(row, body.include_synonyms, body.include_documentation) for row in rows]
    return result


def _rows(broker: Broker, resource: DescribeConfigsResource) -> list[ConfigRow]:
    name = resource.resource_name
    # As in Kafka, an empty list of keys asks for all of them too.
    keys = resource.configuration_keys or None
    if resource.resource_type == TOPIC:
        if not is_legal_topic_name(name):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"no topic can be named {name!r}")
        state = broker.image.topics.get(name)
        if state is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return describe_topic(state.configs, broker.config, _known(keys, TOPIC_CONFIGS))
    if resource.resource_type == BROKER:
        if name == "":
            # What is set for all brokers, and nothing of this one's own.
            present = BrokerConfig({}, {}, broker.image.broker_configs.get("", {}))
            rows = describe_broker(present, _known(keys, BROKER_CONFIGS))
            of_all = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
            rows = [row for row in rows if row.source is of_all]
            return [replace(row, synonyms=[one for one in row.synonyms if one.source is of_all]) for row in rows]
        if name != str(broker.broker_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {broker.broker_id}; it does not know the configs of {name!r}",
            )
        return describe_broker(broker.config, _known(keys, BROKER_CONFIGS))
    if resource.resource_type in RESOURCES:
        kind = resource.resource_type
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{RESOURCES[kind].what} have a name")
        return describe_resource(kind, broker.image.resource_configs.get((kind, name), {}), broker.config, keys)
    if resource.resource_type == BROKER_LOGGER and name == str(broker.broker_id):
        return []
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"no resource has type {resource.resource_type}")


def _known(keys: list[str] | None, table: object) -> list[str] | None:
    return None if keys is None else [key for key in keys if key in table]  # type: ignore[operator]


def _row(row: ConfigRow, with_synonyms: bool, with_documentation: bool) -> DescribeConfigsResourceResult:
    synonyms = row.synonyms if with_synonyms else []
    return DescribeConfigsResourceResult(
        name=row.name,
        value=row.value,
        read_only=row.read_only,
        config_source=row.source,
        is_sensitive=row.is_sensitive,
        synonyms=[DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source) for one in synonyms],
        config_type=row.type,
        documentation=row.doc if with_documentation else None,
    )


def describe_failed(request: Request, code: ErrorCode, message: str | None) -> DescribeConfigsResponse:
    body = cast(DescribeConfigsRequest, request.body)
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in body.resources
        ]
    )


def alter(broker: Broker, request: Request) -> Pending:
    return forward(broker, request, alter_failed)


def alter_failed(request: Request, code: ErrorCode, message: str | None) -> alter_messages.AlterConfigsResponse:
    body = cast(alter_messages.AlterConfigsRequest, request.body)
    return alter_messages.AlterConfigsResponse(
        responses=[
            alter_messages.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in body.resources
        ]
    )


def incremental_alter(broker: Broker, request: Request) -> Pending:
    return forward(broker, request, incremental_alter_failed)


def incremental_alter_failed(request: Request, code: ErrorCode, message: str | None) -> IncrementalAlterConfigsResponse:
    body = cast(IncrementalAlterConfigsRequest, request.body)
    return IncrementalAlterConfigsResponse(
        responses=[
            incremental_messages.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in body.resources
        ]
    )
