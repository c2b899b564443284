"""The question itself: its name, its prompt, and the JSON schema of its answers; read from a file or made in Python."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Final

from jsonschema_rs import Draft202012Validator, ValidationError
from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from lightmeter.ask.json_schema import Property, check_references, properties_of
from lightmeter.errors import SettingsError

__all__ = ["MAX_ERROR_CHARS", "RESERVED", "Ask", "coerce_ask", "load_ask"]

RESERVED: Final = ("item_id", "url", "frame", "run_id", "source", "error", "raw")
"""Columns that the table of answers has anyway."""

MAX_ERROR_CHARS: Final = 400
"""Characters of a validation error that a second prompt quotes: its length, and so its price, has a bound."""

_MAX_NAME_CHARS: Final = 64
_KEYS: Final = ("name", "prompt", "schema")

_INSTRUCTION: Final = (
    "Answer with one JSON object alone, with no text before or after it. It must be valid against this JSON Schema: "
)
_AGAIN: Final = "\n\nYour last answer to this was not valid: "


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A question that is asked about every row; its answers become the table `answers_<name>`.

    Attributes:
        name: Names the table: made lowercase, and what is no letter, digit or `_` becomes `_`.
        prompt: The question, in words.
        schema: A JSON schema of an object, or a pydantic model, whose own schema is taken. Each property at the top
            becomes a column; see `json_schema` for what is supported.

    Raises:
        SettingsError: one of them cannot be used; the message names the place.
    """

    name: str
    prompt: str
    schema: Mapping[str, Any] | type[BaseModel]

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _name_of(self.name))
        if not isinstance(self.prompt, str) or not self.prompt.strip():
            raise SettingsError("prompt: a question in words is needed.")
        schema = _plain(self.schema)
        check_references(schema)
        try:
            _validator(schema)
        except ValidationError as error:
            place = ".".join(["schema", *map(str, error.instance_path)])
            raise SettingsError(f"{place}: {error.message[:MAX_ERROR_CHARS]}.") from error
        except ValueError as error:
            raise SettingsError(f"schema: it is no JSON schema: {error}.") from error
        object.__setattr__(self, "schema", schema)
        for one in self.properties:
            if one.name.casefold() in RESERVED:
                raise SettingsError(
                    f"schema.properties.{one.name}: the table has a column of this name: name the property otherwise."
                )

    @cached_property
    def properties(self) -> tuple[Property, ...]:
        """The properties at the top of the schema, in their order."""
        return properties_of(self._document)

    @cached_property
    def validator(self) -> Draft202012Validator:
        """What an answer is held against."""
        return _validator(self._document)

    @cached_property
    def request_prompt(self) -> str:
        """What a request carries as its prompt: the question, then what an answer must look like."""
        schema = json.dumps(self._document, separators=(",", ":"), ensure_ascii=False)
        return f"{self.prompt.strip()}\n\n{_INSTRUCTION}{schema}"

    def retry_prompt(self, error: str) -> str:
        """The same, with what was wrong with the answer that came: `MAX_ERROR_CHARS` of it at most."""
        return f"{self.request_prompt}{_AGAIN}{error[:MAX_ERROR_CHARS]}"

    @property
    def longest_prompt_chars(self) -> int:
        """Length of the longest prompt that a second request can carry, in characters."""
        return len(self.retry_prompt("e" * MAX_ERROR_CHARS))

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values, from which `coerce_ask` makes it again."""
        return {"name": self.name, "prompt": self.prompt, "schema": self._document}

    @property
    def _document(self) -> dict[str, Any]:
        """The schema; `__post_init__` has made it plain."""
        assert isinstance(self.schema, dict)  # noqa: S101 (for the type checker)
        return self.schema


def _validator(schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator(schema, retriever=_fetch_nothing)


def _fetch_nothing(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched")


def _name_of(given: object) -> str:
    name = re.sub(r"[^a-z0-9_]+", "_", str(given).strip().lower()).strip("_")
    if not name or len(name) > _MAX_NAME_CHARS:
        raise SettingsError(f"name: {given!r} names no table: 1 to {_MAX_NAME_CHARS} letters, digits or _.")
    return name


def _plain(schema: object) -> dict[str, Any]:
    """A schema as plain JSON values."""
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        try:
            return schema.model_json_schema()
        except PydanticUserError as error:
            raise SettingsError(f"schema: {schema.__name__} has no JSON schema: {error}.") from error
    if not isinstance(schema, Mapping):
        raise SettingsError("schema: a JSON schema (an object), or a pydantic model, is needed.")
    try:
        plain: dict[str, Any] = json.loads(json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise SettingsError(f"schema: it holds what JSON cannot hold: {error}.") from error
    return plain


def coerce_ask(given: object) -> Ask | None:
    """The question of whatever it was given as: the path of a file, what stands in one, an `Ask`, or None.

    Raises:
        SettingsError: it cannot be read, or is none; the message names the file and the place in it.
    """
    if given is None or isinstance(given, Ask):
        return given
    if isinstance(given, str | PathLike):
        return load_ask(Path(given))
    return _ask_in(given, "ask", None)


def load_ask(path: Path) -> Ask:
    """Read a question from a file, TOML (`.toml`) or JSON (any other name): `prompt`, `schema`, and perhaps `name`.

    Raises:
        SettingsError: the file cannot be read, or holds no question; the message names it and the place in it.
    """
    try:
        content = path.read_text(encoding="utf-8-sig")
        data = tomllib.loads(content) if path.suffix.lower() == ".toml" else json.loads(content)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} holds no question: {error}.") from error
    return _ask_in(data, str(path), path.stem)


def _ask_in(data: object, where: str, default_name: str | None) -> Ask:
    if not isinstance(data, Mapping):
        raise SettingsError(f"{where} holds no question.", hint=f"It needs: {', '.join(_KEYS)}.")
    named = {"name": default_name, **data}
    for key in named:
        if key not in _KEYS:
            raise SettingsError(f"{where}: {key!r} is none of its keys.", hint=f"Keys: {', '.join(_KEYS)}.")
    for key in _KEYS:
        if named.get(key) is None:
            raise SettingsError(f"{where}: {key!r} is missing.", hint=f"Keys: {', '.join(_KEYS)}.")
    try:
        return Ask(**named)
    except SettingsError as error:
        raise SettingsError(f"{where}: {error}", hint=error.hint) from error
