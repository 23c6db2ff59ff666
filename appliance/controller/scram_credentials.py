"""AlterUserScramCredentials: SCRAM users of the cluster (KIP-554). One row for each user, judged by itself."""

from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.controller.decisions import Decision, Rules, answer
from appliance.controller.image import MetadataImage
from appliance.controller.records import Record, ScramCredentialSet
from appliance.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism, credential_of
from appliance.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)

Problem = tuple[ErrorCode, str]


def alter_scram_credentials(request: AlterUserScramCredentialsRequest, image: MetadataImage, rules: Rules) -> Decision:
    """A user with any problem stays as it was; one that is named twice, in whatever mechanisms, has one."""
    problems: dict[str, Problem | None] = {}
    records: list[tuple[str, Record]] = []

    def judge(name: str, problem: Problem | None) -> bool:
        if name in problems:
            problem = (ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
        problems[name] = problems.get(name) or problem
        return problem is None

    for deletion in request.deletions:
        problem = _name_and_mechanism(deletion.name, deletion.mechanism)
        if problem is None and (deletion.name, deletion.mechanism) not in image.scram_credentials:
            problem = (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        if judge(deletion.name, problem):
            records.append((deletion.name, ScramCredentialSet(deletion.name, deletion.mechanism, None)))
    for upsertion in request.upsertions:
        if judge(upsertion.name, _upsertion_problem(upsertion)):
            records.append((upsertion.name, _record(upsertion)))
    rows = [
        AlterUserScramCredentialsResult(
            user=name,
            error_code=problem[0] if problem else ErrorCode.NONE,
            error_message=problem[1] if problem else None,
        )
        for name, problem in problems.items()
    ]
    kept = [record for name, record in records if problems[name] is None]
    return answer(AlterUserScramCredentialsResponse(results=rows), kept)


def _name_and_mechanism(name: str, mechanism: int) -> Problem | None:
    if not name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if mechanism not in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    return None


def _upsertion_problem(upsertion: ScramCredentialUpsertion) -> Problem | None:
    problem = _name_and_mechanism(upsertion.name, upsertion.mechanism)
    if problem is not None:
        return problem
    if upsertion.iterations < MIN_ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
    if upsertion.iterations > MAX_ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    return None


def _record(upsertion: ScramCredentialUpsertion) -> ScramCredentialSet:
    kept = credential_of(
        ScramMechanism(upsertion.mechanism),
        bytes(upsertion.salted_password),
        bytes(upsertion.salt),
        upsertion.iterations,
    )
    return ScramCredentialSet(
        upsertion.name, upsertion.mechanism, kept.salt, kept.iterations, kept.stored_key, kept.server_key
    )
