"""What an answer means for money, in every dialect and for every odd answer."""

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
    """An answer with this JSON body, or these bytes, and these headers."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return RawAnswer(status, {name.replace("_", "-"): value for name, value in headers.items()}, content)


def submission(*args, **kwargs):
    """The verdict on such a submission."""
    return classify_submission(answer(*args, **kwargs), now=NOW).verdict


def poll(*args, **kwargs):
    """The verdict on such a poll."""
    return classify_poll(answer(*args, **kwargs), now=NOW).verdict


@pytest.mark.parametrize("status", [200, 201, 202, 500])
@pytest.mark.parametrize("dialect", [{}, {"status": "completed"}, {"status": "done, says a later version"}])
def test_results_are_an_answer(dialect, status):
    """Where results are, the request is answered: with or without a status word, at any HTTP status."""
    judged = classify_submission(answer({"request_id": "r", "all": RESULTS, "credits_paid": 3, **dialect}, status))
    assert judged.verdict is ResponseVerdict.ANSWERED
    assert judged.answer.all.assets[0].tags["Sand"][0].score == 0.9
    assert (judged.answer.credits_paid, judged.request_id, judged.error) == (3, "r", None)
    assert poll({"all": RESULTS, **dialect}, status) is ResponseVerdict.ANSWERED


@pytest.mark.parametrize("word", ["queued", "processing", "Processing"])
def test_partial_results_are_no_answer(word):
    """Results of a request that is still being processed are not yet the results."""
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
    """A request id without results is an acknowledgment; the result address only lends its last step."""
    judged = classify_submission(answer(body, status))
    assert (judged.verdict, judged.request_id) == (ResponseVerdict.ACKNOWLEDGED, "7f")


def test_numeric_request_ids():
    """A request id that comes as a number is polled as text."""
    judged = classify_submission(answer({"request_id": 12, "status": "queued"}))
    assert (judged.request_id, judged.answer.request_id) == ("12", "12")


@pytest.mark.parametrize("status", [200, 400, 401, 403, 500, 503])
@pytest.mark.parametrize("text", ["Access denied.", "Access denied. Email not verified.", "access denied"])
def test_denied_at_any_status(text, status):
    """A text that starts with `Access denied` is fatal whatever the HTTP status, also when it is no JSON."""
    for body in ({"error": text}, {"error": text, "status": "failed"}, text.encode(), json.dumps(text).encode()):
        assert submission(body, status) is ResponseVerdict.DENIED
        assert poll(body, status) is ResponseVerdict.DENIED


def test_a_bare_401_is_denied():
    """A gateway that wants other credentials denies access without our error text."""
    assert submission(b"<html>", 401) is ResponseVerdict.DENIED


@pytest.mark.parametrize("status", [200, 400, 402, 500])
@pytest.mark.parametrize("text", ["No credits.", "Insufficient credits."])
def test_no_credits_at_any_status(text, status):
    """Both texts about credits mean the account is short, whatever the HTTP status."""
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
    """The documented texts about the request itself mean that it was not taken, at any HTTP status."""
    for body in ({"error": text}, {"error": text, "status": "failed"}):
        judged = classify_submission(answer(body, status))
        assert (judged.verdict, judged.error) == (ResponseVerdict.REFUSED, text)


@pytest.mark.parametrize("status", [200, 400, 404, 405, 422])
def test_other_refusals(status):
    """Any other error text with 2xx or 4xx, and no request id, is a refusal."""
    assert submission({"error": "Too many cats."}, status) is ResponseVerdict.REFUSED


def test_the_word_failed_alone_is_no_failure():
    """Errors may carry `status: failed` with no request taken: the rest of the answer decides."""
    body = {"error": "Too many cats.", "status": "failed"}
    assert submission(body, 400) is ResponseVerdict.REFUSED
    assert submission(body, 429) is ResponseVerdict.THROTTLED
    assert submission(body, 500) is ResponseVerdict.UNCERTAIN
    assert submission(body, 200) is ResponseVerdict.FAILED
    assert poll(body, 500) is ResponseVerdict.UNCERTAIN


def test_an_error_with_a_request_id_was_taken():
    """An error beside a request id may have been charged: it failed, and was not refused."""
    assert submission({"error": "Out of film.", "request_id": "r"}) is ResponseVerdict.FAILED


@pytest.mark.parametrize("status", [200, 500])
def test_status_failed(status):
    """The newer dialect's `failed` is a failure with its error, from both endpoints."""
    body = {"request_id": "r", "status": "failed", "error": "Request failed: no luck", "credits_paid": 1}
    judged = classify_submission(answer(body, status))
    assert (judged.verdict, judged.error) == (ResponseVerdict.FAILED, "Request failed: no luck")
    assert judged.answer.credits_paid == 1
    assert poll(body, status) is ResponseVerdict.FAILED


