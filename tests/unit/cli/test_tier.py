"""`appliance tier` over a directory store with known objects."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from appliance.cli.main import app
from tests.support.tiered import Tiered
from tests.support.total_loss import tier


@pytest.fixture
def tiered(tmp_path: Path) -> Tiered:
    tiered = Tiered(tmp_path, leader_epoch=3)
    for _ in range(3):
        tiered.hosted.append_segment()
    tiered.tier()
    return tiered


def test_ls_shows_partitions_and_their_objects(tiered: Tiered) -> None:
    url = tiered.store.url
    code, (row,) = tier("ls", url, "--objects")
    assert code == 0
    assert (row["topic"], row["partition"], row["start_offset"], row["end_offset"]) == ("flights", 0, 0, 36)
    assert (row["segments"], row["copy"], row["garbage"]) == (3, "on", 0)
    assert [(one["start_offset"], one["end_offset"]) for one in row["objects"]] == [(0, 12), (12, 24), (24, 36)]
    assert sum(one["size_bytes"] for one in row["objects"]) == row["size_bytes"]
    assert tier("ls", url, "--topic", "trains") == (0, [])
    text = CliRunner().invoke(app, ["tier", "ls", url]).stdout
    assert "flights-0" in text and "36" in text


def test_verify_ends_with_1_and_names_what_is_wrong(tiered: Tiered) -> None:
    url = tiered.store.url
    code, report = tier("verify", url)
    assert (code, report["whole"]) == (0, True)
    tiered.store.inner.delete(tiered.object_name(1))
    code, report = tier("verify", url)
    assert (code, report["whole"]) == (1, False)
    assert [one["kind"] for one in report["partitions"][0]["problems"]] == ["missing"]
    assert "missing: seg/" in CliRunner().invoke(app, ["tier", "verify", url]).stdout


def test_a_store_without_a_tier_cannot_be_restored_from(tmp_path: Path) -> None:
    assert tier("restore", (tmp_path / "empty").as_uri())[0] == 1
