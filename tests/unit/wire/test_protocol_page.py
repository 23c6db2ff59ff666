from __future__ import annotations

import re

from appliance.wire.api import APIS
from tests.support.repo import REPO

ROW = re.compile(r"^\| (\d+) \| (\w+) \| (\d+)(?:-(\d+))?(?: \(stable to (\d+)\))? \| (\d+|never) \|$", re.MULTILINE)


def test_the_page_lists_what_is_declared() -> None:
    page = (REPO / "docs" / "protocol.md").read_text()
    listed = [
        (int(key), name, int(low), int(high or low), int(stable or high or low), None if flex == "never" else int(flex))
        for key, name, low, high, stable, flex in ROW.findall(page)
    ]
    assert listed == [
        (api.key, api.name, api.min_version, api.max_version, api.max_stable_version, api.flexible_from)
        for api in APIS.values()
    ]
