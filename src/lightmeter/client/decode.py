"""From bytes to a typed answer, leniently: what does not fit the contract is left out, never a failure. Pure.

The raw bytes stay the truth and are kept elsewhere; what is read here decides what happens next and serves
the thin client. Fields appear and change over time, and an answer that was paid for must never be lost to one
odd entry.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from lightmeter.facts.lenient_json import parse_object_lenient
from lightmeter.facts.wire_answer import WireAnswer
from lightmeter.models.response import Answer

__all__ = ["body_excerpt", "decode_answer"]

_QUOTED_CHARS = 200


def decode_answer(body: bytes) -> Answer | None:
    """A typed answer of a body, or None when that is no JSON object; never raises.

    A wrong entry of a list or of an object is left out alone, a wrong optional field becomes None.
    """
    data = parse_object_lenient(body)
    if data is None:
        return None
    data["request_id"] = WireAnswer(data).request_id
    while True:
        try:
            return Answer.model_validate(data)
        except ValidationError as error:
            for path in reversed(_odd_places(error)):
                _remove(data, path)


def _odd_places(error: ValidationError) -> list[tuple[int | str, ...]]:
    """Where to cut, in the order of the data, none of them inside another; a lack cuts what lacks it."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    paths = dict.fromkeys(
        problem["loc"][:-1] if problem["type"] == "missing" else problem["loc"] for problem in problems
    )
    return [path for path in paths if not any(path[:length] in paths for length in range(len(path)))]


def _remove(data: dict[str, Any], path: tuple[int | str, ...]) -> None:
    """Remove what is at `path`, or at as much of it as leads anywhere.

    The model reads brands given as an object as a list: a path into that list leads to the object, which goes
    as a whole. The first step is always a field of the answer that is there, so something is removed each
    time.
    """
    inside: list[tuple[Any, int | str]] = []
    node: Any = data
    for step in path:
        found = step in node if isinstance(node, dict) else isinstance(node, list) and step in range(len(node))
        if not found:
            break
        inside.append((node, step))
        node = node[step]
    if inside:
        parent, step = inside[-1]
        del parent[step]


def body_excerpt(body: bytes) -> str:
    """The start of a body as one line, for a message."""
    line = " ".join(body[: 4 * _QUOTED_CHARS].decode("utf-8", "replace").split())
    return line if len(line) <= _QUOTED_CHARS else line[: _QUOTED_CHARS - 1] + "…"
