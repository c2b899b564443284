"""An HTTP answer as received, and the lenient decoding of its body. Pure; imports no HTTP library.

An answer that was paid for must not be lost because one entry of its JSON is invalid. So invalid entries are dropped.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import zstandard
from pydantic import ValidationError

from lightmeter.facts.answer_fields import AnswerFields
from lightmeter.facts.lenient_json import parse_object_lenient
from lightmeter.http_message import MAX_CODINGS, find_inflater
from lightmeter.wire.response import Answer, flat_brands

_EXCERPT_CHARS: Final = 200
"""Most characters of a body that `body_excerpt` returns for an error message."""

_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_CHECKSUM_BYTES: Final = 8
"""Bytes of the checksum and length at the end of gzip. They are decoded last, so that a wrong one loses no content."""


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """One HTTP answer as received.

    Attributes:
        status: The HTTP status, 100 to 599.
        headers: Header values by lowercase name. If a header occurs more than once, its last value.
        body: Bytes of the body, after content decoding and before any parsing.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def is_success(self) -> bool:
        """Whether the HTTP status is 2xx."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


def decode_content(body: bytes, coding: str, max_bytes: int) -> bytes | None:
    """Return the body without compression; None if it is longer than `max_bytes` then.

    The first bytes of the body tell how it is compressed, since the header Content-Encoding may be wrong. What cannot
    be decoded is returned as it came, so that a later version can decode it. Bytes after the compressed ones are
    dropped.

    Args:
        body: The body as received.
        coding: Value of the header Content-Encoding. It only matters for the format `deflate` without a header.
        max_bytes: Most bytes of the decoded body.
    """
    for _ in range(MAX_CODINGS):
        decoded, is_whole = _decode_once(body, coding, max_bytes)
        if len(decoded) > max_bytes:
            return None
        if not is_whole and parse_object_lenient(decoded) is None:
            return body
        body = decoded
    return body


def _decode_once(body: bytes, coding: str, max_bytes: int) -> tuple[bytes, bool]:
    """Return (decoded bytes, whether they are known to be whole); no bytes if `body` is not compressed.

    Decoding stops soon after `max_bytes` bytes.
    """
    decoded, is_whole = b"", False
    with suppress(zstandard.ZstdError, zlib.error):
        if body.startswith(_ZSTD):
            with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as reader:
                decoded = reader.read(max_bytes + 1)
        elif (inflater := find_inflater(body, coding, max_bytes + 1)) is not None:
            for part in (body[:-_CHECKSUM_BYTES], body[-_CHECKSUM_BYTES:]):
                for piece in inflater.pieces(part):
                    decoded += piece
                    if len(decoded) > max_bytes:
                        return decoded, False
            is_whole = inflater.is_whole
    return decoded, is_whole


def decode_answer(body: bytes) -> Answer | None:
    """Return the typed answer in a body, or None if the body is not a JSON object; never raises.

    Invalid entries of lists and objects are dropped; invalid optional fields become None.
    """
    data = parse_object_lenient(body)
    if data is None:
        return None
    data["request_id"] = AnswerFields(data).request_id
    while True:
        try:
            return Answer.model_validate(data)
        except ValidationError as error:
            for path in reversed(_invalid_paths(data, error)):
                _remove(data, path)


def _invalid_paths(data: dict[str, Any], error: ValidationError) -> list[tuple[int | str, ...]]:
    """Return the paths (keys and indices) of the JSON values in `data` that `error` reports as invalid.

    If an invalid value lies inside another invalid value, only the path of the outer one is returned. For a missing
    field, the path of the object that lacks the field is returned.
    """
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    paths = dict.fromkeys(_existing_path(data, problem["loc"]) for problem in problems)
    return [path for path in paths if not any(path[:length] in paths for length in range(len(path)))]


def _existing_path(data: dict[str, Any], path: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return `path`, which is from pydantic's error, up to the last step that exists in the JSON object `data`.

    Pydantic validates brands as a list, so brands given as an object are replaced by this list first.
    """
    node: Any = data
    for length, step in enumerate(path):
        exists = step in node if isinstance(node, dict) else isinstance(node, list) and step in range(len(node))
        if not exists:
            return path[:length]
        if step == "brands":
            node[step] = flat_brands(node[step])
        node = node[step]
    return path


def _remove(data: dict[str, Any], path: tuple[int | str, ...]) -> None:
    parent: Any = data
    for step in path[:-1]:
        parent = parent[step]
    del parent[path[-1]]


def body_excerpt(body: bytes) -> str:
    """Return the start of an HTTP body as one line of text for an error message, 200 characters at most."""
    line = " ".join(body[: 4 * _EXCERPT_CHARS].decode("utf-8", "replace").split())
    return line if len(line) <= _EXCERPT_CHARS else line[: _EXCERPT_CHARS - 1] + "…"
