"""Bodies to records."""

from __future__ import annotations

import pytest

from appliance.http_ingest.bodies import BadRecord, BadRequest, IngestRecord, LineReader, record_of, records_of_json


def only(body: bytes) -> IngestRecord | BadRecord:
    (record,) = records_of_json(body)
    return record


def complaint(text: bytes) -> str:
    record = record_of(text)
    assert isinstance(record, BadRecord)
    return f"{record.error}: {record.message}"


def test_a_json_value_is_stored_as_its_bytes() -> None:
    assert only(b'{"value": {"b": 1,  "a": [2.50]}}') == IngestRecord(b'{"b": 1,  "a": [2.50]}')
    assert only(b'{"value": 7}') == IngestRecord(b"7")
    assert only(b'{"value": true, "key": 12}') == IngestRecord(b"true", b"12")


def test_a_string_is_stored_as_its_text() -> None:
    assert only(b'{"value": "gr\\u00fcn \\"x\\"", "key": "N14228"}') == IngestRecord('grün "x"'.encode(), b"N14228")
    assert only(b'{"value": "", "key": ""}') == IngestRecord(b"", b"")


def test_null_is_no_value() -> None:
    assert only(b'{"value": null, "key": "k"}') == IngestRecord(None, b"k")
    assert only(b'{"value_base64": null, "key": null}') == IngestRecord(None, None)


def test_base64_carries_any_bytes() -> None:
    assert only(b'{"value_base64": "AP8=", "key_base64": "/w=="}') == IngestRecord(b"\x00\xff", b"\xff")


def test_headers_timestamp_and_partition() -> None:
    record = only(b'{"value": 1, "headers": {"a": "x", "b": null}, "timestamp": 1357034400000, "partition": 3}')
    assert record == IngestRecord(b"1", None, [("a", b"x"), ("b", None)], 1357034400000, 3)


def test_one_object_an_array_and_a_wrapped_array_are_bodies() -> None:
    assert [
        record.value for record in records_of_json(b' [{"value":1},{"value":2}]') if isinstance(record, IngestRecord)
    ] == [b"1", b"2"]
    assert [
        record.value for record in records_of_json(b'{"records":[{"value":1}]}') if isinstance(record, IngestRecord)
    ] == [b"1"]


@pytest.mark.parametrize(
    "body", [b"", b"   ", b"7", b'"x"', b'{"value":', b"[{]", b"[1}", b"\xff\xfe", b'{"value": 1} trailing']
)
def test_a_body_that_is_not_json_of_these_shapes_is_refused_whole(body: bytes) -> None:
    try:
        records = list(records_of_json(body))
    except BadRequest as bad:
        assert (bad.status, bad.error) == (400, "INVALID_JSON")
    else:
        assert [type(record) for record in records] == [BadRecord]


def test_a_body_without_records_is_refused() -> None:
    for body in (b"[]", b'{"records": []}'):
        with pytest.raises(BadRequest, match="no records"):
            records_of_json(body)


def test_a_bad_record_leaves_its_neighbours_alone() -> None:
    kinds = [type(record) for record in records_of_json(b'[{"value":1},{"valu":2},7,{"value":3}]')]
    assert kinds == [IngestRecord, BadRecord, BadRecord, IngestRecord]


def test_complaints_say_what_is_wrong() -> None:
    assert "needs a value" in complaint(b'{"key": "k"}')
    assert "valu" in complaint(b'{"valu": 1}')
    assert "exclude each other" in complaint(b'{"value": 1, "value_base64": "AA=="}')
    assert "not base64" in complaint(b'{"value_base64": "&&"}')
    assert "timestamp" in complaint(b'{"value": 1, "timestamp": -1}')
    assert "partition" in complaint(b'{"value": 1, "partition": -1}')
    assert "headers" in complaint(b'{"value": 1, "headers": {"a": 1}}')
    assert complaint(b'{"value": "\xff"}').startswith("INVALID_JSON")


def test_a_raw_line_is_the_value_itself() -> None:
    assert record_of(b"anything at all", raw=True) == IngestRecord(b"anything at all")


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100])
def test_lines_come_whole_however_the_bytes_arrive(step: int) -> None:
    body = b"one\r\n\ntwo\n  \nthree"
    reader = LineReader(100)
    lines = [line for start in range(0, len(body), step) for line in reader.feed(body[start : start + step])]
    assert lines + reader.finish() == [b"one", b"two", b"three"]


def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    reader = LineReader(10)
    assert reader.feed(b"short\n123456789") == [b"short"]
    with pytest.raises(BadRequest) as caught:
        reader.feed(b"0123")
    assert caught.value.status == 413
