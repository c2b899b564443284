"""An HTTP answer as received, and the lenient decoding of its body. Imports no HTTP library.

An answer that was paid for must not be lost because one entry of its JSON is invalid. So invalid entries are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from lightmeter.facts.answer_fields import AnswerFields
from lightmeter.facts.lenient_json import parse_object_lenient
from lightmeter.wire.response import Answer

_EXCERPT_CHARS: Final = 200
"""Most characters of a body that `body_excerpt` returns for an error message."""


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
            for path in reversed(_invalid_paths(error)):
                _remove(data, path)


def _invalid_paths(error: ValidationError) -> list[tuple[int | str, ...]]:
    """Return the paths (keys and indices) of the JSON values that `error` reports as invalid.

    If an invalid value lies inside another invalid value, only the path of the outer one is returned. For a missing
    field, the path of the object that lacks the field is returned.
    """
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    paths = dict.fromkeys(
        problem["loc"][:-1] if problem["type"] == "missing" else problem["loc"] for problem in problems
    )
    return [path for path in paths if not any(path[:length] in paths for length in range(len(path)))]


def _remove(data: dict[str, Any], path: tuple[int | str, ...]) -> None:
    """Remove an invalid value from the JSON object `data`. Its `path` (keys and indices) is from pydantic's error.

    Pydantic may convert a value before it validates it, so that `data` has nothing at `path`. Then follow `path` as far
    as possible, and remove the value reached.
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
    """Return the start of an HTTP body as one line of text for an error message, 200 characters at most."""
    line = " ".join(body[: 4 * _EXCERPT_CHARS].decode("utf-8", "replace").split())
    return line if len(line) <= _EXCERPT_CHARS else line[: _EXCERPT_CHARS - 1] + "…"
