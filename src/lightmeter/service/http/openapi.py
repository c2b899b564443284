"""Generates the OpenAPI 3.1 document of the API from the pydantic models of requests and answers.

The models accept the answers of every service with this API. The document adds the stricter rules of this service.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from lightmeter.service.http.parameters import LISTS, MAX_CHARS, MAX_NAME_CHARS, MAX_NAMES, MAX_NUMBER
from lightmeter.service.ingest.url_rules import MAX_URL_CHARS
from lightmeter.wire import constants as words
from lightmeter.wire.request import AnalyzeRequest
from lightmeter.wire.response import Answer, BackendOffer, Backends, Credits, ErrorBody

Json = dict[str, Any]

REF: Final = "#/components/schemas/"
ECHO: Final = ("request_id", "user_id", "urls", "files", "file_names", "features", "backends", "role", "language")
NUMBERS: Final = ("tag_score", "capture_interval", "max_frames")

NUMBER_PATTERNS: Final = {
    "tag_score": r"^(0|0?\.[0-9]{1,9}|1(\.0{1,9})?)$",
    "capture_interval": "^[1-9][0-9]{0,8}$",
    "max_frames": "^[0-9]{1,9}$",
}
"""Field of a request → regular expression for its number, if the client sends it as a string (query or JSON)."""

UNAVAILABLE_NOTE: Final = "Names that are not available are reported in `all.errors`; the others are answered."

ERRORS: Final[Mapping[int, tuple[str, str]]] = {
    400: ("A parameter is not valid; the text names it.", words.PARAMS_REQUIRED),
    401: ("The key is missing or wrong.", words.ACCESS_DENIED),
    402: ("The balance does not cover the price. Nothing was charged.", words.INSUFFICIENT_CREDITS),
    404: ("The request id is unknown, expired, or of another account.", words.not_found("0123abcd")),
    405: ("The method is not allowed; `Allow` lists the allowed ones.", "Method Not Allowed."),
    408: ("The body did not arrive in time.", "The body of the request did not arrive in time. …"),
    413: ("A file is larger than 20 MB after decoding.", words.FILE_TOO_LARGE),
    414: ("The query is longer than 2048 characters.", words.QUERY_TOO_LONG),
    415: ("The body is compressed.", "Content-Encoding is not supported: send the body as it is."),
    422: ("The Idempotency-Key was sent before with another request.", "This Idempotency-Key was sent before …"),
    500: ("Processing has failed; the text has the cause. Nothing was charged.", f"{words.REQUEST_FAILED}: …"),
    503: ("Busy, or a disk or database fails. Retry after `Retry-After` seconds; this costs nothing.", "Too busy."),
}
"""HTTP status of an error → its description, and an example of the error text."""


def document(offers: Backends) -> Json:
    """Return the OpenAPI document of a service; `offers` is its list of back ends with features and prices."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "lightmeter",
            "version": version("lightmeter"),
            "description": "Tags, colors, moderation, descriptions, faces, texts, brands and embeddings of images "
            "and videos. "
            "One image is answered at once; several assets, a video, or an image that takes longer than 20 s, are "
            "acknowledged and polled for. "
            "One credit is one cent.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": {
            "/api/fetch": {"post": _post(), "get": _get(offers)},
            "/api/response/{request_id}": {"get": _poll()},
            "/api/credits": {"get": _credits()},
            "/api/backends": {"get": _backends()},
            **_open_paths(),
        },
        "components": {
            "schemas": _schemas(offers),
            "responses": {f"Refused{status}": _error_response(status) for status in ERRORS},
            "headers": {
                "RequestId": {
                    "description": "Id of this HTTP request in the log; a client may set it.",
                    "schema": {"type": "string"},
                }
            },
            "securitySchemes": {
                name: {"type": "apiKey", "in": "header", "name": header, "description": description}
                for name, header, description in (
                    ("key", words.AUTH_HEADER, "`Token KEY`: the word Token, a space, then the key."),
                    ("authorization", "Authorization", "`Token KEY`, as older clients send it."),
                )
            },
        },
    }


def _operation(name: str, summary: str, answer: Json, error_statuses: Sequence[int], **more: Any) -> Json:
    """Return the OpenAPI operation object of an endpoint that needs an API key.

    Args:
        name: Id of the operation, such as `read_credits`.
        summary: Short description of the operation.
        answer: OpenAPI response object of the answer with status 200.
        error_statuses: HTTP statuses of the endpoint's errors.
        more: Further fields of the operation object, such as `parameters`.
    """
    errors = {str(status): {"$ref": f"#/components/responses/Refused{status}"} for status in error_statuses}
    return {
        "operationId": name,
        "summary": summary,
        "security": [{"key": []}, {"authorization": []}],
        "responses": {"200": answer, **errors},
        **more,
    }


IDEMPOTENCY_KEY: Final[Json] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A repeated request with the same key gets the first answer, and is not charged again.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]*$"},
}


