"""What a caller sent, as one request: JSON or query, strings or lists, base64 or data URIs; wrong values are named."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from pydantic import ValidationError

from lightmeter.errors import LightmeterError
from lightmeter.models.request import AnalyzeRequest
from lightmeter.models.vocabulary import (
    FEATURES,
    FILE_TOO_LARGE,
    INVALID_FORMAT,
    INVALID_URLS,
    MAX_FILE_BYTES,
    PARAMS_REQUIRED,
    ROLES,
)
from lightmeter.service.fetch import refuse_url

__all__ = ["BadRequest", "from_json", "from_query", "names_of", "read_uploads", "validate"]

LISTS: Final = frozenset({"url", "file", "file_name", "backend", "feature"})
ALLOWED: Final = {
    "tag_score": "a number from 0 to 1",
    "capture_interval": "a whole number of seconds, 1 or more",
    "max_frames": "a whole number, 0 or more (0: no limit)",
}


class BadRequest(LightmeterError):
    """A request that cannot be done as asked; the message is the answer's error text.

    Attributes:
        status: Its HTTP status.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def from_json(body: bytes) -> AnalyzeRequest:
    """The request in a JSON body.

    Raises:
        BadRequest: it is no JSON object, or a value is not allowed.
    """
    try:
        fields = orjson.loads(body) if body.strip() else {}
    except orjson.JSONDecodeError:
        raise BadRequest(INVALID_FORMAT) from None
    if not isinstance(fields, dict):
        raise BadRequest(INVALID_FORMAT)
    return _request(fields)


def from_query(pairs: Sequence[tuple[str, str]]) -> AnalyzeRequest:
    """The request in query parameters: `url=…` and `url[]=…`, any number of times; where one is wanted, the last wins.

    Raises:
        BadRequest: a value is not allowed.
    """
    fields: dict[str, Any] = {}
    for key, value in pairs:
        name = key.removesuffix("[]")
        if name in LISTS:
            fields.setdefault(name, []).append(value)
        else:
            fields[name] = value
    return _request(fields)


def _request(fields: Mapping[str, Any]) -> AnalyzeRequest:
    known = {name: value for name, value in fields.items() if name in AnalyzeRequest.model_fields and value is not None}
    try:
        return AnalyzeRequest.model_validate(known)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        raise BadRequest(f"{name} must be {ALLOWED.get(name, 'a text or a list of texts')}.") from None


def validate(request: AnalyzeRequest, offered: Mapping[str, frozenset[str]], *, allow_private: bool) -> AnalyzeRequest:
    """The request with every default filled in: back ends and features by name.

    Args:
        request: What was asked.
        offered: Features by back end, of this service.
        allow_private: Whether URLs may name private places.

    Raises:
        BadRequest: nothing to analyse, or a name that does not exist here.
    """
    if not request.url and not request.file:
        raise BadRequest(PARAMS_REQUIRED)
    backends = _names("backend", request.backend, tuple(offered))
    features = _names("feature", request.feature, FEATURES)
    _names("role", [request.role], ROLES)
    if any(refuse_url(url, allow_private=allow_private) for url in request.url):
        raise BadRequest(INVALID_URLS)
    active = [backend for backend in backends or offered if not features or offered[backend] & set(features)]
    return request.model_copy(
        update={
            "backend": active,
            "feature": features or sorted({feature for backend in active for feature in offered[backend]}),
            "prompt": request.prompt or None,
        }
    )


def _names(field: str, given: Sequence[str], allowed: Sequence[str]) -> list[str]:
    names = list(dict.fromkeys(name.strip().lower() for name in given if name.strip()))
    for name in names:
        if name not in allowed:
            raise BadRequest(f"{field} {name!r} does not exist; allowed: {', '.join(allowed)}.")
    return names


def read_uploads(request: AnalyzeRequest) -> tuple[bytes, ...]:
    """The contents of `file`, decoded.

    Raises:
        BadRequest: one is no base64, or larger than 20 MB.
    """
    return tuple(_decode(text) for text in request.file)


def _decode(text: str) -> bytes:
    encoded = text.partition(",")[2] if text[:5].lower() == "data:" else text
    if len(encoded) * 3 // 4 > MAX_FILE_BYTES + 2:  # before anything is decoded
        raise BadRequest(FILE_TOO_LARGE, 413)
    try:
        content = base64.b64decode("".join(encoded.split()), validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("file must be base64 or a data URI with base64.") from None
    if len(content) > MAX_FILE_BYTES:
        raise BadRequest(FILE_TOO_LARGE, 413)
    return content


def names_of(request: AnalyzeRequest, uploads: int) -> list[str]:
    """What the assets are called in the answer: the URLs as they were sent, then the files."""
    given = request.file_name
    files = [given[index] if index < len(given) else f"file-{index + 1}" for index in range(uploads)]
    return [*request.url, *files]
