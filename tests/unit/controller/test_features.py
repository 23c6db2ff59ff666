"""Which levels of features may be asked for, and what comes of it."""

from __future__ import annotations

import pytest

from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode
from appliance.base.randomness import SeededRandomness
from appliance.controller.decisions import Rules
from appliance.controller.features import FEATURES, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE, level_of, update_features
from appliance.controller.image import MetadataImage
from appliance.controller.records import FeatureLevelSet, Record
from appliance.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

RULES = Rules(BrokerConfig(), SeededRandomness(1))
Update = tuple[str, int, int]


def update(image: MetadataImage, *updates: Update, validate_only: bool = False) -> tuple[int, list[Record]]:
    keys = [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates]
    request = UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only)
    decision = update_features(request, image, RULES)
    response = decision.respond(image)
    assert response is not None
    return response.error_code, list(decision.records)


@pytest.mark.parametrize(
    ("name", "level", "kind"),
    [
        ("no.feature", 1, UPGRADE),
        ("share.version", -1, SAFE_DOWNGRADE),
        ("share.version", 2, UPGRADE),
        ("share.version", 0, UPGRADE),
        ("share.version", 1, 0),
        ("share.version", 1, 9),
        ("kraft.version", 1, SAFE_DOWNGRADE),
        ("metadata.version", 29, SAFE_DOWNGRADE),
        ("metadata.version", 29, UNSAFE_DOWNGRADE),
        ("metadata.version", 31, UPGRADE),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_else_is_done(name: str, level: int, kind: int) -> None:
    others = ("streams.version", 0, SAFE_DOWNGRADE)
    assert update(MetadataImage(), others, (name, level, kind)) == (ErrorCode.INVALID_UPDATE_VERSION, [])


def test_a_level_falls_when_that_is_asked_for_and_rises_again() -> None:
    image = MetadataImage()
    assert update(image, ("transaction.version", 1, SAFE_DOWNGRADE)) == (0, [FeatureLevelSet("transaction.version", 1)])
    fallen = MetadataImage(features={"transaction.version": 1})
    assert level_of(fallen, "transaction.version") == 1
    assert update(fallen, ("transaction.version", 2, UPGRADE)) == (0, [FeatureLevelSet("transaction.version", 2)])
    assert update(fallen, ("transaction.version", 2, SAFE_DOWNGRADE))[0] == ErrorCode.INVALID_UPDATE_VERSION


def test_what_is_in_force_already_and_what_is_only_to_be_checked_changes_nothing() -> None:
    image = MetadataImage()
    assert update(image, *((name, level_of(image, name), UPGRADE) for name in FEATURES)) == (0, [])
    assert update(image, ("share.version", 0, SAFE_DOWNGRADE), validate_only=True) == (0, [])


def test_of_two_updates_of_a_feature_the_last_one_counts() -> None:
    twice = (("share.version", 0, SAFE_DOWNGRADE), ("share.version", 1, UPGRADE))
    assert update(MetadataImage(), *twice) == (0, [])
