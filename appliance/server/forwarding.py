"""Requests that only the controller decides: any broker takes them and hands them on."""

from __future__ import annotations

import logging
from collections.abc import Callable

from appliance.base.errors import ErrorCode, KafkaError
from appliance.server.context import Broker
from appliance.server.requests import Pending, Request
from appliance.wire.schema import Struct

_log = logging.getLogger(__name__)

ErrorForm = Callable[[Request, ErrorCode, str | None], Struct | None]
"""The API's answer when everything failed alike."""


def forward(
    broker: Broker,
    request: Request,
    error_form: ErrorForm,
    then: Callable[[Struct, Callable[[], None]], None] | None = None,
) -> Pending:
    """Send the request's body to the controller and answer with its response.

    `then(response, answer)` may hold the answer back for a while; without it, it leaves at once.
    """
    pending = request.pending()

    def done(response: Struct | Exception) -> None:
        if isinstance(response, Struct):
            answer = response
            if then is not None:
                then(response, lambda: pending.answer(answer))
                return
        else:
            _log.info("%r was not decided: %s", request, response)
            code = response.code if isinstance(response, KafkaError) else ErrorCode.REQUEST_TIMED_OUT
            failed = error_form(request, code, "the controller did not answer")
            if failed is None:
                pending.connection.close("a request could not be forwarded and its API has no common error")
                return
            answer = failed
        pending.answer(answer)

    broker.controller.call(request.body, done)
    return pending
