"""The table of clients: every suite has a line, and a run of some leaves the others' lines as they were."""

from __future__ import annotations

from tests.support.compat_table import BEGIN, CLIENTS, END, SUITES, by_client, row, with_rows


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
    assert cells == ["| kcat", "1.7", "2 of 3", "3 of 3", "2", "`four`, `two`", "today |"]


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
