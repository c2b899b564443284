"""The OpenAPI document is valid and matches the service."""

from __future__ import annotations

import json
from collections.abc import Iterator

import jsonschema_rs

from lightmeter.service.http.openapi import document
from lightmeter.service.http.parameters import MAX_CHARS, BadRequest, from_json, validate
from lightmeter.wire.constants import EXTRA_FEATURES, FEATURES, ROLES
from lightmeter.wire.request import AnalyzeRequest
from lightmeter.wire.response import BackendOffer, Backends

OFFERS = Backends(
    backends=[
        BackendOffer(name="palette", features={"colors": 0.2}),
        BackendOffer(name="imagenet", features={"tags": 0.15}, model="EfficientNet", licence="Apache-2.0"),
    ]
)
DOCUMENT = document(OFFERS)


def operations() -> Iterator[tuple[str, str, dict]]:
    """Yield method, path and operation."""
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def references(part) -> Iterator[str]:
    """Yield every `$ref` of a value."""
    if isinstance(part, dict):
        yield from ([part["$ref"]] if "$ref" in part else [])
        for each in part.values():
            yield from references(each)
    elif isinstance(part, list):
        for each in part:
            yield from references(each)


def resolved(reference: str) -> dict:
    """Return the target of a `$ref`."""
    part = DOCUMENT
    for name in reference.removeprefix("#/").split("/"):
        part = part[name]
    return part


def test_every_reference_leads_somewhere():
    """Every `$ref` has a target in the document."""
    assert [each for each in set(references(DOCUMENT)) if not resolved(each)] == []


def test_every_schema_is_one():
    """Every schema is valid JSON Schema 2020-12."""
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


def test_every_operation_has_its_own_name_and_says_what_it_does():
    """Every operation has a unique id for client generators."""
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names)
    assert all(operation["summary"] for _, _, operation in operations())
    assert all(answer for _, _, operation in operations() for answer in operation["responses"].values())


def test_examples_follow_their_schemas():
    """Every example is valid by its schema."""
    content = DOCUMENT["paths"]["/api/fetch"]["post"]["requestBody"]["content"]["application/json"]
    jsonschema_rs.validate({**content["schema"], "components": DOCUMENT["components"]}, content["example"])
    AnalyzeRequest.model_validate(content["example"])
    for answer in DOCUMENT["components"]["responses"].values():
        media_type = answer["content"]["application/json"]
        jsonschema_rs.validate({**media_type["schema"], "components": DOCUMENT["components"]}, media_type["example"])


def test_the_api_wants_a_key_and_nothing_else_does():
    """Every path under /api/ needs `X-API-Key` or `Authorization`."""
    for _, path, operation in operations():
        wanted = [{"key": []}, {"authorization": []}] if path.startswith("/api/") else []
        assert operation["security"] == wanted
    schemes = DOCUMENT["components"]["securitySchemes"]
    assert [(each["in"], each["name"]) for each in schemes.values()] == [
        ("header", "X-API-Key"),
        ("header", "Authorization"),
    ]


def test_requests_hold_every_parameter_and_its_values():
    """The request schema allows strings and lists where the service does, and lists allowed names."""
    schema = DOCUMENT["components"]["schemas"]["AnalyzeRequest"]
    fields = schema["properties"]
    assert list(fields) == list(AnalyzeRequest.model_fields)
    assert all(field["description"] for field in fields.values())
    for name in ("url", "file", "file_name", "backend", "feature"):
        assert [kind["type"] for kind in fields[name]["anyOf"]] == ["string", "array", "null"]
    assert "palette (colors); imagenet (tags, EfficientNet, Apache-2.0)" in fields["backend"]["description"]
    assert fields["feature"]["anyOf"][0]["examples"] == [*sorted((*FEATURES, *EXTRA_FEATURES)), ""]
    assert fields["role"]["anyOf"][0]["examples"] == list(ROLES)
    defaults = {name: fields[name]["default"] for name in ("tag_score", "capture_interval", "max_frames")}
    assert defaults == {"tag_score": 0.9, "capture_interval": 1, "max_frames": 3}


def test_the_request_schema_accepts_what_the_service_accepts():
    """The schema accepts the requests that the service accepts, and refuses those that lack a URL and a file."""
    schema = {**DOCUMENT["components"]["schemas"]["AnalyzeRequest"], "components": DOCUMENT["components"]}
    accepted = [
        *({"role": role} for name in ROLES for role in (name, name.upper(), f" {name} ")),
        *({"feature": each} for name in FEATURES for each in (name, name.upper(), [name.title()], ["x", name])),
        *({"tag_score": score} for score in ("1.0", "0", "1", ".5", "0.25", 0.25, "", None)),
    ]
    refused = [
        *({"role": role} for role in ("x", "generals", ["general"], "a" * 101)),
        *({"feature": each} for each in ("x", ["x"], "tag", ["tags", "a" * 101])),
        *({"tag_score": score} for score in ("1.5", "-1", "x", 1.5, True)),
        *({name: "a" * (MAX_CHARS[name] + 1)} for name in ("language", "prompt", "file_name")),
        {"max_frames": -1},
    ]
    for fields, is_accepted in [(each, True) for each in accepted] + [(each, False) for each in refused]:
        body = {"url": "http://a/", **fields}
        try:
            validate(from_json(json.dumps(body).encode()), {"palette": frozenset({"colors"})}, allow_private=True)
            is_request = True
        except BadRequest:
            is_request = False
        assert (jsonschema_rs.is_valid(schema, body), is_request) == (is_accepted, is_accepted), fields
    assert not jsonschema_rs.is_valid(schema, {})


def test_get_takes_every_parameter_too():
    """The query parameters have lists under both names, `url` and `url[]`."""
    parameters = DOCUMENT["paths"]["/api/fetch"]["get"]["parameters"]
    names = {parameter["name"] for parameter in parameters if parameter["in"] == "query"}
    assert [parameter["name"] for parameter in parameters if parameter["in"] == "header"] == ["Idempotency-Key"]
    lists = {"url", "file", "file_name", "backend", "feature"}
    assert names == set(AnalyzeRequest.model_fields) | {f"{name}[]" for name in lists}
