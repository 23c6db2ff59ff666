"""Ledgers, pages and the name of the output that counts, as bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from crc32c import crc32c

from appliance.tiering.lake.ledger import (
    CorruptLedger,
    LakeFile,
    Ledger,
    LedgerPage,
    Plan,
    Skipped,
    encode_ledger,
    encode_page,
    parse_ledger,
    parse_page,
)
from appliance.tiering.lake.names import (
    DATA,
    DEAD,
    FileName,
    Output,
    file_name,
    folder_part,
    parse_file_name,
    parse_output,
)
from appliance.tiering.lake.spec import LakeSpec
from tests.support.repo import REPO
from tests.support.tier_objects import TOPIC, TOPIC_ID

GOLDEN = REPO / "tests" / "golden" / "tiering"
FILES = (
    LakeFile(DATA, 2, file_name(DATA, "event_date=2026-01-01/", 3, 2, 0), 10, 19, 8, 4_711, 123),
    LakeFile(DEAD, 2, file_name(DEAD, "", 3, 2, 1), 12, 13, 1, 815, 456),
)
LEDGER = Ledger(
    output=str(Output(TOPIC_ID, 1)),
    topic=TOPIC,
    topic_id=TOPIC_ID,
    partition=3,
    version=7,
    next_offset=20,
    plan_no=3,
    schema="id bigint, `odd name` array<string>",
    rows=264,
    dead=1,
    plan=Plan(3, 20, 25, 1, "id bigint", LakeSpec(schema="id bigint", partition_by=("hour", "country"))),
    files=FILES,
    pages=(LedgerPage("page/000000", 12_345, 789, 256, 256),),
    skipped=(Skipped(0, 5, "expired"),),
)


def test_the_ledger_of_version_1_stays_readable() -> None:
    golden = (GOLDEN / "lake-ledger-1.json").read_bytes()
    assert parse_ledger(golden) == LEDGER and encode_ledger(LEDGER) == golden


def test_the_page_of_version_1_stays_readable() -> None:
    data = (GOLDEN / "lake-page-1.json").read_bytes()
    page = LedgerPage("page/000000", len(data), crc32c(data), 2, 9)
    assert parse_page(data, page) == FILES and data == encode_page(LEDGER, FILES)
    with pytest.raises(CorruptLedger, match="not the page"):
        parse_page(data, page._replace(crc32c=1))


def test_a_ledger_without_plan_comes_back() -> None:
    plain = replace(LEDGER, plan=None, files=(), pages=(), skipped=())
    assert parse_ledger(encode_ledger(plain)) == plain


def test_a_damaged_ledger_is_not_believed() -> None:
    data = encode_ledger(LEDGER)
    for position in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[position] ^= 2
        with pytest.raises(CorruptLedger):
            parse_ledger(bytes(damaged))


def test_names_come_back() -> None:
    name = file_name(DATA, folder_part("a/b", "x y=%") + folder_part("c", None), 3, 14, 15)
    assert name == "data/a%2Fb=x y%3D%25/c=__HIVE_DEFAULT_PARTITION__/00003-0000000014-0015.parquet"
    assert parse_file_name(name) == FileName(DATA, 3, 14, 15)
    assert parse_file_name("data/stranger.parquet") is None
    output = Output(TOPIC_ID, 12)
    assert parse_output(output.folder + name) == (output, name)
    assert parse_output("tier/x") is None
