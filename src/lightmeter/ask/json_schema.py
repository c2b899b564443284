"""The part of JSON Schema whose values fit into typed columns. Pure.

Supported: `string`, `integer`, `number`, `boolean`, `enum` and `const` of those, arrays of one type, objects with named
properties, "or null" (a list of types, or `anyOf` with `null`), and references to `$defs` that do not go round in
circles: what pydantic writes for models of such fields. Keywords that only limit values (`minimum`, `pattern`,
`required`, …) are all allowed: the validator applies them.

Source: JSON Schema draft 2020-12, json-schema.org/draft/2020-12.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from lightmeter.errors import SettingsError

__all__ = ["ListOf", "ObjectOf", "Property", "Scalar", "ValueType", "check_references", "properties_of"]

Kind = Literal["string", "integer", "number", "boolean"]

_SCALARS: Final = ("string", "integer", "number", "boolean")
_TYPES: Final = f"Types: {', '.join(_SCALARS)}, array, object."
_OPEN: Final = ("patternProperties", "prefixItems", "$dynamicRef", "propertyNames")
"""Keywords whose values have no columns that could be named beforehand."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value, or null."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of values of one type, or null."""

    item: ValueType


@dataclass(frozen=True, slots=True)
class ObjectOf:
    """An object with these properties, or null."""

    properties: tuple[Property, ...]


@dataclass(frozen=True, slots=True)
class Property:
    """A named value; `description` is the schema's own text."""

    name: str
    type: ValueType
    description: str


ValueType: TypeAlias = "Scalar | ListOf | ObjectOf"


def properties_of(schema: Mapping[str, Any], name: str = "schema") -> tuple[Property, ...]:
    """The properties of a schema of an object, with their types, in their order.

    Args:
        schema: The schema, as JSON has it.
        name: What messages call it.

    Raises:
        SettingsError: it is no schema of an object, or a value in it has no column type; the message names the place.
    """
    found = _type_of(schema, name, _Context(schema, ()))
    if not isinstance(found, ObjectOf):
        raise SettingsError(f"{name}: an answer is an object, so the type of the schema must be 'object'.")
    return found.properties


def check_references(schema: Mapping[str, Any], name: str = "schema") -> None:
    """Check that every `$ref` stays inside the schema: nothing is fetched.

    Raises:
        SettingsError: one does not.
    """
    for place, reference in _references(schema, name):
        _resolved(schema, reference, place)


@dataclass(frozen=True, slots=True)
class _Context:
    """The whole schema, and the references that led to the place that is looked at."""

    root: Mapping[str, Any]
    within: tuple[str, ...]


def _type_of(node: Any, place: str, context: _Context) -> ValueType:
    if not isinstance(node, Mapping):
        raise SettingsError(f"{place}: {node!r} is no schema: an object such as {{'type': 'string'}} is expected.")
    for keyword in _OPEN:
        if keyword in node:
            raise SettingsError(f"{place}: {keyword!r} is not supported: a column needs one known type.")
    if "$ref" in node:
        return _referred(node["$ref"], place, context)
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in node:
            return _only_one(node[keyword], f"{place}.{keyword}", context)
    if "enum" in node or "const" in node:
        return _listed(node.get("enum", [node.get("const")]), place)
    return _named(_type_name(node, place), node, place, context)


def _named(kind: str, node: Mapping[str, Any], place: str, context: _Context) -> ValueType:
    if kind == "object":
        return _object(node, place, context)
    if kind == "array":
        if not isinstance(node.get("items"), Mapping):
            raise SettingsError(f"{place}: an array needs 'items' that give the type of its values.")
        return ListOf(_type_of(node["items"], f"{place}.items", context))
    if kind in _SCALARS:
        return Scalar(cast("Kind", kind))
    raise SettingsError(f"{place}: type {kind!r} is not supported.", hint=_TYPES)


def _type_name(node: Mapping[str, Any], place: str) -> str:
    """The one type that a node names beside null."""
    given = node.get("type", "object" if "properties" in node else None)
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Sequence):
        raise SettingsError(f"{place}: 'type' is missing.", hint=_TYPES)
    wanted = [str(name) for name in names if name != "null"]
    if len(wanted) != 1:
        raise SettingsError(f"{place}: type {given!r} is not supported: one type, or one type and 'null'.")
    return wanted[0]


def _object(node: Mapping[str, Any], place: str, context: _Context) -> ObjectOf:
    properties = node.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        raise SettingsError(f"{place}: an object needs 'properties': each becomes a column.")
    if isinstance(node.get("additionalProperties"), Mapping):
        raise SettingsError(f"{place}: 'additionalProperties' with a schema is not supported: name the properties.")
    seen: dict[str, str] = {}
    for name in properties:
        if not name or seen.setdefault(name.casefold(), name) != name:
            raise SettingsError(f"{place}.properties: {name!r} is empty, or differs from another name in case alone.")
    return ObjectOf(
        tuple(
            Property(name, _type_of(inner, f"{place}.properties.{name}", context), str(inner.get("description", "")))
            for name, inner in properties.items()
        )
    )


def _listed(values: Any, place: str) -> Scalar:
    """The type of the values of an `enum`."""
    kinds = {_kind_of(value) for value in values if value is not None} if isinstance(values, Sequence) else set()
    if kinds == {"integer", "number"}:
        return Scalar("number")
    if len(kinds) != 1 or None in kinds:
        raise SettingsError(f"{place}: the values of an enum must be texts, numbers or booleans, all of one type.")
    return Scalar(cast("Kind", kinds.pop()))


def _kind_of(value: Any) -> Kind | None:
    if isinstance(value, bool):
        return "boolean"
    return {str: "string", int: "integer", float: "number"}.get(type(value))  # type: ignore[return-value]


def _only_one(options: Any, place: str, context: _Context) -> ValueType:
    wanted = [one for one in options if one != {"type": "null"}] if isinstance(options, Sequence) else []
    if len(wanted) != 1:
        raise SettingsError(f"{place} is not supported: a column has one type. Use one schema, or one and null.")
    return _type_of(wanted[0], place, context)


def _referred(reference: Any, place: str, context: _Context) -> ValueType:
    if reference in context.within:
        raise SettingsError(f"{place}: {reference} refers to itself, which has no column type.")
    found = _resolved(context.root, reference, place)
    return _type_of(found, place, _Context(context.root, (*context.within, reference)))


def _resolved(root: Mapping[str, Any], reference: Any, place: str) -> Any:
    """What a reference such as `#/$defs/Part` points to (RFC 6901)."""
    found: Any = root
    steps = str(reference).removeprefix("#/").split("/") if str(reference).startswith("#/") else [None]
    for step in steps:
        key = None if step is None else step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or key not in found:
            raise SettingsError(f"{place}: the reference {reference!r} leads nowhere in this schema.")
        found = found[key]
    return found


def _references(node: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping):
        if isinstance(node.get("$ref"), str):
            yield place, node["$ref"]
        for key, inner in node.items():
            yield from _references(inner, f"{place}.{key}")
    elif isinstance(node, list):
        for number, inner in enumerate(node):
            yield from _references(inner, f"{place}[{number}]")
