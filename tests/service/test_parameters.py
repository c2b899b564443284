"""Any input is parsed into a request, or refused with a message."""

from __future__ import annotations

import base64
import binascii
import json
import re
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lightmeter.service.http.parameters import (
    MAX_CHARS,
    BadRequest,
    from_json,
    from_query,
    read_uploads,
    validate,
)
from lightmeter.wire.constants import FEATURES, MAX_FILE_BYTES, ROLES
from lightmeter.wire.request import AnalyzeRequest

OFFERED = {"palette": frozenset({"colors"}), "imagenet": frozenset({"tags"})}
FIELDS = sorted(AnalyzeRequest.model_fields)

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from([*FEATURES, *ROLES])
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=6)
bodies = st.dictionaries(st.sampled_from(FIELDS) | st.text(), values, max_size=6)
queries = st.lists(st.tuples(st.sampled_from([*FIELDS, *(f"{name}[]" for name in FIELDS)]) | st.text(), st.text()))


def parse_and_validate(read: Callable[[], AnalyzeRequest]) -> None:
    """Parse and validate input as the service does; only BadRequest may be raised."""
    try:
        request = validate(read(), OFFERED, allow_private=True)
        read_uploads(request)
    except BadRequest:
        return
    again = AnalyzeRequest.model_validate_json(request.model_dump_json(exclude={"file"}))
    assert again == request.model_copy(update={"file": []})
    assert abs(request.capture_interval) < 2**63 > abs(request.max_frames)


@given(st.binary())
@example(b"[" * 100_000)
@example(b'{"url": "\\ud800"}')
def test_any_body_is_a_request_or_a_bad_one(body):
    """Any bytes are parsed or refused."""
    parse_and_validate(lambda: from_json(body))


@given(bodies)
@example({"max_frames": 10**40})
@example({"capture_interval": 1e300})
@example({"tag_score": True, "url": "http://a"})
@example({"url": "http://example.org/\0"})
def test_any_object_is_a_request_or_a_bad_one(fields):
    """Any values of known parameters are parsed or refused."""
    parse_and_validate(lambda: from_json(json.dumps(fields).encode()))


@pytest.mark.parametrize("name", ["role", "language", "prompt"])
def test_a_list_for_a_text_is_named_as_such(name):
    """The message for a list of texts does not say that a list is allowed."""
    with pytest.raises(BadRequest, match=rf"^{name} must be a text\.$"):
        from_json(json.dumps({"url": "http://a", name: ["realtor"]}).encode())
    with pytest.raises(BadRequest, match=r"^feature must be a text or a list of texts\.$"):
        from_json(b'{"url": "http://a", "feature": [5]}')


@given(queries)
@example([("url", "http://a/\0"), ("tag_score", "nan")])
@example([("url", "http://a"), ("max_frames", "9" * 400)])
@example([("url", "http://a"), ("capture_interval", "9" * 5000)])
def test_any_query_is_a_request_or_a_bad_one(pairs):
    """Any query parameters are parsed or refused."""
    parse_and_validate(lambda: from_query(pairs))


@given(st.binary(max_size=300), st.sampled_from(["", "data:image/png;base64,", "DATA:;base64,"]), st.booleans())
def test_uploads_come_out_as_they_went_in(content, prefix, padded):
    """Base64 is decoded with or without data URI and padding."""
    text = base64.b64encode(content).decode()
    request = AnalyzeRequest(file=[prefix + (text if padded else text.rstrip("="))])
    assert read_uploads(request) == (content,)


@given(st.binary(max_size=300), st.booleans())
def test_a_data_uri_may_be_percent_encoded(content, in_lowercase):
    """Base64 in a data URI is decoded also if it is percent-encoded; outside a data URI it is refused."""
    text = quote(base64.b64encode(content + b"\xff\xff"), safe="")
    text = re.sub("%..", lambda match: match[0].lower(), text) if in_lowercase else text
    assert read_uploads(AnalyzeRequest(file=["data:;base64," + text])) == (content + b"\xff\xff",)
    if "%" in text:
        with pytest.raises(BadRequest, match="must be base64"):
            read_uploads(AnalyzeRequest(file=[text]))


@pytest.mark.parametrize(
    "body",
    [
        *(b'{"prompt": %s}' % value for value in (b"NaN", b"1e400", b"01", b'"\xff"', b'"\\ud800"', b'"\x01"')),
        b"\xef\xbb\xbf{}",
        b"{}\x00",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"max_frames": ' + b"9" * 5000 + b"}",
        b'{"tag_score": ' + b"9" * 400 + b"}",
    ],
)
def test_a_body_that_is_no_json_or_beyond_all_bounds_is_refused(body):
    """Any JSON text is parsed or refused."""
    with pytest.raises(BadRequest):
        from_json(body)


