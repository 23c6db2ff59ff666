"""The table of clients: every suite has a line, and a run of some leaves the others' lines as they were."""

from __future__ import annotations

from tests.support.compat_table import (
    BEGIN,
    CLIENTS,
    END,
    SUITES,
    by_client,
    is_in_part,
    kept_with,
    row,
    row_of,
    with_rows,
)


def test_every_suite_is_known_and_tells_its_clients_version() -> None:
    folders = {path.parent.name for path in SUITES.glob("*/test_*.py")}
    assert folders == CLIENTS.keys()
    for name, client in CLIENTS.items():
        if name not in ("kcat", "spark_kafka"):  # these ask a program, and the benchmark's peer
            assert client.version(SUITES / name)[0].isdigit(), name


def test_what_kafka_passes_and_we_do_not_is_a_difference() -> None:
    ours = {"a::one": "passed", "a::two": "failed", "a::three": "passed", "a::four": "skipped"}
    theirs = {"a::one": "passed", "a::two": "passed", "a::three": "skipped", "a::four": "passed"}
    cells = row("kcat", ours, theirs, "today", "1.7").split(" | ")
    assert cells == ["| kcat, librdkafka", "1.7", "2 of 3", "3 of 3", "2", "`four`, `two`", "today |"]


def test_lines_of_clients_that_did_not_run_stay() -> None:
    document = f"before\n{BEGIN}\n{END}\nafter\n"
    first = with_rows(document, {"kcat": row("kcat", {}, {}, "day 1", "1"), "java": row("java", {}, {}, "day 1", "2")})
    second = with_rows(first, {"java": row("java", {}, {}, "day 2", "3")})
    lines = second[second.index(BEGIN) : second.index(END)].splitlines()[3:]
    assert [line.split(" | ")[-1] for line in lines] == ["day 1 |", "day 2 |"]
    assert second.startswith("before\n") and second.endswith(f"{END}\nafter\n")


def test_tests_belong_to_the_suite_in_whose_folder_they_are() -> None:
    outcomes = {"tests/compat/kcat/test_kcat.py::one": "passed", "tests/compat/test_not_yet.py::two": "passed"}
    assert by_client(outcomes) == {"kcat": {"tests/compat/kcat/test_kcat.py::one": "passed"}}


def test_parts_of_a_suite_have_every_test_once() -> None:
    parts = [[number for number in range(10) if is_in_part(number, f"{which}/3")] for which in (1, 2, 3)]
    assert sorted(number for part in parts for number in part) == list(range(10))
    assert parts[0][:2] == [0, 3] and is_in_part(7, "")


def test_a_row_is_written_once_each_test_has_run_on_both_sides_and_is_as_old_as_the_oldest() -> None:
    tests = ["a::one", "a::two"]
    ours = kept_with({}, {"a::one": "passed"}, tests, "2026-02-02, b")
    theirs = kept_with({"a::gone": ("passed", "2026-01-01, a")}, dict.fromkeys(tests, "passed"), tests, "2026-02-01, a")
    assert theirs.keys() == set(tests), "what is no test any more is forgotten"
    assert row_of("kcat", ours, theirs, tests, "1") is None
    ours = kept_with(ours, {"a::two": "failed"}, tests, "2026-02-03, c")
    line = row_of("kcat", ours, theirs, tests, "1")
    assert line is not None
    assert line.split(" | ")[2:] == ["1 of 2", "2 of 2", "0", "`two`", "2026-02-01, a |"]
