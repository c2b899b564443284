"""Parses and validates the parameters of a request from JSON or a query string."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
import pybase64
from pydantic import ValidationError

from lightmeter.errors import LightmeterError
from lightmeter.media.media_info import SNIFF_BYTES, sniff
from lightmeter.service.ingest.url_rules import MAX_URL_CHARS, PORTS, url_rejection
from lightmeter.wire.constants import (
    DEFAULT_ROLE,
    EXTRA_FEATURES,
    FEATURES,
    FILE_TOO_LARGE,
    INVALID_FORMAT,
    INVALID_URLS,
    MAX_FILE_BYTES,
    PARAMS_REQUIRED,
    ROLES,
)
from lightmeter.wire.request import AnalyzeRequest

MAX_ENCODED_CHARS: Final = MAX_FILE_BYTES * 3 // 2
"""Maximum length of the base64 text of an upload.

Base64 text is 4/3 as long as the file. The limit is 3/2 of the maximum file size, to leave room for line ends.
"""

PERCENT_ENCODED: Final = {"%2B": "+", "%2b": "+", "%2F": "/", "%2f": "/", "%3D": "=", "%3d": "="}
"""Characters of base64 as they are in a data URI whose author has percent-encoded it."""

LISTS: Final = frozenset({"url", "file", "file_name", "backend", "feature"})
"""Parameters whose value is a list."""

MAX_NUMBER: Final = 2**31 - 1
"""Maximum of the whole numbers in a request.

It is more than any video needs, and every JSON reader and database can represent it.
"""

MAX_ASSETS: Final = 100
"""Default maximum of URLs and files of a request together. Known clients send a tenth of this at most."""

MAX_NAMES: Final = 100
"""Maximum number of back ends that a request may name, and maximum number of features.

The numbers are limited because the answer repeats unknown names.
"""

MAX_NAME_CHARS: Final = 100
"""Maximum characters in the name of a back end or feature in a request.

The length is limited because the answer repeats unknown names.
"""

MAX_ITEMS: Final = 100_000
"""Maximum length of each list in a request. The check of a longer list would block the event loop."""

MAX_CHARS: Final = {
    "role": MAX_NAME_CHARS,
    "language": MAX_NAME_CHARS,
    "prompt": 100_000,
    "file_name": MAX_URL_CHARS,
    "tag_score": MAX_NAME_CHARS,
    "capture_interval": MAX_NAME_CHARS,
    "max_frames": MAX_NAME_CHARS,
}
"""Parameter → maximum characters of its text, or of each text in its list.

The service stores these texts and repeats them in answers. Other texts are limited where they are read.
"""

ALLOWED: Final = {
    "tag_score": "a number from 0 to 1",
    "capture_interval": f"a whole number of seconds from 1 to {MAX_NUMBER}",
    "max_frames": f"a whole number from 0 (no limit) to {MAX_NUMBER}",
}


_Texts = str | list[str] | None
_Number = int | float | str | None


class _JsonFields(msgspec.Struct):
    """The parameters in a JSON body. The decoder skips all other fields, and creates no objects for them."""

    url: _Texts = None
    file: _Texts = None
    file_name: _Texts = None
    backend: _Texts = None
    feature: _Texts = None
    role: str | None = None
    language: str | None = None
    prompt: str | None = None
    tag_score: _Number = None
    capture_interval: _Number = None
    max_frames: _Number = None


class BadRequest(LightmeterError):
    """The request is not valid. The message is the error text of the answer.

    Attributes:
        status: HTTP status of the answer.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def from_json(body: bytes | bytearray) -> AnalyzeRequest:
    """Return the request that a JSON body contains. An empty body is a request without parameters.

    Raises:
        BadRequest: the body is not a JSON object, or a value is not allowed.
    """
    try:
        # For one long string, which a body mostly is, orjson allocates several times its size.
        fields = msgspec.json.decode(body if body and not body.isspace() else b"{}", type=_JsonFields)
    except msgspec.ValidationError as error:
        if (path := re.search(r"`\$\.(\w+)", str(error))) is None:  # the body is no object
            raise BadRequest(INVALID_FORMAT) from None
        raise _wrong_value(path[1]) from None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise BadRequest(INVALID_FORMAT) from None
    return _parse_fields({name: getattr(fields, name) for name in _JsonFields.__struct_fields__})


def from_query(pairs: Sequence[tuple[str, str]]) -> AnalyzeRequest:
    """Return the request that query parameters contain.

    `pairs` are the decoded names and values, in the order of the query. A list, such as the list of URLs, is sent as a
    repeated parameter: `url=…` or `url[]=…`. If a parameter that is no list is repeated, its last value counts.

    Raises:
        BadRequest: a value is not allowed.
    """
    fields: dict[str, Any] = {}
    for key, value in pairs:
        name = key.removesuffix("[]")
        if name in LISTS:
            if not value:  # `url=` is the same as no parameter
                continue
            # A plus sign in a query means a space; base64 has plus signs and no spaces.
            fields.setdefault(name, []).append(value.replace(" ", "+") if name == "file" else value)
        else:
            fields[name] = value
    return _parse_fields(fields)


def _parse_fields(fields: Mapping[str, Any]) -> AnalyzeRequest:
    fields = {name: value for name, value in fields.items() if value not in (None, "")}
    known = {name: fields[name] for name in AnalyzeRequest.model_fields if name in fields}
    for name, value in known.items():
        _check_length(name, value)
    try:
        request = AnalyzeRequest.model_validate(known)
    except ValidationError as error:
        raise _wrong_value(str(error.errors()[0]["loc"][0])) from None
    for name in ("capture_interval", "max_frames"):
        if getattr(request, name) > MAX_NUMBER:
            raise _wrong_value(name)
    return request