@given(st.text("ABz09+/=-_ \n\u00e9", max_size=12))
def test_what_is_base64_is_what_the_standard_library_says(text):
    """Base64 with blanks or wrong padding is decoded; anything else is refused with 400."""
    joined = "".join(text.split())
    read = (
        lambda: binascii.a2b_base64(text, strict_mode=True),
        lambda: base64.b64decode(joined + "=" * (-len(joined) % 4), validate=True),
    )
    expected = None
    for way in read:
        with suppress(ValueError):
            expected = way() if expected is None else expected
    request = AnalyzeRequest(file=["data:," + text])
    if expected is None:
        with pytest.raises(BadRequest, match="must be base64"):
            read_uploads(request)
    else:
        assert read_uploads(request) == (expected,)


@pytest.mark.parametrize("extra", [-1, 0, 1, 2, 3])
def test_the_limit_is_on_decoded_bytes(extra):
    """A file of exactly 20 MiB is the largest that is accepted."""
    request = AnalyzeRequest(file=[base64.b64encode(bytes(MAX_FILE_BYTES + extra)).decode()])
    if extra <= 0:
        assert len(read_uploads(request)[0]) == MAX_FILE_BYTES + extra
    else:
        with pytest.raises(BadRequest, match="File too large") as caught:
            read_uploads(request)
        assert caught.value.status == 413


@pytest.mark.parametrize("name", ["url", "backend", "feature", "file_name"])
def test_a_string_is_a_list_of_one(name):
    """A number that is not allowed is refused in JSON and in queries."""
    for request in (from_json(json.dumps({name: "x"}).encode()), from_json(json.dumps({name: ["x"]}).encode())):
        assert getattr(request, name) == ["x"]
    for pairs in ([(name, "x")], [(f"{name}[]", "x")]):
        assert getattr(from_query(pairs), name) == ["x"]


def test_empty_values_mean_none():
    """An empty role, language, prompt or number means omitted."""
    fields = {"url": "http://a/", "role": "", "language": "", "prompt": "", "backend": "", "feature": []}
    default = validate(AnalyzeRequest(url=["http://a/"]), OFFERED, allow_private=True)
    pairs = [("tag_score", "") if name == "feature" else (name, text) for name, text in fields.items()]
    for request in (from_json(json.dumps(fields).encode()), from_query(pairs)):
        assert validate(request, OFFERED, allow_private=True).model_dump() == default.model_dump()


def test_unknown_fields_are_ignored():
    """Unknown parameters are ignored."""
    request = from_json(b'{"url": "http://a/", "webhook": "http://b/", "version": 9}')
    assert request.model_dump() == AnalyzeRequest(url=["http://a/"]).model_dump()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"role": "a" * 101}, "role must be at most 100 characters."),
        ({"language": "a" * 101}, "language must be at most 100 characters."),
        ({"prompt": "a" * 100_001}, "prompt must be at most 100000 characters."),
        ({"file_name": ["a", "a" * 16_385]}, "file_name must be at most 16384 characters each."),
        ({"tag_score": "0" * 101}, "tag_score must be a number from 0 to 1."),
        ({"file": [""] * 100_001}, "file must be at most 100000 texts."),
        ({"url": "http://a/" + "a" * 16_384}, "Invalid URLs detected."),
        ({"url": "http://" + "\u00e4." * 150 + "a/"}, "Invalid URLs detected."),
    ],
)
def test_texts_have_a_maximum_length(fields, message):
    """A text that is longer than the limit of its parameter is refused, and the message does not repeat it."""
    with pytest.raises(BadRequest, match=re.escape(message)):
        validate(from_json(json.dumps({"url": "http://a", **fields}).encode()), OFFERED, allow_private=True)


def test_texts_of_the_maximum_length_are_accepted():
    """A text that is as long as the limit of its parameter is accepted."""
    longest = {name: "a" * MAX_CHARS[name] for name in ("language", "prompt", "file_name")}
    url = "http://a/" + "a" * 8183
    request = validate(from_json(json.dumps({"url": url, **longest}).encode()), OFFERED, allow_private=True)
    assert (request.url, request.prompt) == ([url], longest["prompt"])


def test_no_objects_are_created_for_unknown_fields():
    """The memory for a body does not grow with the lists in its unknown fields."""
    body = b'{"x":[' + b"[]," * 100_000 + b"[]]}"
    tracemalloc.start()
    try:
        from_json(body)
        assert tracemalloc.get_traced_memory()[1] < len(body)
    finally:
        tracemalloc.stop()


def test_names_count_once():
    """A back end that is named twice counts once."""
    request = validate(
        AnalyzeRequest(url=["http://a/"], backend=["palette", "Palette"], feature=["colors", "COLORS "]),
        OFFERED,
        allow_private=True,
    )
    assert (request.backend, request.feature) == (["palette"], ["colors"])
