from __future__ import annotations

from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode
from appliance.base.randomness import SeededRandomness
from appliance.controller.decisions import Rules
from appliance.controller.delta import MetadataDelta
from appliance.controller.image import MetadataImage
from appliance.controller.records import decode_records, encode_records
from appliance.controller.scram_credentials import alter_scram_credentials
from appliance.controller.snapshots import records_of
from appliance.security.scram import ScramMechanism, credential_of
from appliance.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

RULES = Rules(BrokerConfig(), SeededRandomness(1))


def alter(image: MetadataImage, *changes: object) -> tuple[MetadataImage, dict[str, ErrorCode]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[one for one in changes if isinstance(one, ScramCredentialDeletion)],
        upsertions=[one for one in changes if isinstance(one, ScramCredentialUpsertion)],
    )
    decision = alter_scram_credentials(request, image, RULES)
    delta = MetadataDelta(image)
    delta.apply_commit(image.position + 1, decode_records(encode_records(decision.records)))
    answer = decision.respond(image)
    return delta.build(), {row.user: ErrorCode(row.error_code) for row in answer.results}  # type: ignore[union-attr]


def put(name: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"p" * 32
    )


def test_a_user_comes_survives_a_snapshot_and_goes() -> None:
    image, errors = alter(MetadataImage(), put("alice"), put("bob"))
    assert errors == {"alice": ErrorCode.NONE, "bob": ErrorCode.NONE}
    image, _ = alter(image, put("alice", 2))
    expected = credential_of(ScramMechanism.SCRAM_SHA_256, b"p" * 32, b"salt", 4096)
    assert image.scram_credentials["alice", 1] == expected
    again = MetadataDelta(MetadataImage())
    again.apply_commit(1, decode_records(encode_records(list(records_of(image)))))
    assert again.build().scram_credentials == image.scram_credentials
    image, _ = alter(image, ScramCredentialDeletion(name="alice", mechanism=1))
    assert sorted(image.scram_credentials) == [("alice", 2), ("bob", 1)]


def test_the_log_holds_nothing_from_which_a_client_could_make_a_proof() -> None:
    request = AlterUserScramCredentialsRequest(upsertions=[put("alice")])
    records = encode_records(alter_scram_credentials(request, MetadataImage(), RULES).records)
    assert b"p" * 32 not in records


def test_a_user_with_any_problem_stays_as_it_was_and_others_are_altered() -> None:
    image, errors = alter(
        MetadataImage(),
        put("twice"),
        put("twice"),
        put("few", iterations=1),
        put("many", iterations=20_000),
        put("odd", mechanism=3),
        put(""),
        put("half"),
        put("half", 2),
        ScramCredentialDeletion(name="ghost", mechanism=1),
        put("fine"),
    )
    assert errors == {
        "ghost": ErrorCode.RESOURCE_NOT_FOUND,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
        "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "odd": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "half": ErrorCode.DUPLICATE_RESOURCE,
        "fine": ErrorCode.NONE,
    }
    assert list(image.scram_credentials) == [("fine", 1)]