def _wrong_value(name: str) -> BadRequest:
    return BadRequest(
        f"{name} must be {ALLOWED.get(name, 'a text or a list of texts' if name in LISTS else 'a text')}."
    )


def _check_length(name: str, value: object) -> None:
    if isinstance(value, list) and len(value) > MAX_ITEMS:
        raise BadRequest(f"{name} must be at most {MAX_ITEMS} texts.")
    texts = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    if name in MAX_CHARS and any(len(text) > MAX_CHARS[name] for text in texts):
        if name in ALLOWED:
            raise _wrong_value(name)
        raise BadRequest(f"{name} must be at most {MAX_CHARS[name]} characters{' each' if name in LISTS else ''}.")


def validate(
    request: AnalyzeRequest,
    offered: Mapping[str, frozenset[str]],
    *,
    allow_private: bool,
    ports: frozenset[int] = PORTS,
    max_assets: int = MAX_ASSETS,
) -> AnalyzeRequest:
    """Check a request, and return it with normalized names: lowercase back ends and features, without duplicates.

    Back ends and features that the client omitted stay omitted. Unavailable back ends and features stay in the request:
    the answer reports them in `all.errors`. Unknown features are an error only if the request names no known feature.

    Args:
        request: The request as the client sent it.
        offered: The features of each back end that this service offers, by name of the back end.
        allow_private: Whether URLs may point to private hosts.
        ports: Allowed ports of public hosts.
        max_assets: Maximum URLs and files together.

    Raises:
        BadRequest: there is no URL or file, there are too many URLs and files, a URL is refused, the value of `role` is
            unknown, all named features are unknown, or names of back ends or features are too many or too long.
    """
    if not request.url and not request.file:
        raise BadRequest(PARAMS_REQUIRED)
    if (assets := len(request.url) + len(request.file)) > max_assets:
        raise BadRequest(
            f"url and file must be at most {max_assets} together; these are {assets}. Send them in several requests."
        )
    backends, features = _names("backend", request.backend), _names("feature", request.feature)
    known = (*FEATURES, *EXTRA_FEATURES)
    offered_features = frozenset().union(*offered.values())
    if features and offered_features.union(known).isdisjoint(features):
        raise _unknown("feature", features[0], known)
    role = request.role.strip().lower() or DEFAULT_ROLE
    if role not in ROLES:
        raise _unknown("role", role, ROLES)
    if any(url_rejection(url, allow_private=allow_private, ports=ports) for url in request.url):
        raise BadRequest(INVALID_URLS)
    normalized = {"backend": backends, "feature": features, "role": role, "prompt": request.prompt or None}
    return request.model_copy(update=normalized)


def _names(field: str, names: Sequence[str]) -> list[str]:
    if len(names) > MAX_NAMES or any(len(name) > MAX_NAME_CHARS for name in names):
        raise BadRequest(f"{field} must be at most {MAX_NAMES} names of at most {MAX_NAME_CHARS} characters each.")
    return list(dict.fromkeys(name.strip().lower() for name in names if name.strip()))


def _unknown(field: str, name: str, allowed: Sequence[str]) -> BadRequest:
    return BadRequest(f"{field} {name!r} does not exist; allowed: {', '.join(allowed)}.")


def read_uploads(request: AnalyzeRequest) -> tuple[bytes, ...]:
    """Return the decoded uploaded files of a request.

    Raises:
        BadRequest: an upload is not base64, or is larger than 20 MB.
    """
    return tuple(_decode(text) for text in request.file)


def _decode(text: str) -> bytes:
    is_data_uri = text[:5].lower() == "data:"
    encoded = text.partition(",")[2] if is_data_uri else text
    if len(encoded) > MAX_ENCODED_CHARS:  # before anything is decoded
        raise BadRequest(FILE_TOO_LARGE, 413)
    if is_data_uri and "%" in encoded:
        # `urllib.parse.unquote` would take many times the memory of a text such as `%41%41…`.
        for code, letter in PERCENT_ENCODED.items():
            encoded = encoded.replace(code, letter)
    try:
        # Most clients send strict base64, which pybase64 decodes sixty times faster than the standard library.
        content = pybase64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        content = _decode_leniently(encoded)
    if len(content) > MAX_FILE_BYTES:
        raise BadRequest(FILE_TOO_LARGE, 413)
    return content


def _decode_leniently(encoded: str) -> bytes:
    """Decode base64 that may have line ends, spaces or wrong padding.

    Raises:
        BadRequest: the text is not base64.
    """
    with suppress(binascii.Error, ValueError):
        return binascii.a2b_base64(encoded, strict_mode=True)
    try:
        joined = "".join(encoded.split())
        return base64.b64decode(joined + "=" * (-len(joined) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("file must be base64 or a data URI with base64.") from None


def with_file_names(request: AnalyzeRequest, uploads: Sequence[bytes]) -> AnalyzeRequest:
    """Return the request with a name for each upload.

    If the client sent no name for an upload, its name is made from its position, counted from 1, and its file type. For
    example, the second upload gets the name `file-2.png`.
    """
    file_names = request.file_name
    names = [
        file_names[index] if index < len(file_names) and file_names[index] else _default_name(index, content)
        for index, content in enumerate(uploads)
    ]
    return request.model_copy(update={"file_name": names})


def _default_name(index: int, content: bytes) -> str:
    media_type = sniff(content[:SNIFF_BYTES])
    suffix = "" if media_type is None else "." + {"jpeg": "jpg"}.get(media_type[1], media_type[1])
    return f"file-{index + 1}{suffix}"
