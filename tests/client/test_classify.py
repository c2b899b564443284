"""Classification of answers in both dialects, and of every invalid answer."""

from __future__ import annotations

import json
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.client.classify import (
    Classification,
    ResponseVerdict,
    classify_poll,
    classify_submission,
    retry_after_s,
)
from lightmeter.client.http_answer import RawAnswer
from lightmeter.clock import utc_from_timestamp

ASSET = {"name": "a.jpg", "tags": {"Sand": [{"name": "Sand", "score": 0.9}]}}
RESULTS = {"assets": [ASSET], "errors": []}
NOW = 1_770_000_000.0


def answer(body=None, status=200, **headers):
    """Return an answer with a body (JSON, or bytes as they are) and headers."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return RawAnswer(status, {name.replace("_", "-"): value for name, value in headers.items()}, content)


def submission(*args, **kwargs):
    """Return the verdict on the answer to a submission."""
    return classify_submission(answer(*args, **kwargs), now=NOW).verdict


def poll(*args, **kwargs):
    """Return the verdict on the answer to a poll."""
    return classify_poll(answer(*args, **kwargs), now=NOW).verdict


@pytest.mark.parametrize("status", [200, 201, 202, 500])
@pytest.mark.parametrize("dialect", [{}, {"status": "completed"}, {"status": "done, says a later version"}])
def test_results_are_an_answer(dialect, status):
    """An answer with results is ANSWERED, with or without a `status`, at any HTTP status."""
    judged = classify_submission(answer({"request_id": "r", "all": RESULTS, "credits_paid": 3, **dialect}, status))
    assert judged.verdict is ResponseVerdict.ANSWERED
    assert judged.answer.all.assets[0].tags["Sand"][0].score == 0.9
    assert (judged.answer.credits_paid, judged.request_id, judged.error) == (3, "r", None)
    assert poll({"all": RESULTS, **dialect}, status) is ResponseVerdict.ANSWERED


@pytest.mark.parametrize("word", ["queued", "processing", "Processing"])
def test_partial_results_are_no_answer(word):
    """Results of a request that is still being processed are not ANSWERED."""
    body = {"request_id": "r", "status": word, "all": RESULTS}
    assert submission(body) is ResponseVerdict.ACKNOWLEDGED
    assert poll(body) is ResponseVerdict.PROCESSING


@pytest.mark.parametrize("status", [200, 202])
@pytest.mark.parametrize(
    "body",
    [
        {"request_id": "7f", "success": True, "response_uri": "https://service.example/api/response/7f"},
        {"request_id": "7f", "status": "queued", "success": True},
        {"request_id": "7f", "status": "some later word"},
        {"request_id": "7f", "all": None},
        {"success": True, "response_uri": "https://elsewhere.example/api/response/7f/"},
    ],
)
def test_acknowledgments(body, status):
    """A request id without results is an acknowledgment; of `response_uri` only the last segment is used."""
    judged = classify_submission(answer(body, status))
    assert (judged.verdict, judged.request_id) == (ResponseVerdict.ACKNOWLEDGED, "7f")


def test_numeric_request_ids():
    """A numeric request id becomes text."""
    judged = classify_submission(answer({"request_id": 12, "status": "queued"}))
    assert (judged.request_id, judged.answer.request_id) == ("12", "12")


@pytest.mark.parametrize("status", [200, 400, 401, 403, 500, 503])
@pytest.mark.parametrize("text", ["Access denied.", "Access denied. Email not verified.", "access denied"])
def test_denied_at_any_status(text, status):
    """A text that starts with `Access denied` is DENIED at any HTTP status, even outside JSON."""
    for body in ({"error": text}, {"error": text, "status": "failed"}, text.encode(), json.dumps(text).encode()):
        assert submission(body, status) is ResponseVerdict.DENIED
        assert poll(body, status) is ResponseVerdict.DENIED


def test_a_bare_401_is_denied():
    """A 401 without a known error text is DENIED."""
    assert submission(b"<html>", 401) is ResponseVerdict.DENIED


@pytest.mark.parametrize("status", [200, 400, 402, 500])
@pytest.mark.parametrize("text", ["No credits.", "Insufficient credits."])
def test_no_credits_at_any_status(text, status):
    """Both error texts about credits are NO_CREDITS at any HTTP status."""
    assert submission({"error": text}, status) is ResponseVerdict.NO_CREDITS
    assert submission({"error": "Please pay."}, 402) is ResponseVerdict.NO_CREDITS


@pytest.mark.parametrize("status", [200, 400, 413, 414, 500])
@pytest.mark.parametrize(
    "text",
    [
        "File/URL params are required.",
        "Invalid request format.",
        "Invalid URLs detected.",
        "File too large. Max 20MB.",
        "Max request length exceeded.",
    ],
)
def test_known_refusals_at_any_status(text, status):
    """The documented texts about invalid requests are REFUSED at any HTTP status."""
    for body in ({"error": text}, {"error": text, "status": "failed"}):
        judged = classify_submission(answer(body, status))
        assert (judged.verdict, judged.error) == (ResponseVerdict.REFUSED, text)


@pytest.mark.parametrize("status", [200, 400, 404, 405, 422])
def test_other_refusals(status):
    """Any other error text with 2xx or 4xx and no request id is REFUSED."""
    assert submission({"error": "Too many cats."}, status) is ResponseVerdict.REFUSED


def test_status_failed_without_an_accepted_request():
    """A `status: failed` without an accepted request is judged by the rest of the answer."""
    body = {"error": "Too many cats.", "status": "failed"}
    assert submission(body, 400) is ResponseVerdict.REFUSED
    assert submission(body, 429) is ResponseVerdict.THROTTLED
    assert submission(body, 500) is ResponseVerdict.UNCERTAIN
    assert submission(body, 200) is ResponseVerdict.FAILED
    assert poll(body, 500) is ResponseVerdict.UNCERTAIN


def test_an_error_with_a_request_id_was_taken():
    """An error beside a request id may have been charged: it is FAILED, not REFUSED."""
    assert submission({"error": "Out of film.", "request_id": "r"}) is ResponseVerdict.FAILED


@pytest.mark.parametrize("status", [200, 500])
def test_status_failed(status):
    """The `status` `failed` of the newer dialect is FAILED, from both endpoints."""
    body = {"request_id": "r", "status": "failed", "error": "Request failed: no luck", "credits_paid": 1}
    judged = classify_submission(answer(body, status))
    assert (judged.verdict, judged.error) == (ResponseVerdict.FAILED, "Request failed: no luck")
    assert judged.answer.credits_paid == 1
    assert poll(body, status) is ResponseVerdict.FAILED


def test_throttled():
    """429, and 503 with Retry-After, are THROTTLED, with the time to wait."""
    for body in (b"", b"<html>", {"error": "Slow down."}):
        assert submission(body, 429) is ResponseVerdict.THROTTLED
        judged = classify_submission(answer(body, 503, retry_after="7"))
        assert (judged.verdict, judged.retry_after_s) == (ResponseVerdict.THROTTLED, 7.0)
        assert poll(body, 429) is ResponseVerdict.THROTTLED


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504, 520])
@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", {"error": "Request failed: boom"}, {"error": "?"}])
def test_broken_answers_are_uncertain(body, status):
    """A failure of the service or a gateway is UNCERTAIN, with an excerpt of the body."""
    judged = classify_submission(answer(body, status))
    assert judged.verdict is ResponseVerdict.UNCERTAIN
    assert judged.error


def test_a_breakdown_text_is_uncertain_at_any_status():
    """`Request failed…` is UNCERTAIN at any HTTP status, because work had begun."""
    for status in (200, 400, 500):
        assert submission({"error": "Request failed. Try again"}, status) is ResponseVerdict.UNCERTAIN


@pytest.mark.parametrize("status", [200, 202, 204, 301, 302, 303, 400, 403, 404])
@pytest.mark.parametrize("body", [b"", b"<html>Welcome</html>", b"[]", b"null", b'{"all": ', {}, {"success": False}])
def test_what_is_no_answer_of_the_contract_is_uncertain(body, status):
    """A submission answered by a proxy or a sign-in page is UNCERTAIN."""
    assert submission(body, status) is ResponseVerdict.UNCERTAIN


@pytest.mark.parametrize("status", [307, 308])
def test_redirects_that_were_not_acted_upon(status):
    """307 and 308 are REFUSED: by definition the request was not acted upon."""
    assert submission(b"", status) is ResponseVerdict.REFUSED


def test_polls_go_on():
    """A poll without results is PROCESSING, in both dialects and for unknown `status` values."""
    for body in (
        {"request_id": "r", "status": "processing"},
        {"status": "queued"},
        {"request_id": "r"},
        {"status": "resting"},
        {"status": "completed"},
    ):
        assert poll(body) is ResponseVerdict.PROCESSING


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"error": "Request ID r not found."}, 404),
        ({"error": "Request ID r not found."}, 200),
        ({"error": "Request ID r not found.", "status": "failed"}, 404),
        (b"gone", 404),
    ],
)
def test_unknown_request_ids(body, status):
    """An unknown or expired request id is NOT_FOUND, by its text or its HTTP status."""
    assert poll(body, status) is ResponseVerdict.NOT_FOUND


def test_polls_that_break_can_be_repeated():
    """A poll that breaks is UNCERTAIN; one that reports the failure of the request is FAILED."""
    for status in (500, 502, 503, 504):
        assert poll(b"<html>", status) is ResponseVerdict.UNCERTAIN
    assert poll({"error": "Request failed: boom"}, 500) is ResponseVerdict.FAILED
    assert poll({"error": "Not now."}, 500) is ResponseVerdict.UNCERTAIN
    assert poll({"error": "Too slow."}, 408) is ResponseVerdict.UNCERTAIN
    assert poll({"error": "Bad id."}, 400) is ResponseVerdict.REFUSED
    assert poll({}) is ResponseVerdict.UNCERTAIN


@pytest.mark.parametrize("text", ["Invalid URLs detected.", "Too many cats."])
def test_a_poll_that_answers_with_an_error_has_failed(text):
    """A job was accepted, so it is FAILED, not REFUSED, whether or not the error names its request id."""
    assert poll({"error": text}) is ResponseVerdict.FAILED
    assert poll({"error": text, "request_id": "r"}) is ResponseVerdict.FAILED


def test_a_byte_order_mark_is_no_obstacle():
    """A byte order mark before the JSON is ignored."""
    assert submission(b"\xef\xbb\xbf" + json.dumps({"all": RESULTS}).encode()) is ResponseVerdict.ANSWERED


@pytest.mark.parametrize(
    ("headers", "expected_s"),
    [
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": " 120 "}, 120.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": format_datetime(utc_from_timestamp(NOW + 30), usegmt=True)}, 30.0),
        ({"retry-after": format_datetime(utc_from_timestamp(NOW - 30), usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "²"}, None),
        ({"retry-after": "9" * 400}, None),
        ({}, None),
    ],
)
def test_retry_after(headers, expected_s):
    """Retry-After is parsed as seconds or as a date; what cannot be parsed is ignored."""
    assert retry_after_s(RawAnswer(429, headers, b""), now=NOW) == expected_s


def test_retry_after_counts_from_the_services_own_clock():
    """A Retry-After date is compared with the answer's Date, so that clock errors do not matter."""
    headers = {
        "date": format_datetime(utc_from_timestamp(NOW + 5000), usegmt=True),
        "retry-after": format_datetime(utc_from_timestamp(NOW + 5007), usegmt=True),
    }
    assert retry_after_s(RawAnswer(429, headers, b""), now=NOW) == 7.0
    assert retry_after_s(RawAnswer(429, headers, b"")) == 7.0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "all": JSON | st.fixed_dictionaries({"assets": st.lists(JSON | st.just(ASSET)), "errors": JSON}),
        "status": JSON | st.sampled_from(["queued", "failed", "completed"]),
        "error": JSON | st.sampled_from(["Access denied.", "No credits.", "Request failed"]),
        "request_id": JSON,
        "response_uri": JSON | st.just("https://[::1/x"),
        "credits_paid": JSON,
    },
)
BODIES = st.binary() | JSON.map(lambda value: json.dumps(value).encode()) | NEARLY.map(lambda v: json.dumps(v).encode())
HEADERS = st.dictionaries(st.sampled_from(["retry-after", "date"]), st.text() | st.just("Mon, 99 Foo 99999 99:99:99"))


@given(BODIES, st.integers(100, 599), HEADERS)
def test_classification_never_raises(body, status, headers):
    """Any answer is classified without an exception."""
    raw = RawAnswer(status, headers, body)
    for judged in (classify_submission(raw, now=NOW), classify_poll(raw)):
        assert isinstance(judged, Classification)
        assert judged.retry_after_s is None or judged.retry_after_s >= 0
        assert judged.request_id is None or judged.request_id
        assert judged.answer is None or judged.answer.request_id == judged.request_id


@given(BODIES, st.integers(100, 599))
def test_nothing_is_presumed_unpaid_without_proof(body, status):
    """A submission counts as not charged only if a known text or status proves it."""
    judged = classify_submission(RawAnswer(status, {}, body))
    if judged.verdict in {
        ResponseVerdict.REFUSED,
        ResponseVerdict.THROTTLED,
        ResponseVerdict.DENIED,
        ResponseVerdict.NO_CREDITS,
    }:
        assert status in {401, 429, 307, 308} or b"error" in body or b"ccess denied" in body.lower()
