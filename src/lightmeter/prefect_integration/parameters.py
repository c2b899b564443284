"""Parameters of the flows as pydantic models, from which Prefect makes the form of its web page."""

from __future__ import annotations

import re
from functools import cache
from inspect import getdoc
from typing import Any, Final

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from lightmeter.option_arguments import CheckOptions, PlanOptions, ResumeOptions
from lightmeter.options import SKIPPABLE, Options
from lightmeter.wire.constants import EXTRA_FEATURES, FEATURES, ROLES

_CHOICES: Final = {"features": (*FEATURES, *EXTRA_FEATURES), "skip": SKIPPABLE}
"""Option → the names that its list may contain."""

_FILE_OR_CONTENT: Final = [{"type": "object"}, {"type": "string"}, {"type": "null"}]

_ATTRIBUTE: Final = re.compile(r"^    (\w+): (.+(?:\n     +.+)*)", re.MULTILINE)


@cache
def option_descriptions() -> dict[str, str]:
    """Return option → description, read from the `Attributes:` of `ResumeOptions`, `CheckOptions` and `PlanOptions`."""
    docs = "\n".join(getdoc(kind) or "" for kind in (ResumeOptions, CheckOptions, PlanOptions))
    return {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(docs)}


class AnalyzeOptions(Options):
    """The options of a run, as a parameter of a flow.

    Fields, types, defaults and ranges are those of `lightmeter.options.Options`. For Prefect's form, the JSON schema
    also has a description of each field, and the names that lists accept.
    """

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON schema of the options, with descriptions and with the names that lists accept."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        properties: dict[str, dict[str, Any]] = schema["properties"]
        for name, description in option_descriptions().items():
            properties[name]["description"] = description
        for name, choices in _CHOICES.items():
            properties[name]["items"] = {"type": "string", "enum": list(choices)}
        properties["role"]["enum"] = list(ROLES)
        for name in ("ask", "prices"):  # a file on the worker, or its content
            properties[name] = {**_without_type(properties[name]), "anyOf": _FILE_OR_CONTENT}
        return schema

    def given(self) -> dict[str, Any]:
        """Return the options that do not have their default values, as keyword arguments of `lightmeter.plan`."""
        return {name: getattr(self, name) for name in self.model_fields_set if getattr(self, name) != _default(name)}


def _default(name: str) -> Any:
    return Options.model_fields[name].default


def _without_type(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in {"type", "anyOf", "$ref"}}
