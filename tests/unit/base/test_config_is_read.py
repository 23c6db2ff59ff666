"""A key that nothing reads says so: somebody who sets it must not be left believing."""

from __future__ import annotations

from dataclasses import fields

import pytest

from appliance.base.config import BROKER_CONFIGS, TOPIC_CONFIGS
from appliance.base.config_types import ConfigKey
from appliance.http_ingest.limits import HttpLimits
from tests.support.repo import REPO, product_modules

SOURCES = "\n".join(
    (REPO / path).read_text() for path in product_modules() if not path.name.startswith(("config_def", "config_doc"))
)
HTTP_KEYS = {"http." + field.name.replace("_", ".") for field in fields(HttpLimits)}
SYNONYMS = {synonym for key in TOPIC_CONFIGS.values() for synonym in key.synonyms}


@pytest.mark.parametrize(
    "key",
    [key for key in BROKER_CONFIGS.values() if not key.no_effect and key.name not in SYNONYMS],
    ids=lambda key: key.name,
)
def test_a_broker_config_is_read_or_says_why_not(key: ConfigKey) -> None:
    # The HTTP gateway's keys are the fields of its limits.
    named = key.name in HTTP_KEYS or f'"{key.name}"' in SOURCES
    assert named, f"nothing reads {key.name}: give it a reason, or remove it"
