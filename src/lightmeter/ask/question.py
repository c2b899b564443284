"""The user's question about every image or video (`--ask`): its name, prompt, and JSON schema of the answers."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any, Final

from jsonschema_rs import Draft202012Validator, ValidationError
from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from lightmeter.ask.json_schema import Property, check_references, properties_of
from lightmeter.errors import SettingsError
from lightmeter.paths import local_path

RESERVED: Final = ("item_id", "url", "frame", "run_id", "source", "error", "raw")
"""Columns that every table of answers has. So no property in a question's schema may have one of these names."""

MAX_ERROR_CHARS: Final = 400
"""A validation error is cut to this number of characters in a retry prompt, which limits the price of the prompt."""

_MAX_NAME_CHARS: Final = 64
_KEYS: Final = ("name", "prompt", "schema")

_INSTRUCTION: Final = (
    "Answer with one JSON object alone, with no text before or after it. It must be valid against this JSON Schema: "
)
_RETRY_INSTRUCTION: Final = "\n\nYour last answer to this was not valid: "


@dataclass(frozen=True, kw_only=True)
class Ask:
    """The user's question about every row of the manifest. The answers become the table `answers_<name>`.

    Attributes:
        name: Name of the question, in lower case; characters other than letters, digits and `_` become `_`.
        prompt: Text of the question.
        schema: The JSON schema of an object, or a pydantic model. Each top-level property becomes a column. The module
            `json_schema` lists the supported types.

    Raises:
        SettingsError: An attribute is invalid. The message says where.
    """

    name: str
    prompt: str
    schema: Mapping[str, Any] | type[BaseModel]

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _name_of(self.name))
        if not isinstance(self.prompt, str) or not self.prompt.strip():
            raise SettingsError("prompt: a question in words is needed.")
        schema = _schema_to_json(self.schema)
        check_references(schema)
        try:
            _validator(schema)
        except ValidationError as error:
            place = ".".join(["schema", *map(str, error.instance_path)])
            raise SettingsError(f"{place}: {error.message[:MAX_ERROR_CHARS]}.") from error
        except ValueError as error:
            raise SettingsError(f"schema: it is no JSON schema: {error}.") from error
        object.__setattr__(self, "schema", schema)
        for prop in self.properties:
            if prop.name.casefold() in RESERVED:
                raise SettingsError(
                    f"schema.properties.{prop.name}: the table has a column of this name: name the property otherwise."
                )

    @cached_property
    def properties(self) -> tuple[Property, ...]:
        """The top-level properties of the answer's JSON schema, in order. Each is a column of the table of answers."""
        return properties_of(self._document)

    @cached_property
    def validator(self) -> Draft202012Validator:
        """The validator that checks a model's answers (as JSON values) against the question's JSON schema."""
        return _validator(self._document)

    @cached_property
    def request_prompt(self) -> str:
        """The prompt that a request sends to the model: the user's question, then the JSON schema of the answer."""
        schema = json.dumps(self._document, separators=(",", ":"), ensure_ascii=False)
        return f"{self.prompt.strip()}\n\n{_INSTRUCTION}{schema}"

    def retry_prompt(self, error: str) -> str:
        """Return the prompt that asks again after an invalid answer: `request_prompt`, then the shortened `error`."""
        return f"{self.request_prompt}{_RETRY_INSTRUCTION}{error[:MAX_ERROR_CHARS]}"

    @property
    def longest_prompt_chars(self) -> int:
        """Maximum number of characters of a prompt of this question: those of a retry prompt with the longest error."""
        return len(self.retry_prompt("e" * MAX_ERROR_CHARS))

    def to_dict(self) -> dict[str, Any]:
        """Return the question as a JSON-compatible dict with `name`, `prompt` and `schema`, for `coerce_ask`."""
        return {"name": self.name, "prompt": self.prompt, "schema": self._document}

    @property
    def _document(self) -> dict[str, Any]:
        assert isinstance(self.schema, dict)  # noqa: S101 (for the type checker)
        return self.schema


def _validator(schema: dict[str, Any]) -> Draft202012Validator:
    def refuse_retrieval(uri: str) -> Any:
        raise ValueError(f"{uri} is not fetched")

    return Draft202012Validator(schema, retriever=refuse_retrieval)


def _name_of(value: object) -> str:
    name = re.sub(r"[^a-z0-9_]+", "_", str(value).strip().lower()).strip("_")
    if not name or len(name) > _MAX_NAME_CHARS:
        raise SettingsError(f"name: {value!r} names no table: 1 to {_MAX_NAME_CHARS} letters, digits or _.")
    return name


def _schema_to_json(schema: object) -> dict[str, Any]:
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


def coerce_ask(value: object) -> Ask | None:
    """Return the user's question that `value` stands for, or None if `value` is None.

    `value` is an `Ask`, the path of a file, or the content of such a file as a dict. The file is TOML if its name ends
    in `.toml`, else JSON. It has the keys `prompt` and `schema`, and may have the key `name`. Without this key, the
    name of the file is the name of the question. A dict must have all three keys.

    Raises:
        SettingsError: The question cannot be read or is invalid. The message names the file and the key in it.
    """
    if value is None or isinstance(value, Ask):
        return value
    if not isinstance(value, str | PathLike):
        return _parse_ask(value, "ask", None)
    path = local_path(value)
    try:
        content = path.read_text(encoding="utf-8-sig")
        data = tomllib.loads(content) if path.suffix.lower() == ".toml" else json.loads(content)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} holds no question: {error}.") from error
    return _parse_ask(data, str(path), path.stem)


def _parse_ask(data: object, where: str, default_name: str | None) -> Ask:
    if not isinstance(data, Mapping):
        raise SettingsError(f"{where} holds no question.", hint=f"It needs: {', '.join(_KEYS)}.")
    fields = {"name": default_name, **data}
    for key in fields:
        if key not in _KEYS:
            raise SettingsError(f"{where}: {key!r} is none of its keys.", hint=f"Keys: {', '.join(_KEYS)}.")
    for key in _KEYS:
        if fields.get(key) is None:
            raise SettingsError(f"{where}: {key!r} is missing.", hint=f"Keys: {', '.join(_KEYS)}.")
    try:
        return Ask(**fields)
    except SettingsError as error:
        raise SettingsError(f"{where}: {error}", hint=error.hint) from error
