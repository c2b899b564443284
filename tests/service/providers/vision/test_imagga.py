"""Imagga on loopback: the documented uploads go out, the documented answers become entries."""

from __future__ import annotations

import base64
from email.parser import BytesParser
from email.policy import HTTP

import pytest

from lightmeter.errors import BackendError, SettingsError
from lightmeter.service.backends.base import Backend

BASIC = "Basic " + base64.b64encode(b"key-0123456789abcdef:secret-0123456789abcdef").decode()
DONE = {"text": "", "type": "success"}
TAGS = {
    "result": {
        "tags": [
            {"confidence": 61.4116096496582, "tag": {"en": "mountain"}},
            {"confidence": 100, "tag": {"en": "landscape", "de": "Landschaft"}},
        ]
    },
    "status": DONE,
}
CATEGORIES = {
    "result": {
        "categories": [
            {"confidence": 96.5, "name": {"en": "safe"}},
            {"confidence": 3, "name": {"en": "underwear"}},
            {"confidence": 0.5, "name": {"en": "nsfw"}},
        ]
    },
    "status": DONE,
}
PATHS = {"tags": "/v2/tags", "nsfw": "/v2/categories/nsfw_beta"}


@pytest.fixture
def backend(adapter_of, http_provider):
    answers = {PATHS["tags"]: TAGS, PATHS["nsfw"]: CATEGORIES}
    http_provider.otherwise = lambda handler, released: http_provider.reply(200, answers[handler.path])(
        handler, released
    )
    return adapter_of("imagga", http_provider.url)


def parts_of(request) -> dict[str, tuple[str, str, bytes]]:
    """Return the fields of a form: name → file name, media type and bytes."""
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    form = BytesParser(policy=HTTP).parsebytes(head + request.body)
    return {
        part.get_param("name", header="content-disposition"): (
            part.get_filename(),
            part.get_content_type(),
            part.get_payload(decode=True),
        )
        for part in form.iter_parts()
    }


@pytest.mark.parametrize("feature", PATHS)
def test_each_feature_is_one_upload(feature, backend, analyze, http_provider, is_the_picture, counted):
    """A call carries both halves of the key as basic authentication, and the picture in the field `image`."""
    entries = analyze(backend, feature, "faces")
    (request,) = http_provider.requests
    assert (request.path, request.headers["authorization"]) == (PATHS[feature], BASIC)
    ((name, (file_name, kind, jpeg)),) = parts_of(request).items()
    assert (name, file_name, kind) == ("image", "picture.jpg", "image/jpeg")
    assert is_the_picture(jpeg)
    assert {name for name, value in entries.model_dump().items() if value} == {feature}
    assert counted.usages == [("imagga", PATHS[feature].rpartition("/")[2])]


def test_the_toolkit_reads_every_feature(backend, analyze, tables):
    """Percentages become scores of 0 to 1; `safe` becomes `sfw`, whose severity is 1 - score."""
    assert isinstance(backend, Backend)
    rows = tables(analyze(backend))
    assert [(row["name"], row["score"], row["source"]) for row in rows["tags"]] == [
        ("landscape", 1.0, "imagga"),
        ("mountain", 0.614116, "imagga"),
    ]
    assert [(row["label"], row["score"]) for row in rows["nsfw"]] == [
        ("sfw", 0.965),
        ("underwear", 0.03),
        ("nsfw", 0.005),
    ]
    assert [row["severity"] for row in rows["nsfw"]] == pytest.approx([0.035, 0.03, 0.005])


def test_no_more_than_fifty_tags(adapter_of, http_provider, analyze):
    """At most fifty tags with the highest scores are returned; of equal names, the higher score counts."""
    found = [{"confidence": index / 2, "tag": {"en": f"tag {index % 150}"}} for index in range(200)]
    http_provider.script.append(http_provider.reply(200, {"result": {"tags": found}, "status": DONE}))
    tags = analyze(adapter_of("imagga", http_provider.url), "tags").tags
    assert len(tags) == 50
    assert list(tags)[:2] == ["tag 49", "tag 48"]
    assert tags["tag 49"][0].score == 0.995


def test_an_error_in_an_answer_with_status_200_is_an_error(adapter_of, http_provider, analyze, counted):
    """An error status in the answer is a failure with the provider's text as its message."""
    body = {"result": {"tags": []}, "status": {"text": "The image is too small.", "type": "error"}}
    http_provider.script.append(http_provider.reply(200, body))
    with pytest.raises(BackendError, match=r"refused the call: The image is too small\."):
        analyze(adapter_of("imagga", http_provider.url), "tags")
    assert counted.errors == [("imagga", "refused")]


@pytest.mark.parametrize(
    ("feature", "body"),
    [
        ("tags", {"status": DONE}),
        ("tags", {"result": {"tags": [{"confidence": "high", "tag": {"en": "x"}}]}, "status": DONE}),
        ("tags", {"result": {"tags": [{"confidence": 1, "tag": "x"}]}, "status": DONE}),
        ("nsfw", {"result": {"categories": []}, "status": DONE}),
        ("nsfw", {"result": None, "status": DONE}),
        ("nsfw", b"<html>"),
    ],
)
def test_what_is_no_answer_is_an_error(feature, body, adapter_of, http_provider, analyze, counted):
    """An answer of another structure is counted as malformed and not retried."""
    http_provider.script.append(http_provider.reply(200, body))
    with pytest.raises(BackendError, match="cannot be read"):
        analyze(adapter_of("imagga", http_provider.url), feature)
    assert (counted.errors, len(http_provider.requests)) == ([("imagga", "malformed")], 1)


def test_without_both_halves_of_the_key_it_is_not_made(adapter_of):
    """The error names both environment variables."""
    with pytest.raises(SettingsError, match="IMAGGA_API_KEY and IMAGGA_API_SECRET"):
        adapter_of("imagga", "http://127.0.0.1:9", api_secret=None)
