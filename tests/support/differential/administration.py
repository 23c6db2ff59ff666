"""Cases about quotas, features, and what there is."""

from __future__ import annotations

from typing import Any

from appliance.wire.api import ApiKey
from appliance.wire.messages import alter_client_quotas as alter
from appliance.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from appliance.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from appliance.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from appliance.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from appliance.wire.messages.list_config_resources import ListConfigResourcesRequest
from appliance.wire.messages.unregister_broker import UnregisterBrokerRequest
from appliance.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.compat import wait_until
from tests.support.differential.configs import CLIENT_METRICS, GROUP, SET, TOPIC, incremental
from tests.support.differential.sides import Side, case

EXACT, DEFAULT, ANY = range(3)
Entity = list[tuple[str, str | None]]


def entry(entity: Entity, **values: float | None) -> alter.EntryData:
    return alter.EntryData(
        entity=[alter.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[alter.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


@case(ApiKey.ALTER_CLIENT_QUOTAS)
def alter_client_quotas(side: Side) -> None:
    def ask(label: str, *entries: alter.EntryData, **fields: Any) -> None:
        side.ask(label, alter.AlterClientQuotasRequest(entries=list(entries), **fields))

    user, client = ("user", side.named("u")), ("client-id", side.named("c"))
    ask("looked at", entry([user], producer_byte_rate=1e9), validate_only=True)
    ask("set", entry([user], producer_byte_rate=1e9, request_percentage=200.5))
    ask("both", entry([user, client], consumer_byte_rate=1e9, controller_mutation_rate=100.0))
    ask("an address", entry([("ip", "127.0.0.77")], connection_creation_rate=1e6))
    ask("removed", entry([user], producer_byte_rate=None))
    ask("removed what is not set", entry([user], consumer_byte_rate=None))
    ask("nothing")
    ask("no changes", entry([user]))
    ask("nobody", entry([], producer_byte_rate=1.0))
    ask("a type that is none", entry([("group", "g")], producer_byte_rate=1.0))
    ask("an empty name", entry([("user", "")], producer_byte_rate=1.0))
    ask("a key that is none", entry([user], no_rate=1.0))
    ask("an address's key for a user", entry([user], connection_creation_rate=1.0))
    ask("a user's key for an address", entry([("ip", "127.0.0.77")], producer_byte_rate=1.0))
    ask("an address and a user", entry([("ip", "127.0.0.77"), user], connection_creation_rate=1.0))
    ask("an address that is none", entry([("ip", "no.such.host.invalid")], connection_creation_rate=1.0))
    ask("half a byte", entry([user], producer_byte_rate=0.5))
    ask("good and bad", entry([client], producer_byte_rate=1e9), entry([user], no_rate=1.0))
    ask("cleaned", entry([user], request_percentage=None), entry([client], producer_byte_rate=None),
        entry([user, client], consumer_byte_rate=None, controller_mutation_rate=None),
        entry([("ip", "127.0.0.77")], connection_creation_rate=None))  # fmt: skip


@case(ApiKey.DESCRIBE_CLIENT_QUOTAS)
def describe_client_quotas(side: Side) -> None:
    def ask(label: str, *components: tuple[str, int, str | None], strict: bool = False) -> None:
        rows = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
        side.ask(label, DescribeClientQuotasRequest(components=rows, strict=strict))

    user, client = ("user", side.named("u")), ("client-id", side.named("c"))
    entries = [entry([user], producer_byte_rate=1e9), entry([user, client], consumer_byte_rate=1e9)]
    side.set_up(alter.AlterClientQuotasRequest(entries=entries))
    rows = [ComponentData(entity_type="user", match_type=EXACT, match=user[1])]
    while len(side.set_up(DescribeClientQuotasRequest(components=rows)).entries) < len(entries):
        pass
    ask("a user", ("user", EXACT, user[1]))
    ask("a user alone", ("user", EXACT, user[1]), strict=True)
    ask("a user's client", ("user", EXACT, user[1]), ("client-id", EXACT, client[1]))
    ask("a user's clients", ("user", EXACT, user[1]), ("client-id", ANY, None))
    ask("a user that is none", ("user", EXACT, side.named("nobody")))
    ask("a client of the default", ("user", EXACT, user[1]), ("client-id", DEFAULT, None))
    ask("a type that is none", ("group", ANY, None))
    ask("an empty type", ("", ANY, None))
    ask("a match that is none", ("user", 9, None))
    ask("twice", ("user", ANY, None), ("user", ANY, None))
    ask("an address and a user", ("ip", ANY, None), ("user", ANY, None))
    gone = [entry([user], producer_byte_rate=None), entry([user, client], consumer_byte_rate=None)]
    side.set_up(alter.AlterClientQuotasRequest(entries=gone))


@case(ApiKey.LIST_CONFIG_RESOURCES)
def list_config_resources(side: Side) -> None:
    side.new_topic("t")
    side.set_up(incremental(GROUP, side.named("g"), ("consumer.session.timeout.ms", SET, "50000")))
    side.set_up(incremental(CLIENT_METRICS, side.named("m"), ("interval.ms", SET, "60000")))
    # What was committed just now may not have come to the broker that is asked.
    wait_until(lambda: side.prefix in str(side.set_up(ListConfigResourcesRequest(), side.version)))

    def ask(label: str, *kinds: int) -> None:
        answer = side.set_up(ListConfigResourcesRequest(resource_types=list(kinds)), side.version)
        names = (side.prefix + "-", "1")
        answer.config_resources = sorted(
            (row for row in answer.config_resources if row.resource_name.startswith(names)),
            key=lambda row: (row.resource_type, row.resource_name),
        )
        side.remember(label, answer, side.version)

    ask("all")
    if side.version >= 1:
        for kind in (TOPIC, 4, 8, CLIENT_METRICS, GROUP, 99, 0):
            ask(f"type {kind}", kind)
        ask("two types", TOPIC, GROUP)


@case(ApiKey.UPDATE_FEATURES)
def update_features(side: Side) -> None:
    def ask(label: str, name: str, level: int, *, validate_only: bool = False, **fields: Any) -> None:
        update = FeatureUpdateKey(feature=name, max_version_level=level, **fields)
        side.ask(label, UpdateFeaturesRequest(feature_updates=[update], validate_only=validate_only))

    downwards: dict[str, Any] = {"upgrade_type": 2} if side.version >= 1 else {"allow_downgrade": True}
    ask("as it is", "transaction.version", 2)
    ask("a feature that is none", "no.feature", 1)
    ask("too high a level", "metadata.version", 3_000)
    ask("a negative level", "transaction.version", -1)
    side.ask("nothing", UpdateFeaturesRequest())
    ask("down, and not said so", "share.version", 0)
    ask("up, and said that it is down", "share.version", 1, **downwards)
    if side.version >= 1:
        ask("a kind of update that is none", "transaction.version", 2, upgrade_type=9)
        ask("only looked at", "share.version", 0, validate_only=True, **downwards)
    try:
        ask("down", "share.version", 0, **downwards)
        ask("up again", "share.version", 1)
    finally:
        on = FeatureUpdateKey(feature="share.version", max_version_level=1)
        side.set_up(UpdateFeaturesRequest(feature_updates=[on]))


@case(ApiKey.DESCRIBE_QUORUM)
def describe_quorum(side: Side) -> None:
    def ask(label: str, name: str, partition: int) -> None:
        wanted = TopicData(topic_name=name, partitions=[PartitionData(partition_index=partition)])
        side.ask(label, DescribeQuorumRequest(topics=[wanted]))

    ask("the quorum", "__cluster_metadata", 0)
    ask("a partition that is missing", "__cluster_metadata", 3)
    ask("another topic", "other", 0)
    side.ask("nothing", DescribeQuorumRequest())


SHA_256, SHA_512 = 1, 2


def upserted(user: str, mechanism: int = SHA_256, iterations: int = 4096, **fields: Any) -> ScramCredentialUpsertion:
    given = {"salt": b"salt", "salted_password": b"p" * 32, **fields}
    return ScramCredentialUpsertion(name=user, mechanism=mechanism, iterations=iterations, **given)


@case(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, is_for_compat=True)
def alter_user_scram_credentials(side: Side) -> None:
    def ask(label: str, *rows: ScramCredentialUpsertion | ScramCredentialDeletion) -> None:
        side.ask(label, AlterUserScramCredentialsRequest(
            upsertions=[row for row in rows if isinstance(row, ScramCredentialUpsertion)],
            deletions=[row for row in rows if isinstance(row, ScramCredentialDeletion)],
        ))  # fmt: skip

    def gone(user: str, mechanism: int = SHA_256) -> ScramCredentialDeletion:
        return ScramCredentialDeletion(name=user, mechanism=mechanism)

    user, other = side.named("u"), side.named("other")
    ask("made", upserted(user))
    ask("changed", upserted(user, iterations=8192))
    ask("of two users", upserted(user, SHA_512, salted_password=b"p" * 64), upserted(other))
    ask("twice", upserted(user), upserted(user))
    ask("made and deleted", upserted(user), gone(user))
    ask("good and bad", upserted(user), upserted(other, iterations=1))
    ask("too few iterations", upserted(user, iterations=4095))
    ask("too many iterations", upserted(user, iterations=16385))
    ask("a mechanism that is none", upserted(user, 9))
    ask("no mechanism", upserted(user, 0))
    ask("no name", upserted(""))
    ask("deleted", gone(user))
    ask("deleted again", gone(user))
    ask("deleted, a mechanism that is none", gone(user, 9))
    ask("deleted, a user that is none", gone(side.named("nobody")))
    ask("deleted, no name", gone(""))
    ask("nothing")


@case(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, is_for_compat=True)
def describe_user_scram_credentials(side: Side) -> None:
    one, two = side.named("one"), side.named("two")
    rows = [upserted(one), upserted(one, SHA_512, 8192, salted_password=b"p" * 64), upserted(two)]
    for row in rows:
        side.set_up(AlterUserScramCredentialsRequest(upsertions=[row]))

    def of(*users: str) -> DescribeUserScramCredentialsRequest:
        return DescribeUserScramCredentialsRequest(users=[UserName(name=user) for user in users])

    wait_until(lambda: not any(row.error_code for row in side.set_up(of(one, two)).results))
    side.ask("one", of(one))
    side.ask("two", of(two, one))
    side.ask("one that is none", of(side.named("nobody")))
    side.ask("one, and one that is none", of(one, side.named("nobody")))
    side.ask("twice", of(one, one))
    side.ask("no name", of(""))


@case(ApiKey.UNREGISTER_BROKER, is_for_compat=True)
def unregister_broker(side: Side) -> None:
    side.ask("a broker that is missing", UnregisterBrokerRequest(broker_id=77))
    side.ask("a negative one", UnregisterBrokerRequest(broker_id=-1))
