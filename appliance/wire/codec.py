"""Messages to bytes and back, with Kafka's request and response headers."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, TypeVar

from appliance.wire.api import ApiKey, api_of
from appliance.wire.compiler import decoder_of, encoder_of
from appliance.wire.schema import Struct, UnsupportedVersion, WireError
from appliance.wire.varint import skip_tag_section

__all__ = [
    "Buffer",
    "RequestHeader",
    "UnsupportedVersion",
    "WireError",
    "decode",
    "decode_from",
    "decode_request_header",
    "decode_response",
    "encode",
    "encode_parts",
    "encode_request",
    "encode_response",
]

Buffer = bytes | bytearray | memoryview
Message = TypeVar("Message", bound=Struct)

_REQUEST_HEADER = struct.Struct(">hhih")
"""api_key, api_version, correlation_id, length of client_id (an int16 also in flexible versions)."""
_REQUEST_START = struct.Struct(">ihhih")
"""size in bytes of what follows, then the request header."""
_RESPONSE_START = struct.Struct(">ii")
"""size in bytes of what follows, correlation_id."""
_CORRELATION_ID = struct.Struct(">i")


MAX_HEADER_TAGS = 1_000
"""Kafka has defined none so far."""


class RequestHeader(NamedTuple):
    """The header of a request; `body_offset` is where its body begins in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def encode_parts(message: Struct, version: int) -> list[Any]:
    """The message as a list of parts to be sent one after the other.

    A Records field is a part of its own and is not looked into: anything with a length may stand there, such as a
    slice of a file that the sender hands to sendfile.

    Raises:
        UnsupportedVersion: the message has no such version.
        WireError: a field holds what this version cannot carry.
    """
    parts: list[Any] = []
    _encode(message, version, parts)
    return parts


def _encode(message: Struct, version: int, parts: list[Any]) -> None:
    cls = type(message)
    encoder = cls.__wire__.encoders.get(version) or encoder_of(cls, version)
    try:
        encoder(message, parts.append)
    except WireError:
        raise
    except (struct.error, AttributeError, TypeError, ValueError) as error:
        raise WireError(f"{cls.__name__} version {version} cannot be encoded: {error}") from error


def encode(message: Struct, version: int) -> bytes:
    """The bytes of a message without any header.

    Raises:
        UnsupportedVersion: the message has no such version.
        WireError: a field holds what this version cannot carry.
    """
    parts: list[bytes] = []
    _encode(message, version, parts)
    return b"".join(parts)


def decode(cls: type[Message], buffer: Buffer, version: int) -> Message:
    """Read a message from the beginning of a buffer; as in Kafka, bytes behind it are ignored.

    Raises:
        UnsupportedVersion: the message has no such version.
        WireError: the bytes are not such a message.
    """
    return decode_from(cls, buffer, version, 0)[0]


def decode_from(cls: type[Message], buffer: Buffer, version: int, position: int) -> tuple[Message, int]:
    """Read a message at a position of a buffer; returns it and the position behind it.

    Raises:
        UnsupportedVersion: the message has no such version.
        WireError: the bytes are not such a message.
    """
    decoder = cls.__wire__.decoders.get(version) or decoder_of(cls, version)
    try:
        return decoder(memoryview(buffer), position)
    except (struct.error, IndexError) as error:
        raise WireError(f"{cls.__name__} version {version} is cut off after {len(buffer)} bytes") from error
    except UnicodeDecodeError as error:
        raise WireError(f"{cls.__name__} version {version} has a string that is not UTF-8: {error}") from error


def encode_request(request: Struct, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A request as it goes over the wire: size, header, body.

    Raises:
        UnsupportedVersion: the request has no such version.
        WireError: a field holds what this version cannot carry.
    """
    wire = type(request).__wire__
    name = b"" if client_id is None else client_id.encode()
    parts: list[bytes] = [b"", name]
    if wire.is_flexible_in(version):
        parts.append(b"\0")
    _encode(request, version, parts)
    size = sum(map(len, parts)) + _REQUEST_HEADER.size
    name_length = -1 if client_id is None else len(name)
    try:
        parts[0] = _REQUEST_START.pack(size, wire.api_key, version, correlation_id, name_length)
    except struct.error as error:
        raise WireError(f"the header of {type(request).__name__} cannot be encoded: {error}") from error
    return b"".join(parts)


def encode_response(response: Struct, version: int, correlation_id: int) -> bytes:
    """A response as it goes over the wire: size, header, body.

    Raises:
        UnsupportedVersion: the response has no such version.
        WireError: a field holds what this version cannot carry.
    """
    parts: list[bytes] = [b""]
    if _has_tagged_header(type(response), version):
        parts.append(b"\0")
    _encode(response, version, parts)
    parts[0] = _RESPONSE_START.pack(sum(map(len, parts)) + _CORRELATION_ID.size, correlation_id)
    return b"".join(parts)


def _has_tagged_header(response: type[Struct], version: int) -> bool:
    """Whether the response header ends with a tag section.

    ApiVersions never has one (KIP-511): the client does not know yet which versions its peer speaks.
    """
    wire = response.__wire__
    return wire.is_flexible_in(version) and wire.api_key != ApiKey.API_VERSIONS


def decode_request_header(frame: Buffer) -> RequestHeader:
    """Read the header of a frame without its size.

    For an API that is not declared the body's offset is the one of an old header: nobody can read the body anyway.

    Raises:
        WireError: the bytes are not a request header.
    """
    view = memoryview(frame)
    try:
        api_key, api_version, correlation_id, name_length = _REQUEST_HEADER.unpack_from(view, 0)
        offset = _REQUEST_HEADER.size
        client_id = None
        if name_length >= 0:
            stop = offset + name_length
            if stop > len(view):
                raise WireError(f"the client id ends {stop - len(view)} bytes behind the request")
            client_id = str(view[offset:stop], "utf-8")
            offset = stop
        api = api_of(api_key)
        if api is not None and api.flexible_from is not None and api_version >= api.flexible_from:
            if view[offset]:
                offset, _ = skip_tag_section(view, offset, MAX_HEADER_TAGS)
            else:
                offset += 1
    except (struct.error, IndexError) as error:
        raise WireError(f"a request header is cut off after {len(view)} bytes") from error
    except UnicodeDecodeError as error:
        raise WireError(f"a client id is not UTF-8: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id, offset)


def decode_response(cls: type[Message], frame: Buffer, version: int) -> tuple[int, Message]:
    """Read a response frame without its size; returns the correlation id and the response.

    Raises:
        UnsupportedVersion: the response has no such version.
        WireError: the bytes are not such a response.
    """
    view = memoryview(frame)
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(view, 0)
        offset = _CORRELATION_ID.size
        if _has_tagged_header(cls, version):
            offset, _ = skip_tag_section(view, offset, MAX_HEADER_TAGS)
    except (struct.error, IndexError) as error:
        raise WireError(f"a response header is cut off after {len(view)} bytes") from error
    return correlation_id, decode_from(cls, view, version, offset)[0]
