"""Requests generated from the OpenAPI document, valid and invalid, get documented answers and no 5xx."""

from __future__ import annotations

import asyncio
import json

import jsonschema_rs
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode, checks
from schemathesis.specs.openapi import checks as documented

from lightmeter.service.app import create_api_key


def wrong_data_is_refused(ctx, response, case):
    """An invalid request is refused with a documented status."""
    return None if response.status_code in {413, 414} else documented.negative_data_rejection(ctx, response, case)


CHECKS = [
    wrong_data_is_refused,
    checks.not_a_server_error,
    documented.status_code_conformance,
    documented.content_type_conformance,
    documented.response_headers_conformance,
    documented.response_schema_conformance,
]
bounded = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
OPERATIONS = [
    ("POST", "/api/fetch"),
    ("GET", "/api/fetch"),
    ("GET", "/api/response/{request_id}"),
    ("GET", "/api/credits"),
    ("GET", "/api/backends"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/"),
]


@pytest.fixture(scope="module")
def document(service):
    """The OpenAPI document of the running service."""
    return schemathesis.openapi.from_url(f"{service.base_url}/openapi.json")


@pytest.fixture(scope="module")
def session_of_requests():
    """A session with a persistent connection."""
    with requests.Session() as session:
        yield session


@pytest.fixture(scope="module")
def key(service):
    """A key with enough credits for all requests."""
    opened = asyncio.run(create_api_key(service.database, "schemathesis", 100_000))
    return {"X-API-Key": f"Token {opened}"}


def test_every_operation_is_tried(document):
    """Every operation of the document is in the list of this file."""
    operations = [
        (method.upper(), path) for path, methods in document.raw_schema["paths"].items() for method in methods
    ]
    assert sorted(operations) == sorted(OPERATIONS)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
@pytest.mark.parametrize(("method", "path"), OPERATIONS[:5], ids=str)
def test_whatever_is_asked_the_answer_is_documented(document, key, mode, method, path):
    """Valid requests, and requests with one error, get documented answers."""
    operation = document[path][method]
    if mode is GenerationMode.NEGATIVE and not path.endswith("fetch"):
        return  # any text is an id, and nothing can be wrong in a request without parameters

    @bounded
    @given(operation.as_strategy(generation_mode=mode))
    def run(case):
        case.call_and_validate(headers=key, checks=CHECKS, timeout=30)

    run()


def test_pictures_with_any_options_get_documented_answers(document, key, site):
    """Requests with pictures and any valid options get documented answers."""

    @bounded
    @given(document["/api/fetch"]["POST"].as_strategy())
    def run(case):
        fields = case.body if isinstance(case.body, dict) else {}
        urls = [site.url("picture/1.png"), site.url("picture/2.png")]
        case.body = {**fields, "file": [], "url": urls[: 1 + len(fields) % 2]}
        case.media_type = "application/json"
        answer = case.call_and_validate(headers=key, checks=CHECKS, timeout=30)
        assert answer.status_code in {200, 400}

    run()


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
def test_the_document_and_the_service_agree_on_what_is_wrong(document, key, site, session_of_requests, mode):
    """A request is refused exactly if it is invalid by the document."""
    schema = {"$ref": "#/components/schemas/AnalyzeRequest", "components": document.raw_schema["components"]}
    allows = jsonschema_rs.Draft202012Validator(schema).is_valid
    address = document["/api/fetch"]["POST"].base_url.rstrip("/") + "/api/fetch"
    judged = {True: 0, False: 0}

    @settings(bounded, max_examples=80)
    @given(document["/api/fetch"]["POST"].as_strategy(generation_mode=mode))
    def run(case):
        fields = case.body if isinstance(case.body, dict) else {}
        body = {**fields, "file": [], "url": site.url("picture/1.png")}
        answered = session_of_requests.post(address, data=json.dumps(body).encode(), headers=key, timeout=30)
        judged[allows(body)] += 1
        assert (answered.status_code == 200) == allows(body), (body, answered.text)

    run()
    assert judged[mode is GenerationMode.POSITIVE] > 10


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("tag_score", value) for value in (True, -0.1, 1.1, "x", [0.5], {})),
        *((name, value) for name in ("capture_interval", "max_frames") for value in (False, 2**31, 1.5, "x", [3], -1)),
        *((name, value) for name in ("backend", "feature") for value in ([1], 1, {}, [None], "x" * 101, ["x"] * 101)),
        *(("feature", value) for value in ("nobody", ["nobody"], ["nobody", ""])),
        *(("role", value) for value in ("nobody", 1, ["general"])),
        *((name, value) for name in ("language", "prompt") for value in (1, ["x"], {}, True)),
        *((name, value) for name in ("url", "file", "file_name") for value in (1, [1], {}, [None], True)),
    ],
    ids=str,
)
def test_each_wrong_value_is_refused_by_both(document, key, site, session_of_requests, field, value):
    """A value that is invalid by the document is refused with the name of the field."""
    schema = {"$ref": "#/components/schemas/AnalyzeRequest", "components": document.raw_schema["components"]}
    body = {"url": site.url("picture/1.png"), field: value}
    address = document["/api/fetch"]["POST"].base_url.rstrip("/") + "/api/fetch"
    answered = session_of_requests.post(address, data=json.dumps(body).encode(), headers=key, timeout=30)
    assert not jsonschema_rs.Draft202012Validator(schema).is_valid(body)
    assert (answered.status_code, field in answered.json()["error"]) == (400, True), answered.text


@pytest.mark.parametrize(("method", "path"), OPERATIONS[:5], ids=str)
def test_every_request_without_a_key_is_refused(document, method, path):
    """Every request without a key gets 401."""

    @settings(bounded, max_examples=3)
    @given(document[path][method].as_strategy())
    def run(case):
        answer = case.call_and_validate(headers={"X-API-Key": "Token nobody"}, checks=CHECKS, timeout=30)
        assert answer.status_code == 401

    run()


@pytest.mark.parametrize(("method", "path"), OPERATIONS[5:], ids=str)
def test_what_needs_no_key_answers_as_documented(document, method, path):
    """/healthz, /readyz, /metrics, /openapi.json and the index page answer as documented."""
    document[path][method].Case().call_and_validate(checks=CHECKS, timeout=30)
