"""AlterUserScramCredentials: SCRAM users come, change and go (KIP-554). Passwords arrive salted."""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bytes, Int8, Int16, Int32, String


class ScramCredentialDeletion(Struct):
    name: String = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(Struct):
    name: String = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Bytes = b""
    salted_password: Bytes = b""


class AlterUserScramCredentialsRequest(
    Request["AlterUserScramCredentialsResponse"], api_key=51, versions=(0, 0), flexible_from=0
):
    deletions: list[ScramCredentialDeletion] = field()
    upsertions: list[ScramCredentialUpsertion] = field()


class AlterUserScramCredentialsResult(Struct):
    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""


class AlterUserScramCredentialsResponse(Struct, api_key=51, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult] = field()
