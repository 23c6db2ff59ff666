"""Features of the cluster and their levels (KIP-584), and UpdateFeatures 0-2, which raises and lowers them.

- A new cluster has the levels of Kafka 4.3. What was altered since is in the metadata log.
- One update that is wrong fails all, and the answer names the first one. Of several about a feature the last counts.
- As in Kafka, metadata.version cannot be lowered.
- Lowering a feature does what it does there: without group.version, share.version or streams.version groups of that
  kind are not served; clients read transaction.version. kraft.version changes nothing here.
"""

from __future__ import annotations

from typing import NamedTuple

from appliance.base.errors import ErrorCode, KafkaError
from appliance.controller.decisions import Decision, Rules, answer
from appliance.controller.image import MetadataImage
from appliance.controller.records import FeatureLevelSet, Record
from appliance.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION = "group.version", "share.version", "streams.version"


class Feature(NamedTuple):
    """The levels that there are, and that of a new cluster."""

    lowest: int
    highest: int
    at_first: int
    may_fall: bool = True


FEATURES: dict[str, Feature] = {
    "eligible.leader.replicas.version": Feature(0, 1, 1, may_fall=False),
    GROUP_VERSION: Feature(0, 1, 1),
    "kraft.version": Feature(0, 1, 0, may_fall=False),
    "metadata.version": Feature(7, 30, 30, may_fall=False),
    SHARE_VERSION: Feature(0, 1, 1),
    STREAMS_VERSION: Feature(0, 1, 1),
    "transaction.version": Feature(0, 2, 2),
}


def level_of(image: MetadataImage, name: str) -> int:
    """The level that is in force."""
    return image.features.get(name, FEATURES[name].at_first)


def update_features(request: UpdateFeaturesRequest, image: MetadataImage, rules: Rules) -> Decision:
    records: list[Record] = []
    for update in {update.feature: update for update in request.feature_updates}.values():
        try:
            _check(update, image)
        except KafkaError as error:
            what = f"level {update.max_version_level} for {update.feature}"
            message = f"Nothing was changed, because of {what}: {error.message}"
            return answer(UpdateFeaturesResponse(error_code=error.code, error_message=message))
        if update.max_version_level != level_of(image, update.feature):
            records.append(FeatureLevelSet(update.feature, update.max_version_level))
    return answer(UpdateFeaturesResponse(error_message=None), [] if request.validate_only else records)


def _check(update: FeatureUpdateKey, image: MetadataImage) -> None:
    """Raises: KafkaError."""
    level, kind, known = update.max_version_level, update.upgrade_type, FEATURES.get(update.feature)
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _refused(f"there is no kind of update {kind}")
    if level < 0:
        raise _refused("a level is not below 0")
    if known is None:
        raise _refused("there is no such feature")
    if not known.lowest <= level <= known.highest:
        raise _refused(f"its levels go from {known.lowest} to {known.highest}")
    present = level_of(image, update.feature)
    if level < present and kind == UPGRADE:
        raise _refused(f"it is at {present}, and a lower level has to be asked for as a downgrade")
    if level < present and not known.may_fall:
        raise _refused(f"it is at {present} and cannot be lowered")
    if level > present and kind != UPGRADE:
        raise _refused(f"it is at {present}, and a higher level is no downgrade")


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
