"""The API as an OpenAPI 3.1 document, made from the models that read requests and that clients read answers with.

What the models leave open, because other services of the same contract differ, is closed here to what this one does.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from lightmeter.models import vocabulary as words
from lightmeter.models.request import AnalyzeRequest
from lightmeter.models.response import Answer, BackendOffer, Backends, Credits, ErrorBody
from lightmeter.service.http.parameters import MAX_NAME_CHARS, MAX_NAMES, MAX_NUMBER

__all__ = ["document"]

Json = dict[str, Any]

REF: Final = "#/components/schemas/"
LISTS: Final = ("url", "file", "file_name", "backend", "feature")
ECHO: Final = ("request_id", "user_id", "urls", "files", "file_names", "features", "backends", "role", "language")
NUMBERS: Final = ("tag_score", "capture_interval", "max_frames")
TEXT_OF_A_NUMBER: Final = {
    "tag_score": r"^(0|1|0?\.[0-9]{1,9})$",
    "capture_interval": "^[1-9][0-9]{0,8}$",
    "max_frames": "^[0-9]{1,9}$",
}
"""Numbers as a query has them; in JSON they are taken as well."""

NOT_HERE: Final = "What is named and not available is told in `all.errors`, beside what the others found."

TEXTS: Final[Mapping[int, tuple[str, str]]] = {
    400: ("Something asked for is not allowed; the text names it.", words.PARAMS_REQUIRED),
    401: ("The key is missing or wrong.", words.ACCESS_DENIED),
    402: ("The balance is nothing, or below the price. Nothing was charged.", words.INSUFFICIENT_CREDITS),
    404: ("Unknown, expired, or another account's.", words.not_found("0123abcd")),
    405: ("Another method is wanted; `Allow` says which.", "Method Not Allowed."),
    413: ("One file is over 20 MB after decoding.", words.FILE_TOO_LARGE),
    414: ("The query is longer than 2048 characters.", words.QUERY_TOO_LONG),
    422: ("The Idempotency-Key was sent before with another request.", "This Idempotency-Key was sent before …"),
    500: ("Processing broke; the text carries the cause. Nothing was charged.", f"{words.REQUEST_FAILED}: …"),
    503: ("No room at the moment; ask again after `Retry-After` seconds. Nothing was charged.", "Too busy."),
}
"""What each refusal means, and a text that goes with it."""


def document(offers: Backends) -> Json:
    """The whole document.

    Args:
        offers: Its back ends, as GET /api/backends lists them.
    """
    security: list[Json] = [{"key": []}, {"authorization": []}]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "lightmeter",
            "version": version("lightmeter"),
            "description": "Tags, colors, moderation, descriptions, faces, texts, brands and embeddings of images "
            "and videos. "
            "One image is answered at once; several assets, or a video, are acknowledged and polled for. "
            "One credit is one cent.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": {
            "/api/fetch": {"post": {**_post(), "security": security}, "get": {**_get(offers), "security": security}},
            "/api/response/{request_id}": {"get": {**_poll(), "security": security}},
            "/api/credits": {"get": {**_credits(), "security": security}},
            "/api/backends": {"get": {**_backends(), "security": security}},
            **_probes(),
        },
        "components": {
            "schemas": _schemas(offers),
            "responses": {f"Refused{status}": _refused(status) for status in TEXTS},
            "headers": {
                "RequestId": {
                    "description": "Of this HTTP request, as it stands in the log; a caller's own is taken over.",
                    "schema": {"type": "string"},
                }
            },
            "securitySchemes": {
                "key": _key(words.AUTH_HEADER, "`Token KEY`: the word Token, a space, then the key."),
                "authorization": _key("Authorization", "`Token KEY`, as older clients send it."),
            },
        },
    }


def _key(header: str, description: str) -> Json:
    return {"type": "apiKey", "in": "header", "name": header, "description": description}


def _post() -> Json:
    idempotency = {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "A name of the caller's own: the same request with it gets the first one's answer, unpaid.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]*$"},
    }
    example = {"url": "https://example.org/cat.jpg", "feature": ["tags", "colors"], "tag_score": 0.5}
    return {
        "operationId": "analyze",
        "summary": "Analyze images and videos",
        "parameters": [idempotency],
        "requestBody": {
            "required": False,
            "content": {"application/json": {"schema": {"$ref": f"{REF}AnalyzeRequest"}, "example": example}},
        },
        "responses": _answers(_analyzed(), (400, 401, 402, 405, 413, 422, 500, 503)),
    }


def _get(offers: Backends) -> Json:
    fields = _request_schema(offers)["properties"]
    parameters: list[Json] = []
    for name, schema in fields.items():
        described = {"in": "query", "description": schema.get("description", "")}
        if name in LISTS:
            array = next(kind for kind in schema["anyOf"] if kind.get("type") == "array")
            many = {"schema": array, "style": "form", "explode": True}
            parameters += [{"name": each, **described, **many} for each in (name, f"{name}[]")]
        else:
            parameters.append({"name": name, **described, "schema": _without(schema, "description")})
    return {
        "operationId": "analyze_by_query",
        "summary": "The same, with everything in a query of 2048 characters at most",
        "parameters": parameters,
        "responses": _answers(_analyzed(), (400, 401, 402, 405, 414, 500, 503)),
    }


def _poll() -> Json:
    schema = {"oneOf": [{"$ref": f"{REF}{name}"} for name in ("Completed", "Processing", "Failed")]}
    return {
        "operationId": "read_result",
        "summary": "Read a result, for 24 hours after its completion",
        "parameters": [
            {
                "name": "request_id",
                "in": "path",
                "required": True,
                "description": "As the acknowledgment gave it, or any answer of /api/fetch.",
                "schema": {"type": "string", "minLength": 1},
            }
        ],
        "responses": _answers(_ok("As far as it is.", schema), (401, 404, 405, 500)),
    }


def _credits() -> Json:
    answer = _ok("The balance; one credit is one cent.", {"$ref": f"{REF}Credits"})
    return {
        "operationId": "read_credits",
        "summary": "The balance of credits",
        "responses": _answers(answer, (401, 405, 500)),
    }


def _backends() -> Json:
    answer = _ok("Every back end, the available ones first.", {"$ref": f"{REF}Backends"})
    return {
        "operationId": "read_backends",
        "summary": "The back ends, their features and prices; an extension of the contract",
        "responses": _answers(answer, (401, 405, 500)),
    }


def _probes() -> Json:
    state = {
        "type": "object",
        "properties": {"status": {"type": "string"}},
        "required": ["status"],
    }
    waiting = {**_ok("Models load, or the service drains.", state), "headers": _headers(503)}
    anything = {"type": "object"}
    text = {"schema": {"type": "string"}}
    page = {"description": "For a browser a page, for a program an index.", "headers": _headers(200)}
    page["content"] = {"text/html": text, "application/json": {"schema": anything}}
    figures = {"description": "In the text format of Prometheus.", "headers": _headers(200)}
    figures["content"] = {"text/plain": text}
    told: dict[str, tuple[str, str, Json]] = {
        "/healthz": ("is_alive", "Whether the process answers", {"200": _ok("It does.", state)}),
        "/readyz": ("is_ready", "Whether requests are welcome", {"200": _ok("They are.", state), "503": waiting}),
        "/metrics": ("read_metrics", "What was counted and timed", {"200": figures}),
        "/openapi.json": ("read_openapi", "This document", {"200": _ok("OpenAPI 3.1.", anything)}),
        "/": ("read_page", "A page to read and try, or an index", {"200": page}),
    }
    refused = {"405": {"$ref": "#/components/responses/Refused405"}}
    return {
        path: {"get": {"operationId": name, "summary": summary, "security": [], "responses": {**answers, **refused}}}
        for path, (name, summary, answers) in told.items()
    }


def _analyzed() -> Json:
    schema = {"oneOf": [{"$ref": f"{REF}Completed"}, {"$ref": f"{REF}Acknowledged"}]}
    return _ok("The result of a single image; an acknowledgment of anything else.", schema)


def _answers(answer: Json, refusals: Sequence[int]) -> Json:
    refused = {str(status): {"$ref": f"#/components/responses/Refused{status}"} for status in refusals}
    return {"200": answer, **refused}


def _ok(description: str, schema: Json) -> Json:
    content = {"application/json": {"schema": schema}}
    return {"description": description, "headers": _headers(200), "content": content}


def _refused(status: int) -> Json:
    description, text = TEXTS[status]
    schema = {"$ref": f"{REF}ErrorBody"}
    content = {"application/json": {"schema": schema, "example": {"error": text, "status": "failed"}}}
    return {"description": description, "headers": _headers(status), "content": content}


def _headers(status: int) -> Json:
    headers: Json = {"X-Request-ID": {"$ref": "#/components/headers/RequestId"}}
    if status == 405:  # noqa: PLR2004 (method not allowed)
        headers["Allow"] = {"description": "The methods there are.", "schema": {"type": "string"}}
    if status == 503:  # noqa: PLR2004 (service unavailable)
        headers["Retry-After"] = {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}}
    return headers


def _schemas(offers: Backends) -> Json:
    models: tuple[type[BaseModel], ...] = (Answer, Backends, Credits, ErrorBody)
    _, definitions = models_json_schema([(model, "serialization") for model in models], ref_template=REF + "{model}")
    schemas: Json = definitions["$defs"]
    money = ("credits_paid", "credits", "all")
    return {
        "AnalyzeRequest": _request_schema(offers),
        **schemas,
        "Completed": _narrowed("Done: the results, what they cost, and what is left.", "completed", money),
        "Acknowledged": _narrowed("Taken up: ask at `response_uri`.", "queued", ("success", "response_uri")),
        "Processing": _narrowed("Not done yet: ask again, every two seconds for instance.", "processing", ()),
        "Failed": _narrowed("It could not be done, and costs nothing.", "failed", ("error",)),
    }


def _narrowed(description: str, status: str, more: Sequence[str]) -> Json:
    """An answer of one status: its fields are there, and those that may be null elsewhere are not."""
    required = (*ECHO, *NUMBERS, "status", *more)
    there: Json = {name: {"not": {"type": "null"}} for name in required}
    narrowed = {"type": "object", "properties": {**there, "status": {"const": status}}, "required": list(required)}
    return {"description": description, "allOf": [{"$ref": f"{REF}Answer"}, narrowed]}


def _request_schema(offers: Backends) -> Json:
    schema = AnalyzeRequest.model_json_schema(ref_template=REF + "{model}")
    features = sorted({*words.FEATURES, *words.EXTRA_FEATURES, *_features(offers)})
    names = {"feature": features, "role": list(words.ROLES)}
    described = _attributes(AnalyzeRequest)
    here = "; ".join(f"{offer.name} ({_about(offer)})" for offer in offers.backends if offer.available)
    described["backend"] += f" Here: {here}. {NOT_HERE}"
    by_name = f"By name only: {', '.join(words.EXTRA_FEATURES)}."
    described["feature"] += f" {by_name} {NOT_HERE} At least one must exist."
    for name, field in schema["properties"].items():
        kept = {key: field[key] for key in ("default", "title") if key in field}
        schema["properties"][name] = {**kept, "description": described[name], **_allowed(name, field, names.get(name))}
    return {**schema, "description": (AnalyzeRequest.__doc__ or "").partition("\n")[0]}


def _features(offers: Backends) -> frozenset[str]:
    return frozenset(feature for offer in offers.backends if offer.available for feature in offer.features)


def _about(offer: BackendOffer) -> str:
    """Features, model and licence of a back end, as far as they are known."""
    return ", ".join(filter(None, (" ".join(sorted(offer.features)), offer.model, offer.licence)))


def _allowed(name: str, field: Json, names: Sequence[str] | None) -> Json:
    """What a field may be: null and the empty text stand for leaving it out, and numbers may be sent as texts."""
    unset: list[Json] = [{"const": ""}, {"type": "null"}]
    if name in {"backend", "feature"}:
        item: Json = {"type": "string", "maxLength": MAX_NAME_CHARS}
        array: Json = {"type": "array", "items": item, "maxItems": MAX_NAMES}
        if names is None:
            return {"anyOf": [item, array, {"type": "null"}]}
        some = {"anyOf": [{"contains": {"enum": list(names)}}, {"items": {"const": ""}}]}
        return {"anyOf": [{"type": "string", "enum": [*names, ""]}, {**array, **some}, {"type": "null"}]}
    if name in LISTS:
        return {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "null"}]}
    if names is not None:
        return {"anyOf": [{"type": "string", "enum": list(names)}, *unset]}
    if name in NUMBERS:
        least = {key: value for key, value in field.items() if key in {"type", "minimum", "exclusiveMinimum"}}
        most = {"maximum": field.get("maximum", MAX_NUMBER)}
        return {"anyOf": [{**least, **most}, {"type": "string", "pattern": TEXT_OF_A_NUMBER[name]}, *unset]}
    return {"type": ["string", "null"]}


def _attributes(model: type[BaseModel]) -> dict[str, str]:
    """What the docstring of a model says of each of its fields."""
    section = inspect.cleandoc(model.__doc__ or "").partition("Attributes:")[2]
    told = re.findall(r"^ {4}(\w+): (.+(?:\n {5,}.+)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in told}


def _without(schema: Json, name: str) -> Json:
    return {key: value for key, value in schema.items() if key != name}
