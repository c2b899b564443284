"""An HTTP answer as received, and the lenient decoding of its body. Imports no HTTP library.

An answer that was paid for must not be lost because of one invalid entry of its JSON: invalid entries are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from lightmeter.facts.lenient_json import parse_object_lenient
from lightmeter.facts.wire_answer import WireAnswer
from lightmeter.wire.response import Answer

_EXCERPT_CHARS: Final = 200
"""Longest excerpt of a body in a message, in characters."""


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """One HTTP answer as received.

    Attributes:
        status: The HTTP status, 100 to 599.
        headers: Header values by lowercase name; of a repeated header, the last one.
        body: Bytes of the body, after content decoding and before any parsing.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


def decode_answer(body: bytes) -> Answer | None:
    """Return the typed answer in a body, or None if the body is not a JSON object; never raises.

    Invalid entries of lists and objects are dropped; invalid optional fields become None.
    """
    data = parse_object_lenient(body)
    if data is None:
        return None
    data["request_id"] = WireAnswer(data).request_id
    while True:
        try:
            return Answer.model_validate(data)
        except ValidationError as error:
            for path in reversed(_invalid_paths(error)):
                _remove(data, path)


def _invalid_paths(error: ValidationError) -> list[tuple[int | str, ...]]:
    """Return the paths (keys and indices) of the JSON values that `error` calls invalid; of nested ones, the outermost.

    For a missing field, the path is that of the object that lacks the field.
    """
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    paths = dict.fromkeys(
        problem["loc"][:-1] if problem["type"] == "missing" else problem["loc"] for problem in problems
    )
    return [path for path in paths if not any(path[:length] in paths for length in range(len(path)))]


def _remove(data: dict[str, Any], path: tuple[int | str, ...]) -> None:
    """Remove an invalid value from the JSON object `data`, at the `path` (keys and indices) of pydantic's error.

    If `data` has nothing at `path`, because pydantic converted a value before validating it, remove the innermost
    existing value on the way along `path`.
    """
    steps: list[tuple[Any, int | str]] = []
    node: Any = data
    for step in path:
        exists = step in node if isinstance(node, dict) else isinstance(node, list) and step in range(len(node))
        if not exists:
            break
        steps.append((node, step))
        node = node[step]
    if steps:
        parent, step = steps[-1]
        del parent[step]


def body_excerpt(body: bytes) -> str:
    """Return the start of an HTTP body as one line of text, for an error message."""
    line = " ".join(body[: 4 * _EXCERPT_CHARS].decode("utf-8", "replace").split())
    return line if len(line) <= _EXCERPT_CHARS else line[: _EXCERPT_CHARS - 1] + "…"
