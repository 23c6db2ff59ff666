"""Which of the two decoders is used: the compiled helper where `make native` built it, else numpy. Both do the same."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from appliance.records.errors import CorruptBatch
from spark import decode_numpy
from spark.decode_numpy import HEADER_TYPE, TIMESTAMP_TYPE, Piece

NATIVE_VARIABLE = "APPLIANCE_SPARK_NATIVE"
"""Set to 0, the compiled helper is left alone even where it is."""

_log = logging.getLogger(__name__)


def _load() -> Any:
    if os.environ.get(NATIVE_VARIABLE) == "0":
        _log.info("records are decoded with numpy, as %s=0 says", NATIVE_VARIABLE)
        return None
    try:
        native = importlib.import_module("spark._native")
    except ImportError as error:
        _log.info("records are decoded with numpy, for there is no compiled helper (`make native`): %s", error)
        return None
    _log.info("records are decoded by the compiled helper")
    return native


_NATIVE = _load()


def is_native() -> bool:
    """Whether this process decodes with the compiled helper."""
    return _NATIVE is not None


def read_columns(pieces: Sequence[Piece], names: Collection[str]) -> dict[str, pa.Array]:
    """See `decode_numpy.read_columns`. Raises: CorruptBatch."""
    if _NATIVE is None:
        return decode_numpy.read_columns(pieces, names)
    return read_columns_native(_NATIVE, pieces, names)


def read_columns_native(native: Any, pieces: Sequence[Piece], names: Collection[str]) -> dict[str, pa.Array]:
    """The same by the compiled helper, whose buffers become Arrow's without a copy. Raises: CorruptBatch."""
    try:
        rows, offsets, timestamps, key, value, headers = native.read_columns(
            pieces, "key" in names, "value" in names, "headers" in names
        )
    except (ValueError, OverflowError) as error:
        raise CorruptBatch(f"batches at offsets {pieces[0].base_offset} to {pieces[-1].base_offset}: {error}") from None
    found: dict[str, pa.Array] = {}
    if "offset" in names:
        found["offset"] = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(offsets)])
    if "timestamp" in names:
        found["timestamp"] = pa.Array.from_buffers(TIMESTAMP_TYPE, rows, [None, pa.py_buffer(timestamps)])
    if "key" in names:
        found["key"] = _variable(pa.binary(), rows, key)
    if "value" in names:
        found["value"] = _variable(pa.binary(), rows, value)
    if "headers" in names:
        validity, lists, count, header_key, header_value = headers
        structs = pa.StructArray.from_arrays(
            [_variable(pa.string(), count, header_key), _variable(pa.binary(), count, header_value)],
            fields=list(HEADER_TYPE),
        )
        buffers = [_validity(validity), pa.py_buffer(lists)]
        found["headers"] = pa.Array.from_buffers(pa.list_(HEADER_TYPE), rows, buffers, children=[structs])
    return found


def _variable(kind: pa.DataType, rows: int, column: tuple[Any, Any, Any]) -> pa.Array:
    validity, offsets, data = column
    return pa.Array.from_buffers(kind, rows, [_validity(validity), pa.py_buffer(offsets), pa.py_buffer(data)])


def _validity(bitmap: Any) -> Any:
    return None if bitmap is None else pa.py_buffer(bitmap)
