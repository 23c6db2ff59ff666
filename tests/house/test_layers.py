"""Imports follow the road of a record and never turn back. import-linter checks the appliance, the rest is here."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from tests.support.repo import REPO, product_modules, tracked_files

# Connectors and Spark reach the appliance as clients do: over the wire, and through the tier's manifest.
DOORS = (
    "appliance.base",
    "appliance.client",
    "appliance.records",
    "appliance.tiering.lake.catalogs",
    "appliance.tiering.reader",
    "appliance.tiering.stores",
    "appliance.wire",
)
NOT_FOR_THE_PRODUCT = ("tests", "tools", "pytest", "moto", "kafka", "confluent_kafka", "aiokafka", "kio", "hypothesis")


def imports_of(path: Path) -> set[str]:
    """Full names of what a module imports: for `from a.b import c` both `a.b` and `a.b.c`, as c may be a module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((REPO / path).read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def is_within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def test_layers_of_the_appliance() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=REPO, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_connectors_and_spark_come_in_by_the_doors_that_clients_use() -> None:
    outside = [
        f"{path}: {name}"
        for path in product_modules()
        if path.parts[0] in ("connectors", "spark")
        for name in sorted(imports_of(path))
        if is_within(name, ("appliance",)) and not is_within(name, DOORS)
    ]
    assert outside == []


def test_the_product_imports_nothing_that_only_tests_have() -> None:
    wrong = [
        f"{path}: {name}"
        for path in product_modules()
        for name in sorted(imports_of(path))
        if is_within(name, NOT_FOR_THE_PRODUCT)
    ]
    assert wrong == []


def test_tests_have_no_packages_but_their_root() -> None:
    """Tests are found by path; a stray __init__.py would give two tests one name."""
    inits = [str(path) for path in tracked_files() if path.name == "__init__.py" and path.parts[0] == "tests"]
    assert set(inits) <= {"tests/__init__.py", "tests/support/__init__.py", "tests/benchmarks/__init__.py"}
