"""Files are of a size to be read, say what they are for, and name no machine."""

from __future__ import annotations

import ast
import re
import warnings

from tests.support.repo import REPO, product_modules, text_of, tracked_files

MAX_LINES = 600
GOOD_LINES = 500
CODE_SUFFIXES = (".py", ".c", ".sh", ".tf", ".hcl")

# Pieces are joined here, so that this file does not find itself.
LEFT_UNDONE = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")
REGISTRY_HOSTS = ("pyp" + "i.org", "pythonhosted" + ".org", "crates" + ".io", "npmjs" + ".org", "maven" + ".org/maven2")
REGISTRY_HOSTS += ("deb.debian" + ".org", "proxy.golang" + ".org", "maven.apache" + ".org/maven2")
MACHINE_PATHS = re.compile(
    "(?<![\\w.])/(?:" + "|".join(["wor" + "k", "roo" + "t", "hom" + "e/\\w+", "Use" + "rs"]) + ")/"
)


def files_with(pattern: re.Pattern[str]) -> list[str]:
    """`file:line: text` of every line in which it is found."""
    found = []
    for path in tracked_files():
        for number, line in enumerate((text_of(path) or "").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path}:{number}: {line.strip()[:120]}")
    return found


def test_a_file_of_code_is_something_to_read_over_a_coffee() -> None:
    lines = {path: len((text_of(path) or "").splitlines()) for path in tracked_files() if path.suffix in CODE_SUFFIXES}
    for path, count in lines.items():
        if GOOD_LINES < count <= MAX_LINES:
            warnings.warn(f"{path} has {count} lines: time to give its second idea a home", stacklevel=1)
    assert {str(path): count for path, count in lines.items() if count > MAX_LINES} == {}


def test_nothing_is_left_for_later_in_a_comment() -> None:
    assert files_with(LEFT_UNDONE) == []


def test_no_file_names_a_package_registry() -> None:
    assert files_with(re.compile("|".join(map(re.escape, REGISTRY_HOSTS)))) == []


def test_no_file_names_a_folder_of_somebodys_machine() -> None:
    assert files_with(MACHINE_PATHS) == []


def test_a_module_says_what_it_is_for() -> None:
    silent = []
    for path in product_modules():
        tree = ast.parse((REPO / path).read_text())
        if tree.body and not ast.get_docstring(tree):  # an empty __init__.py has nothing to say
            silent.append(str(path))
    assert silent == []
