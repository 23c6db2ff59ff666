from __future__ import annotations

import pytest

from appliance.tiering.names import ObjectName, manifest_name, parse_folder, parse_name
from tests.support.tier_objects import TOPIC_ID


def test_a_name_carries_range_epoch_and_sequence_and_reads_back() -> None:
    name = ObjectName("seg", 5, 2**63 - 1, 7, 12)
    assert str(name) == "seg/00000000000000000005-09223372036854775807-0000000007-0000000012"
    assert parse_name(str(name)) == name


def test_names_sort_by_their_first_offset() -> None:
    names = [ObjectName("seg", start, start + 1, 1, 1) for start in (9, 10, 99, 100)]
    assert sorted(map(str, names)) == list(map(str, names))


@pytest.mark.parametrize("text", ["", "manifest.json", "seg/1-2-3-4", "lake/00000000000000000005", "seg/" + "x" * 64])
def test_other_names_are_not_taken_for_ours(text: str) -> None:
    assert parse_name(text) is None


def test_a_full_name_leads_back_to_its_partition() -> None:
    full = manifest_name(TOPIC_ID, 3)
    assert full == "tier/ABEiM0RVZneImaq7zN3u_w/00003/manifest.json"
    assert parse_folder(full) == (TOPIC_ID, 3, "manifest.json")
    assert parse_folder("tier/short/00003/manifest.json") is None
    assert parse_folder("metadata/log/00000000000000000001") is None