def _post() -> Json:
    example = {"url": "https://example.org/cat.jpg", "feature": ["tags", "colors"], "tag_score": 0.5}
    content = {"application/json": {"schema": {"$ref": f"{REF}AnalyzeRequest"}, "example": example}}
    return _operation(
        "analyze",
        "Analyze images and videos",
        _analyze_answer(),
        (400, 401, 402, 405, 408, 413, 415, 422, 500, 503),
        parameters=[IDEMPOTENCY_KEY],
        requestBody={"required": False, "content": content},
    )


def _get(offers: Backends) -> Json:
    fields = _request_schema(offers)["properties"]
    parameters = [IDEMPOTENCY_KEY]
    for name, schema in fields.items():
        described = {"in": "query", "description": schema.get("description", "")}
        if name in LISTS:
            array = next(kind for kind in schema["anyOf"] if kind.get("type") == "array")
            many = {"schema": array, "style": "form", "explode": True}
            parameters += [{"name": each, **described, **many} for each in (name, f"{name}[]")]
        else:
            plain = {key: value for key, value in schema.items() if key != "description"}
            parameters.append({"name": name, **described, "schema": plain})
    summary = "Analyze images and videos, with a query of at most 2048 characters"
    errors = (400, 401, 402, 405, 414, 422, 500, 503)
    return _operation("analyze_by_query", summary, _analyze_answer(), errors, parameters=parameters)


def _poll() -> Json:
    schema = {"oneOf": [{"$ref": f"{REF}{name}"} for name in ("Completed", "Processing", "Failed")]}
    request_id = {
        "name": "request_id",
        "in": "path",
        "required": True,
        "description": "The `request_id` of an answer of /api/fetch.",
        "schema": {"type": "string", "minLength": 1},
    }
    answer = _ok("The result, or the state of the request.", schema)
    summary = "Read a result, for 24 hours after its completion"
    return _operation("read_result", summary, answer, (401, 404, 405, 500, 503), parameters=[request_id])


def _credits() -> Json:
    answer = _ok("The balance; one credit is one cent.", {"$ref": f"{REF}Credits"})
    return _operation("read_credits", "The balance of credits", answer, (401, 405, 500, 503))


def _backends() -> Json:
    answer = _ok("Every back end, the available ones first.", {"$ref": f"{REF}Backends"})
    summary = "The back ends, their features and prices; an extension of the contract"
    return _operation("read_backends", summary, answer, (401, 405, 500, 503))


def _open_paths() -> Json:
    """Return the OpenAPI paths of the endpoints that need no API key."""
    state = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
    waiting = {
        **_ok("Models load, the service drains, or the database is down.", state),
        "headers": _headers(503),
    }
    anything = {"type": "object"}
    text = {"schema": {"type": "string"}}
    page = {"description": "An HTML page for browsers, a JSON index for programs.", "headers": _headers(200)}
    page["content"] = {"text/html": text, "application/json": {"schema": anything}}
    metrics = {"description": "The text format of Prometheus.", "headers": _headers(200)}
    metrics["content"] = {"text/plain": text}
    operations: dict[str, tuple[str, str, Json]] = {
        "/healthz": ("is_alive", "Whether the process answers", {"200": _ok("It does.", state)}),
        "/readyz": ("is_ready", "Whether requests are accepted", {"200": _ok("They are.", state), "503": waiting}),
        "/metrics": ("read_metrics", "Metrics", {"200": metrics}),
        "/openapi.json": ("read_openapi", "This document", {"200": _ok("OpenAPI 3.1.", anything)}),
        "/": ("read_page", "A page to read and try, or an index", {"200": page}),
    }
    errors = {"405": {"$ref": "#/components/responses/Refused405"}}
    return {
        path: {"get": {"operationId": name, "summary": summary, "security": [], "responses": {**answers, **errors}}}
        for path, (name, summary, answers) in operations.items()
    }


def _analyze_answer() -> Json:
    schema = {"oneOf": [{"$ref": f"{REF}Completed"}, {"$ref": f"{REF}Acknowledged"}]}
    return _ok("The result of a single image; an acknowledgment of anything else.", schema)


def _ok(description: str, schema: Json) -> Json:
    content = {"application/json": {"schema": schema}}
    return {"description": description, "headers": _headers(200), "content": content}


def _error_response(status: int) -> Json:
    description, text = ERRORS[status]
    schema = {"$ref": f"{REF}ErrorBody"}
    content = {"application/json": {"schema": schema, "example": {"error": text, "status": "failed"}}}
    return {"description": description, "headers": _headers(status), "content": content}


