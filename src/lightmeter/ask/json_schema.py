"""Translates a JSON schema into types of table columns. No I/O.

Supported are:

- `string`, `integer`, `number`, `boolean`, and `enum` and `const` with values of one of these types;
- arrays whose values have one type, and objects with named properties;
- null in addition to one type, written as a list of types or as `anyOf` with `null`;
- references to `$defs` without cycles.

So the schema of a pydantic model with fields of these types is supported. Keywords that only limit values (`minimum`,
`pattern`, `required`, …) are allowed. They do not change the type of a column, but the validator applies them.

Source: JSON Schema draft 2020-12, json-schema.org/draft/2020-12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from lightmeter.errors import SettingsError

Kind = Literal["string", "integer", "number", "boolean"]

_SCALARS: Final = ("string", "integer", "number", "boolean")
_TYPES: Final = f"Types: {', '.join(_SCALARS)}, array, object."
_UNSUPPORTED: Final = ("patternProperties", "prefixItems", "$dynamicRef", "propertyNames")
"""A schema with one of these keywords is refused, because its values have no fixed columns or types."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """Type of a table column with a single value, or null, in each row.

    Attributes:
        kind: JSON type of the values: `string`, `integer`, `number` or `boolean`.
    """

    kind: Kind


@dataclass(frozen=True, slots=True)
class ListOf:
    """Type of a table column with a list, or null, in each row. `item` is the type of the values in the lists."""

    item: ValueType


@dataclass(frozen=True, slots=True)
class ObjectOf:
    """Type of a table column with an object, or null, in each row. `properties` has the properties of the objects."""

    properties: tuple[Property, ...]


@dataclass(frozen=True, slots=True)
class Property:
    """A property of an object in a JSON schema.

    Attributes:
        name: Name of the property.
        type: Type of the table column for the property.
        description: Description of the property in the schema; empty if the schema has none.
    """

    name: str
    type: ValueType
    description: str


ValueType: TypeAlias = "Scalar | ListOf | ObjectOf"


def properties_of(schema: Mapping[str, Any]) -> tuple[Property, ...]:
    """Return the properties of the object that a JSON schema describes, in the order of the schema.

    Raises:
        SettingsError: The schema does not describe an object, or a property has no supported type. The message says
            where.
    """
    found = _type_of(schema, "schema", _Context(schema, ()))
    if not isinstance(found, ObjectOf):
        raise SettingsError("schema: an answer is an object, so the type of the schema must be 'object'.")
    return found.properties


def check_references(schema: Mapping[str, Any]) -> None:
    """Check that every `$ref` of a JSON schema refers to a part of the same schema. No URL is fetched.

    Raises:
        SettingsError: A `$ref` does not refer to a part of the schema.
    """
    _check_references(schema, schema, "schema")


def _check_references(root: Mapping[str, Any], node: Any, place: str) -> None:
    if isinstance(node, Mapping):
        if isinstance(node.get("$ref"), str):
            _resolve(root, node["$ref"], place)
        for key, inner in node.items():
            _check_references(root, inner, f"{place}.{key}")
    elif isinstance(node, list):
        for number, inner in enumerate(node):
            _check_references(root, inner, f"{place}[{number}]")


@dataclass(frozen=True, slots=True)
class _Context:
    """State of the translation of a JSON schema.

    Attributes:
        root: The whole schema.
        followed: Every `$ref` that led to the present part of the schema, to detect a cycle of references.
    """

    root: Mapping[str, Any]
    followed: tuple[str, ...]


def _type_of(node: Any, place: str, context: _Context) -> ValueType:
    if not isinstance(node, Mapping):
        raise SettingsError(f"{place}: {node!r} is no schema: an object such as {{'type': 'string'}} is expected.")
    for keyword in _UNSUPPORTED:
        if keyword in node:
            raise SettingsError(f"{place}: {keyword!r} is not supported: a column needs one known type.")
    if "$ref" in node:
        return _referenced_type(node["$ref"], place, context)
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in node:
            return _single_type(node[keyword], f"{place}.{keyword}", context)
    if "enum" in node or "const" in node:
        return _enum_type(node.get("enum", [node.get("const")]), place)
    return _type_by_name(_type_name(node, place), node, place, context)


def _type_by_name(kind: str, node: Mapping[str, Any], place: str, context: _Context) -> ValueType:
    if kind == "object":
        return _object_type(node, place, context)
    if kind == "array":
        if not isinstance(node.get("items"), Mapping):
            raise SettingsError(f"{place}: an array needs 'items' that give the type of its values.")
        return ListOf(_type_of(node["items"], f"{place}.items", context))
    if kind in _SCALARS:
        return Scalar(cast("Kind", kind))
    raise SettingsError(f"{place}: type {kind!r} is not supported.", hint=_TYPES)


def _type_name(node: Mapping[str, Any], place: str) -> str:
    type_names = node.get("type", "object" if "properties" in node else None)
    names = [type_names] if isinstance(type_names, str) else type_names
    if not isinstance(names, Sequence):
        raise SettingsError(f"{place}: 'type' is missing.", hint=_TYPES)
    wanted = [str(name) for name in names if name != "null"]
    if len(wanted) != 1:
        raise SettingsError(f"{place}: type {type_names!r} is not supported: one type, or one type and 'null'.")
    return wanted[0]


def _object_type(node: Mapping[str, Any], place: str, context: _Context) -> ObjectOf:
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


def _enum_type(values: Any, place: str) -> Scalar:
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


def _single_type(options: Any, place: str, context: _Context) -> ValueType:
    wanted = [one for one in options if one != {"type": "null"}] if isinstance(options, Sequence) else []
    if len(wanted) != 1:
        raise SettingsError(f"{place} is not supported: a column has one type. Use one schema, or one and null.")
    return _type_of(wanted[0], place, context)


def _referenced_type(reference: Any, place: str, context: _Context) -> ValueType:
    if reference in context.followed:
        raise SettingsError(f"{place}: {reference} refers to itself, which has no column type.")
    found = _resolve(context.root, reference, place)
    return _type_of(found, place, _Context(context.root, (*context.followed, reference)))


def _resolve(root: Mapping[str, Any], reference: Any, place: str) -> Any:
    """Return the part of the schema `root` to which `reference` refers.

    `reference` is the value of a `$ref`, such as `#/$defs/Part`. `place` is the path of this `$ref` in the schema, for
    error messages.
    """
    found: Any = root
    steps = str(reference).removeprefix("#/").split("/") if str(reference).startswith("#/") else [None]
    for step in steps:
        key = None if step is None else step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or key not in found:
            raise SettingsError(f"{place}: the reference {reference!r} leads nowhere in this schema.")
        found = found[key]
    return found