def test_throttled():
    """429, and 503 with Retry-After, are pleas to come later; the time is kept."""
    for body in (b"", b"<html>", {"error": "Slow down."}):
        assert submission(body, 429) is ResponseVerdict.THROTTLED
        judged = classify_submission(answer(body, 503, retry_after="7"))
        assert (judged.verdict, judged.retry_after_s) == (ResponseVerdict.THROTTLED, 7.0)
        assert poll(body, 429) is ResponseVerdict.THROTTLED


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504, 520])
@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", {"error": "Request failed: boom"}, {"error": "?"}])
def test_broken_answers_are_uncertain(body, status):
    """A service or a gateway that broke down may have charged: uncertain, with what it said."""
    judged = classify_submission(answer(body, status))
    assert judged.verdict is ResponseVerdict.UNCERTAIN
    assert judged.error


def test_a_breakdown_text_is_uncertain_at_any_status():
    """`Request failed…` says that work had begun, whatever the HTTP status says."""
    for status in (200, 400, 500):
        assert submission({"error": "Request failed. Try again"}, status) is ResponseVerdict.UNCERTAIN


@pytest.mark.parametrize("status", [200, 202, 204, 301, 302, 303, 400, 403, 404])
@pytest.mark.parametrize("body", [b"", b"<html>Welcome</html>", b"[]", b"null", b'{"all": ', {}, {"success": False}])
def test_what_is_no_answer_of_the_contract_is_uncertain(body, status):
    """A submission answered by something else, a proxy or a sign-in page, has no known outcome."""
    assert submission(body, status) is ResponseVerdict.UNCERTAIN


@pytest.mark.parametrize("status", [307, 308])
def test_redirects_that_were_not_acted_upon(status):
    """These two redirects are by definition no outcome of the request, so nothing was charged."""
    assert submission(b"", status) is ResponseVerdict.REFUSED


def test_polls_go_on():
    """While there are no results a poll says so, in both dialects and for words of the future."""
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
def test_polls_of_nothing(body, status):
    """An id that is unknown or expired is not found: by the text or by the status."""
    assert poll(body, status) is ResponseVerdict.NOT_FOUND


def test_polls_that_break_can_be_repeated():
    """A poll that breaks down is uncertain, and one that says the request failed is final."""
    for status in (500, 502, 503, 504):
        assert poll(b"<html>", status) is ResponseVerdict.UNCERTAIN
    assert poll({"error": "Request failed: boom"}, 500) is ResponseVerdict.FAILED
    assert poll({"error": "Not now."}, 500) is ResponseVerdict.UNCERTAIN
    assert poll({"error": "Too slow."}, 408) is ResponseVerdict.UNCERTAIN
    assert poll({"error": "Bad id."}, 400) is ResponseVerdict.REFUSED
    assert poll({}) is ResponseVerdict.UNCERTAIN


def test_a_byte_order_mark_is_no_obstacle():
    """Some servers put a byte order mark before their JSON."""
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
    """Retry-After is read in seconds and as a date; what cannot be read is as good as absent."""
    assert retry_after_s(RawAnswer(429, headers, b""), now=NOW) == expected_s


def test_retry_after_counts_from_the_services_own_clock():
    """A date is counted from the answer's Date, so a wrong clock here or there does not matter."""
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
def test_judging_never_raises(body, status, headers):
    """Any answer at all is judged, and what is not clearly otherwise is uncertain."""
    raw = RawAnswer(status, headers, body)
    for judged in (classify_submission(raw, now=NOW), classify_poll(raw)):
        assert isinstance(judged, Classification)
        assert judged.retry_after_s is None or judged.retry_after_s >= 0
        assert judged.request_id is None or judged.request_id
        assert judged.answer is None or judged.answer.request_id == judged.request_id


@given(BODIES, st.integers(100, 599))
def test_nothing_is_presumed_unpaid_without_proof(body, status):
    """A submission is taken for unpaid only when a text or one of four statuses says so."""
    judged = classify_submission(RawAnswer(status, {}, body))
    if judged.verdict in {
        ResponseVerdict.REFUSED,
        ResponseVerdict.THROTTLED,
        ResponseVerdict.DENIED,
        ResponseVerdict.NO_CREDITS,
    }:
        assert status in {401, 429, 307, 308} or b"error" in body or b"ccess denied" in body.lower()