def _headers(status: int) -> Json:
    headers: Json = {"X-Request-ID": {"$ref": "#/components/headers/RequestId"}}
    if status == 405:  # noqa: PLR2004 (method not allowed)
        headers["Allow"] = {"description": "The allowed methods.", "schema": {"type": "string"}}
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
        "Completed": _answer_schema("Finished: the results, their price, and the balance.", "completed", money),
        "Acknowledged": _answer_schema("Accepted: poll `response_uri`.", "queued", ("success", "response_uri")),
        "Processing": _answer_schema("Not finished: poll again, for example every two seconds.", "processing", ()),
        "Failed": _answer_schema("The request has failed, and costs nothing.", "failed", ("error",)),
    }


def _answer_schema(description: str, status: str, more: Sequence[str]) -> Json:
    """Return the schema of an answer whose field `status` has the value `status`.

    Args:
        description: Text about this answer.
        status: Value of the field `status`.
        more: Names of the fields that this answer must have in addition to those that all answers have.
    """
    required = (*ECHO, *NUMBERS, "status", *more)
    not_null: Json = {name: {"not": {"type": "null"}} for name in required}
    narrowed = {"type": "object", "properties": {**not_null, "status": {"const": status}}, "required": list(required)}
    return {"description": description, "allOf": [{"$ref": f"{REF}Answer"}, narrowed]}


def _request_schema(offers: Backends) -> Json:
    schema = AnalyzeRequest.model_json_schema(ref_template=REF + "{model}")
    available = [offer for offer in offers.backends if offer.available]
    offered = {feature for offer in available for feature in offer.features}
    names = {"feature": sorted(offered.union(words.FEATURES, words.EXTRA_FEATURES)), "role": list(words.ROLES)}
    described = _attribute_descriptions(AnalyzeRequest)
    listed = "; ".join(f"{offer.name} ({_describe_backend(offer)})" for offer in available)
    described["backend"] += f" Available: {listed}. {UNAVAILABLE_NOTE}"
    by_name = f"By name only: {', '.join(words.EXTRA_FEATURES)}."
    described["feature"] += f" {by_name} {UNAVAILABLE_NOTE} At least one must exist."
    for name, field in schema["properties"].items():
        plain = {key: field[key] for key in ("default", "title") if key in field}
        schema["properties"][name] = {
            **plain,
            "description": described[name],
            **_field_schema(name, field, names.get(name)),
        }
    schema["anyOf"] = [{"required": ["url"]}, {"required": ["file"]}]
    return {**schema, "description": (AnalyzeRequest.__doc__ or "").partition("\n")[0]}


def _describe_backend(offer: BackendOffer) -> str:
    return ", ".join(filter(None, (" ".join(sorted(offer.features)), offer.model, offer.licence)))


def _field_schema(name: str, field: Json, names: Sequence[str] | None) -> Json:
    """Return the JSON schema of a field of a request.

    Any field may also be null or "", which means the same as to omit it. A number may also be sent as a string.

    Args:
        name: Name of the field.
        field: Schema of the field that pydantic has generated.
        names: Allowed values of the field; None: all values of its type.
    """
    unset: list[Json] = [{"const": ""}, {"type": "null"}]
    if name in {"backend", "feature"}:
        item: Json = {"type": "string", "maxLength": MAX_NAME_CHARS}
        array: Json = {"type": "array", "items": item, "maxItems": MAX_NAMES}
        if names is None:
            return {"anyOf": [item, array, {"type": "null"}]}
        any_known = {"anyOf": [{"contains": _one_of(names)}, {"items": {"const": ""}}]}
        return {"anyOf": [_one_of([*names, ""]), {**array, **any_known}, {"type": "null"}]}
    if name in LISTS:
        limit = {} if name == "file" else {"maxLength": {**MAX_CHARS, "url": MAX_URL_CHARS}[name]}
        text = {"type": "string", **limit}
        return {"anyOf": [text, {"type": "array", "items": text}, {"type": "null"}]}
    if names is not None:
        return {"anyOf": [_one_of(names), *unset]}
    if name in NUMBERS:
        minimum = {key: value for key, value in field.items() if key in {"type", "minimum", "exclusiveMinimum"}}
        maximum = {"maximum": field.get("maximum", MAX_NUMBER)}
        return {"anyOf": [{**minimum, **maximum}, {"type": "string", "pattern": NUMBER_PATTERNS[name]}, *unset]}
    return {"type": ["string", "null"], "maxLength": MAX_CHARS[name]}


def _one_of(names: Sequence[str]) -> Json:
    """Return the JSON schema of a text that is one of `names` (lowercase), with letters of either case."""
    any_case = "|".join("".join(f"[{letter}{letter.upper()}]" for letter in name) for name in names)
    return {"type": "string", "pattern": rf"^\s*({any_case})\s*$", "maxLength": MAX_NAME_CHARS, "examples": [*names]}


def _attribute_descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return field name → description, for the fields that a model's docstring lists under `Attributes:`."""
    section = inspect.cleandoc(model.__doc__ or "").partition("Attributes:")[2]
    described = re.findall(r"^ {4}(\w+): (.+(?:\n {5,}.+)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in described}
