"""CreateAcls, DeleteAcls and DescribeAcls: the access control lists. Each row of a request is judged by itself."""

from __future__ import annotations

from appliance.authorizer.bindings import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    picked,
)
from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode, KafkaError
from appliance.controller.decisions import Decision, Rules, answer
from appliance.controller.image import MetadataImage
from appliance.controller.records import AclSet, Record
from appliance.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from appliance.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from appliance.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

ACLS_MAX = 100_000
"""Lines of all access control lists together."""
_RESOURCE_TYPES, _PATTERN_TYPES = frozenset(map(int, ResourceType)), frozenset(map(int, PatternType))
_OPERATIONS, _PERMISSIONS = frozenset(map(int, Operation)), frozenset(map(int, Permission))
NO_AUTHORIZER = "No Authorizer is configured."


def has_authorizer(config: BrokerConfig) -> bool:
    """Whether the configs name one."""
    return bool(config.get("authorizer.class.name"))


def create_acls(request: CreateAclsRequest, image: MetadataImage, rules: Rules) -> Decision:
    """What is there already is created once more without a change."""
    results: list[AclCreationResult] = []
    records: dict[AclBinding, Record] = {}
    for creation in request.creations:
        # As in Kafka, an empty text where all is well.
        result = AclCreationResult(error_message="")
        results.append(result)
        try:
            if not has_authorizer(rules.config):
                raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
            binding = _created(creation)
            if binding in image.acls or binding in records:
                continue
            if len(image.acls) + len(records) >= ACLS_MAX:
                raise KafkaError(ErrorCode.POLICY_VIOLATION, f"there are {ACLS_MAX} access control entries")
            records[binding] = AclSet(*binding)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    return answer(CreateAclsResponse(results=results), list(records.values()))


def _created(creation: AclCreation) -> AclBinding:
    """Raises: KafkaError."""
    kind, name = creation.resource_type, creation.resource_name
    if kind == ResourceType.ANY or kind not in _RESOURCE_TYPES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid resourceType {kind}")
    if kind == ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    if creation.resource_pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid patternType {creation.resource_pattern_type}")
    if creation.operation == Operation.ANY or creation.operation not in _OPERATIONS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid operationType {creation.operation}")
    if creation.permission_type not in (Permission.DENY, Permission.ALLOW):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid permissionType {creation.permission_type}")
    if ":" not in creation.principal:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a principal is type:name, not {creation.principal!r}")
    return AclBinding(
        kind,
        name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def delete_acls(request: DeleteAclsRequest, image: MetadataImage, rules: Rules) -> Decision:
    """A line that two filters let through is told twice."""
    results: list[DeleteAclsFilterResult] = []
    records: dict[AclBinding, Record] = {}
    for row in request.filters:
        result = DeleteAclsFilterResult(error_message=None)
        results.append(result)
        try:
            if not has_authorizer(rules.config):
                raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
            found = sorted(picked(image.acls.keys(), _filter(row)))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        result.matching_acls = [_told(binding) for binding in found]
        records |= {binding: AclSet(*binding, present=False) for binding in found}
    return answer(DeleteAclsResponse(filter_results=results), list(records.values()))


def _told(binding: AclBinding) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=binding.resource_type,
        resource_name=binding.name,
        pattern_type=binding.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )


def describe_acls(request: DescribeAclsRequest, image: MetadataImage) -> DescribeAclsResponse:
    """One row for each pattern."""
    try:
        found = sorted(picked(image.acls.keys(), _filter(request)))
    except KafkaError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for binding in found:
        place = (binding.resource_type, binding.name, binding.pattern_type)
        resource = resources.get(place)
        if resource is None:
            resource = resources[place] = DescribeAclsResource(
                resource_type=binding.resource_type, resource_name=binding.name, pattern_type=binding.pattern_type
            )
        resource.acls.append(
            AclDescription(
                principal=binding.principal,
                host=binding.host,
                operation=binding.operation,
                permission_type=binding.permission,
            )
        )
    return DescribeAclsResponse(error_message="", resources=list(resources.values()))


def _filter(row: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter:
    """Raises: KafkaError."""
    if row.resource_type_filter not in _RESOURCE_TYPES or row.pattern_type_filter not in _PATTERN_TYPES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    if row.operation not in _OPERATIONS or row.permission_type not in _PERMISSIONS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
    return AclFilter(
        row.resource_type_filter,
        row.resource_name_filter,
        row.pattern_type_filter,
        row.principal_filter,
        row.host_filter,
        row.operation,
        row.permission_type,
    )
