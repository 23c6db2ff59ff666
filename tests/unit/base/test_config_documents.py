"""The pages about configs say what the definitions say."""

from __future__ import annotations

from appliance.base.config_differences import DIFFERENT_DEFAULTS
from appliance.base.config_documents import BEGIN_MARK, END_MARK, configuration_page, differences_table
from tests.support.repo import REPO

HOW = "run `python -m appliance.base.config_documents docs`"


def test_the_configuration_page_is_up_to_date() -> None:
    assert (REPO / "docs" / "configuration.md").read_text() == configuration_page(), HOW


def test_the_page_of_differences_is_up_to_date() -> None:
    assert f"{BEGIN_MARK}\n{differences_table()}{END_MARK}" in (REPO / "docs" / "differences.md").read_text(), HOW


def test_every_difference_has_its_reason() -> None:
    for name, difference in DIFFERENT_DEFAULTS.items():
        assert f"`{name}`" in differences_table()
        assert len(difference.reason) > 20
