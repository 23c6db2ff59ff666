"""Makes an encoder and a decoder for one version of one message: Python source, generated once and executed.

A message has nested structs and dozens of fields; walking a description of them for each request would cost more than
the request. The source that is made here has no description left in it: neighbouring fields of fixed size become one
`struct` call, nested structs are written out in place, only the fields of that version appear.
"""

from __future__ import annotations

import linecache
import struct
from typing import Any

from appliance.wire.decoder_source import DecoderSource
from appliance.wire.encoder_source import EncoderSource
from appliance.wire.schema import Decoder, Encoder, Struct, UnsupportedVersion


def encoder_of(cls: type[Struct], version: int) -> Encoder:
    """The encoder of a whole message for a version, made at first use.

    Raises:
        UnsupportedVersion: the message has no such version.
    """
    known = cls.__wire__.encoders.get(version)
    if known is None:
        source = EncoderSource(_check(cls, version), version)
        known = cls.__wire__.encoders[version] = _execute(source.write(cls), source.names, cls, version, "encode")
    return known


def decoder_of(cls: type[Struct], version: int) -> Decoder:
    """The decoder of a whole message for a version, made at first use.

    Raises:
        UnsupportedVersion: the message has no such version.
    """
    known = cls.__wire__.decoders.get(version)
    if known is None:
        source = DecoderSource(_check(cls, version), version)
        known = cls.__wire__.decoders[version] = _execute(source.write(cls), source.names, cls, version, "decode")
    return known


def _check(cls: type[Struct], version: int) -> bool:
    """Whether that version is flexible; refuses one that does not exist."""
    wire = cls.__wire__
    if wire.versions is None or not wire.versions[0] <= version <= wire.versions[1]:
        raise UnsupportedVersion(f"{cls.__name__} has no version {version}")
    return wire.is_flexible_in(version)


def _execute(lines: list[str], names: dict[str, Any], cls: type[Struct], version: int, function: str) -> Any:
    source = "\n".join(lines) + "\n"
    filename = f"<{function} {cls.__name__} version {version}>"
    # Tracebacks and profilers show the generated lines.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace = {**names, "unpack_from": struct.unpack_from, "pack": struct.pack}
    exec(compile(source, filename, "exec"), namespace)
    return namespace[function]
