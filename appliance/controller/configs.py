"""AlterConfigs and IncrementalAlterConfigs, for topics, brokers, groups and client metrics.

The old form replaces all entries of a resource; the incremental one (KIP-339) sets, deletes, appends to a list or takes
away from it. Each resource is judged by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from appliance.base.config import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    ConfigRow,
    describe_broker,
    describe_topic,
    validate_broker_config,
    validate_topic_config,
)
from appliance.base.config_resources import RESOURCES, describe_resource, validate_resource_config
from appliance.base.config_types import ConfigKey, ConfigType
from appliance.base.errors import ErrorCode, KafkaError
from appliance.controller.decisions import Decision, Rules, answer
from appliance.controller.elections import follow_configs
from appliance.controller.image import MetadataImage
from appliance.controller.records import BrokerConfigSet, Record, ResourceConfigSet, TopicConfigSet
from appliance.wire.messages import alter_configs, incremental_alter_configs


class ResourceType(IntEnum):
    """Whose configuration it is."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


class Alteration(IntEnum):
    """What an entry of IncrementalAlterConfigs does."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class _Change:
    """What a request wants of one resource."""

    resource_type: int
    name: str
    entries: tuple[tuple[str, int, str | None], ...]
    """Key, what to do, value."""
    replaces_all: bool


def alter(request: alter_configs.AlterConfigsRequest, image: MetadataImage, rules: Rules) -> Decision:
    """AlterConfigs: one row for each resource, in the request's order."""
    wanted = [
        _Change(
            resource.resource_type,
            resource.resource_name,
            tuple((entry.name, Alteration.SET, entry.value) for entry in resource.configs),
            replaces_all=True,
        )
        for resource in request.resources
    ]
    records, errors = _decide(wanted, image, rules)
    rows = [
        alter_configs.AlterConfigsResourceResponse(
            error_code=error.code if error else ErrorCode.NONE,
            error_message=error.message if error else None,
            resource_type=change.resource_type,
            resource_name=change.name,
        )
        for change, error in zip(wanted, errors, strict=True)
    ]
    return answer(alter_configs.AlterConfigsResponse(responses=rows), [] if request.validate_only else records)


def alter_incrementally(
    request: incremental_alter_configs.IncrementalAlterConfigsRequest, image: MetadataImage, rules: Rules
) -> Decision:
    """IncrementalAlterConfigs: one row for each resource, in the request's order."""
    wanted = [
        _Change(
            resource.resource_type,
            resource.resource_name,
            tuple((entry.name, entry.config_operation, entry.value) for entry in resource.configs),
            replaces_all=False,
        )
        for resource in request.resources
    ]
    records, errors = _decide(wanted, image, rules)
    rows = [
        incremental_alter_configs.AlterConfigsResourceResponse(
            error_code=error.code if error else ErrorCode.NONE,
            error_message=error.message if error else None,
            resource_type=change.resource_type,
            resource_name=change.name,
        )
        for change, error in zip(wanted, errors, strict=True)
    ]
    response = incremental_alter_configs.IncrementalAlterConfigsResponse(responses=rows)
    return answer(response, [] if request.validate_only else records)


def _decide(
    wanted: Sequence[_Change], image: MetadataImage, rules: Rules
) -> tuple[list[Record], list[KafkaError | None]]:
    counts = Counter((change.resource_type, change.name) for change in wanted)
    records: list[Record] = []
    errors: list[KafkaError | None] = []
    for change in wanted:
        try:
            if counts[change.resource_type, change.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.name!r} stands in the request more than once")
            records += _records_of(change, image, rules)
            errors.append(None)
        except KafkaError as error:
            errors.append(error)
    return [*records, *follow_configs(image, records, rules)], errors


def _records_of(change: _Change, image: MetadataImage, rules: Rules) -> list[Record]:
    config = rules.config_of(image)
    match change.resource_type:
        case ResourceType.TOPIC:
            if not change.name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic has a name")
            topic = image.topics.get(change.name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {change.name}")
            after = _applied(change, topic.configs, TOPIC_CONFIGS, lambda key: describe_topic({}, config, [key]))
            validate_topic_config(after, config)
            return [TopicConfigSet(topic.topic_id, key, value) for key, value in _difference(topic.configs, after)]
        case ResourceType.BROKER:
            _check_broker(change.name, image)
            present = image.broker_configs.get(change.name, {})
            after = _applied(change, present, BROKER_CONFIGS, lambda key: describe_broker(config, [key]))
            # Only what is altered must be alterable.
            validate_broker_config({key: after.get(key) for key, _, _ in change.entries}, rules.config)
            return [BrokerConfigSet(change.name, key, value) for key, value in _difference(present, after)]
        case ResourceType.GROUP | ResourceType.CLIENT_METRICS as kind:
            if not change.name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{RESOURCES[kind].what} have a name")
            present = image.resource_configs.get((kind, change.name), {})
            keys = RESOURCES[kind].definitions
            after = _applied(change, present, keys, lambda key: describe_resource(kind, {}, config, [key]))
            validate_resource_config(kind, after, config)
            return [ResourceConfigSet(kind, change.name, key, value) for key, value in _difference(present, after)]
        case other:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"resources of type {other} have no configuration here")


def _check_broker(name: str, image: MetadataImage) -> None:
    """The empty name stands for all brokers."""
    if name and not (name.isascii() and name.isdigit()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a broker is named by its id or not at all, not by {name!r}")
    if name and (str(int(name)) != name or int(name) not in image.brokers):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {name} is not registered")


def _applied(
    change: _Change,
    present: Mapping[str, str],
    keys: Mapping[str, ConfigKey],
    default_of: Callable[[str], list[ConfigRow]],
) -> dict[str, str]:
    """The entries that the resource is to have."""
    after = {} if change.replaces_all else dict(present)
    repeated = [key for key, count in Counter(key for key, _, _ in change.entries).items() if count > 1]
    if repeated:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{repeated[0]} stands in the request more than once")
    for name, alteration, value in change.entries:
        if alteration == Alteration.DELETE:
            after.pop(name, None)
            continue
        if value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} cannot be set to null")
        if alteration == Alteration.SET:
            after[name] = value
            continue
        if alteration not in (Alteration.APPEND, Alteration.SUBTRACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no config operation {alteration}")
        key = keys.get(name)
        if key is not None and key.type is not ConfigType.LIST:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} is not a list: nothing can be added or taken away")
        text = after[name] if name in after else next((row.value for row in default_of(name)), None)
        items = [item for item in (text or "").split(",") if item]
        given = [item.strip() for item in value.split(",") if item.strip()]
        if alteration == Alteration.APPEND:
            items += [item for item in given if item not in items]
        else:
            items = [item for item in items if item not in given]
        after[name] = ",".join(items)
    return after


def _difference(before: Mapping[str, str], after: Mapping[str, str]) -> list[tuple[str, str | None]]:
    """(key, new value or None for none) of all entries that differ."""
    return [(key, after.get(key)) for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
