"""What the documents say is there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.repo import REPO, text_of, tracked_files

LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\(([^)\s]+)\)")
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
MAKE_TARGET = re.compile(r"`make ([a-z][a-z-]*)")
DOCUMENTS = tuple(path for path in tracked_files() if path.suffix == ".md")


def anchors_of(text: str) -> set[str]:
    """The names that a heading can be reached by: lower case, spaces to dashes, most other signs dropped."""
    headings = re.findall(r"^#+ +(.+)$", CODE_BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(document: Path) -> list[str]:
    text = CODE_BLOCK.sub("", text_of(document) or "")
    broken = []
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue  # the world outside is not for a test to ask
        target, _, anchor = link.partition("#")
        path = (REPO / document).parent / target if target else REPO / document
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors_of(path.read_text())):
            broken.append(f"{document}: {link}")
    return broken


def test_links_lead_somewhere() -> None:
    assert len(DOCUMENTS) >= 4
    assert [link for document in DOCUMENTS for link in broken_links(document)] == []


def test_make_targets_that_are_named_exist() -> None:
    targets = re.findall(r"^([a-z][a-z-]*):", (REPO / "Makefile").read_text(), re.MULTILINE)
    named = {target for document in DOCUMENTS for target in MAKE_TARGET.findall(text_of(document) or "")}
    assert named and named <= set(targets)


def test_every_config_key_is_documented() -> None:
    from appliance.base.config import BROKER_CONFIGS, TOPIC_CONFIGS

    documented = "\n".join(text_of(path) or "" for path in DOCUMENTS if path.parts[0] == "docs")
    keys = sorted({*BROKER_CONFIGS, *TOPIC_CONFIGS})
    assert [key for key in keys if f"`{key}`" not in documented] == []


def test_every_dependency_has_its_note() -> None:
    """A new dependency is a decision: docs/decisions/ says why in a few lines."""
    notes = "\n".join(text_of(path) or "" for path in DOCUMENTS if path.parts[:2] == ("docs", "decisions"))
    project = (REPO / "pyproject.toml").read_text()
    block = project[project.index("dependencies = [") : project.index("[project.scripts]")]
    names = sorted({re.split(r"[\[<>=;]", spec)[0] for spec in re.findall(r'"([a-z0-9A-Z\-]+[\[<>=][^"]*)"', block)})
    assert len(names) > 20
    assert [name for name in names if f"`{name}`" not in notes] == []


class _AnyBroker:
    """Stands for a broker of which handlers are only made."""

    def __getattr__(self, name: str) -> _AnyBroker:
        return self

    def __call__(self, *arguments: object) -> int:
        return 1_000


def test_the_served_apis_are_those_that_the_document_names() -> None:
    from appliance.controller.features import FEATURES
    from appliance.server.broker_api import broker_handlers
    from appliance.server.handlers.api_versions import FIRST_OWN_API_KEY
    from appliance.wire.api import APIS

    text = text_of(Path("docs/compatibility.md")) or ""
    section = text[text.index("## Served APIs") : text.index("## Not yet")]
    named = re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b|\b(?:Produce|Fetch|Heartbeat|Metadata)\b", section)
    served = {APIS[key].name for key in broker_handlers(_AnyBroker()) if key < FIRST_OWN_API_KEY}  # type: ignore[arg-type]
    assert sorted(named) == sorted(served)
    assert all(f"{name} {feature.at_first}" in section for name, feature in FEATURES.items())
