"""DescribeUserScramCredentials: which users have which SCRAM mechanisms (KIP-554)."""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int8, Int16, Int32, String


class UserName(Struct):
    name: String = ""


class DescribeUserScramCredentialsRequest(
    Request["DescribeUserScramCredentialsResponse"], api_key=50, versions=(0, 0), flexible_from=0
):
    users: list[UserName] | None = field()


class CredentialInfo(Struct):
    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribeUserScramCredentialsResult(Struct):
    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""
    credential_infos: list[CredentialInfo] = field()


class DescribeUserScramCredentialsResponse(Struct, api_key=50, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    results: list[DescribeUserScramCredentialsResult] = field()
