"""What rules are made of.

A rule looks at a request before its handler does. It may take rows out of the body, which are then answered with their
error beside what the handler says of the others (`Request.amend`), or refuse everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

from appliance.authorizer.bindings import Operation, ResourceType
from appliance.base.errors import ErrorCode
from appliance.server.access import Access
from appliance.server.context import Broker
from appliance.server.forwarding import ErrorForm
from appliance.server.requests import Request
from appliance.wire.schema import Struct

Rule: TypeAlias = Callable[[Broker, Request, Access], Struct | ErrorCode | None]
"""None: the handler goes on. A struct is the answer; an error is put into the API's own form."""

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
DENIED = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
TEXTS = {
    TOPIC: "Topic authorization failed.",
    GROUP: "Group authorization failed.",
    CLUSTER: "Cluster authorization failed.",
    TRANSACTIONAL_ID: "Transactional Id authorization failed.",
}


def free(broker: Broker, request: Request, access: Access) -> None:
    """Everybody may ask."""


def needs(operation: Operation, kind: ResourceType = CLUSTER, name_in: str = "") -> Rule:
    """One operation for the whole request; `name_in`: the field of the body that names the resource."""

    def rule(broker: Broker, request: Request, access: Access) -> ErrorCode | None:
        allowed = (
            access.may(operation, kind, getattr(request.body, name_in)) if name_in else access.may(operation, kind)
        )
        return None if allowed else DENIED[kind]

    return rule


def needs_for_each(
    rows: str,
    results: str,
    failed: ErrorForm,
    operation: Operation,
    kind: ResourceType,
    name_of: Callable[[Any], str],
    *,
    text: bool = False,
    once: bool = False,
) -> Rule:
    """One operation for each row of the list `rows`; denied ones are told in the list `results` of the answer.

    `failed` is the API's answer in which all rows of the body have the same error; `text`: with words; `once`: what is
    named more than once is the handler's to refuse.
    """

    def rule(broker: Broker, request: Request, access: Access) -> Struct | None:
        wanted = getattr(request.body, rows)
        times = Counter(name_of(row) for row in wanted) if once else {}
        allowed = [times.get(name_of(row), 1) > 1 or access.may(operation, kind, name_of(row)) for row in wanted]
        if all(allowed):
            return None
        return refuse_rows(request, rows, results, failed, allowed, kind, text=text)

    return rule


def refuse_rows(
    request: Request,
    rows: str,
    results: str,
    failed: ErrorForm,
    allowed: list[bool],
    kind: ResourceType,
    *,
    text: bool = False,
) -> Struct | None:
    """Take rows that are not allowed out of the body; returns the answer when none is left."""
    body: Any = request.body
    wanted = getattr(body, rows)
    setattr(body, rows, [row for row, good in zip(wanted, allowed, strict=True) if not good])
    refused: Any = failed(request, DENIED[kind], TEXTS[kind] if text else None)
    kept = [row for row, good in zip(wanted, allowed, strict=True) if good]
    setattr(body, rows, kept)
    if not kept:
        answer: Struct = refused
        return answer

    def tell(response: Any) -> None:
        # Where the whole answer is one error, it is that of all rows.
        if not getattr(response, "error_code", ErrorCode.NONE):
            getattr(response, results).extend(getattr(refused, results))

    amend(request, tell)
    return None


def amend(request: Request, change: Callable[[Any], None]) -> None:
    """Have the answer changed once it is there, after what others change of it."""
    before = request.amend

    def both(response: Struct) -> None:
        if before is not None:
            before(response)
        change(response)

    request.amend = both
