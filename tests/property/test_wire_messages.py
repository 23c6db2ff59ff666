"""Whatever a version can carry comes back as it was, and no part of it alone is taken for the whole."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.wire.api import APIS
from appliance.wire.codec import (
    WireError,
    decode_from,
    decode_request_header,
    decode_response,
    encode,
    encode_request,
    encode_response,
)
from appliance.wire.schema import Struct
from tests.support.wire_messages import declared_messages, declared_versions, random_message, versions_of

SOURCES = st.randoms(use_true_random=False)
INT32 = st.integers(-(2**31), 2**31 - 1)


@pytest.mark.parametrize("cls", declared_messages(), ids=lambda cls: cls.__name__)
@settings(max_examples=25, deadline=None)
@given(data=st.data(), source=SOURCES)
def test_a_message_comes_back_as_it_was(cls: type[Struct], data: st.DataObject, source: random.Random) -> None:
    version = data.draw(st.sampled_from(versions_of(cls)))
    message = random_message(cls, version, source)
    written = encode(message, version)
    assert decode_from(cls, written, version, 0) == (message, len(written))


@pytest.mark.parametrize("seed", range(10))
def test_every_version_of_every_message_comes_back_as_it_was(seed: int) -> None:
    source = random.Random(seed)
    for cls, version in declared_versions():
        message = random_message(cls, version, source, most=5)
        written = encode(message, version)
        assert decode_from(cls, written, version, 0) == (message, len(written)), (cls, version)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(declared_versions()), SOURCES, st.text(max_size=20) | st.none(), st.integers(-(2**31), 2**31 - 1)
)
def test_a_frame_comes_back_with_its_header(
    case: tuple[type, int], source: random.Random, client_id: str | None, correlation_id: int
) -> None:
    cls, version = case
    api = APIS.get(cls.__wire__.api_key)
    if api is None:
        return
    message = random_message(cls, version, source)
    if cls is api.request:
        frame = encode_request(message, version, correlation_id, client_id)[4:]
        header = decode_request_header(frame)
        assert header[:4] == (api.key, version, correlation_id, client_id)
        assert decode_from(cls, frame, version, header.body_offset) == (message, len(frame))
    else:
        frame = encode_response(message, version, correlation_id)[4:]
        assert decode_response(cls, frame, version) == (correlation_id, message)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(declared_versions()), SOURCES)
def test_a_message_that_is_cut_off_anywhere_is_refused(case: tuple[type, int], source: random.Random) -> None:
    cls, version = case
    written = encode(random_message(cls, version, source, most=2), version)
    for cut in range(0, len(written), max(1, len(written) // 50)):
        try:
            decode_from(cls, written[:cut], version, 0)
        except WireError:
            continue
        raise AssertionError(f"{cls.__name__} version {version} was read from {cut} of {len(written)} bytes")
