"""When a provider is called again: decided on a clock that stands still unless somebody waits."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime
from itertools import pairwise
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.service.backends.providers.description.failures import (
    MAX_MESSAGE_CHARS,
    DescriptionCallFailed,
    FailureKind,
    provider_message,
    redact,
    retry_hint_s,
    status_failure,
)
from lightmeter.service.backends.providers.description.retry import DescriptionRetrier
from lightmeter.service.backends.providers.provider import ProviderSettings

NOW = datetime(2026, 11, 22, tzinfo=UTC).timestamp()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "message", "detail", "details", "msg", "retryDelay"]), inner)
    ),
    max_leaves=10,
)


class Clock:
    """Seconds that pass only while somebody sleeps or calls."""

    def __init__(self):
        self.seconds = 0.0
        self.calls = []

    def now(self):
        """Seconds since the beginning."""
        return self.seconds

    def sleep(self, seconds):
        """Let them pass."""
        assert seconds > 0
        self.seconds += seconds

    def calling(self, *outcomes, lasting=0.0):
        """A call that notes when it was made and with which timeout, and takes its time; the last outcome stays."""
        rest = list(outcomes)

        def once(timeout_s):
            self.calls.append((self.seconds, timeout_s))
            self.seconds += min(lasting, timeout_s)
            outcome = rest.pop(0) if len(rest) > 1 else rest[0]
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return once


def throttled(wait_s=None):
    return DescriptionCallFailed("throttled", FailureKind.THROTTLED, retry=True, wait_s=wait_s)


def broken(wait_s=None):
    return DescriptionCallFailed("broken", FailureKind.BROKEN, retry=True, wait_s=wait_s)


@pytest.fixture
def clock():
    """A new clock."""
    return Clock()


@pytest.fixture
def retrying(clock):
    """Makes `Retries` on the clock."""

    def make(**more):
        return DescriptionRetrier(
            ProviderSettings("mine", "https://a/v1", "m", **more), now=clock.now, sleep=clock.sleep
        )

    return make


def test_pauses_double(retrying, clock):
    """Half a second, one, two: each up to a quarter longer, and no longer than the longest pause."""
    with pytest.raises(DescriptionCallFailed):
        retrying(max_attempts=5, max_pause_s=3.0).call(clock.calling(broken()))
    starts = [at for at, _ in clock.calls]
    pauses = [after - before for before, after in pairwise(starts)]
    for pause, least in zip(pauses, (0.5, 1, 2, 3), strict=True):
        assert least <= pause <= least * 1.25


@pytest.mark.parametrize("failure", [throttled, broken])
def test_the_providers_pause_is_kept(retrying, clock, failure):
    """No call before the time that the provider named, whatever our own pause would be."""
    assert retrying().call(clock.calling(failure(20.0), "yes")) == "yes"
    assert 20 <= clock.calls[1][0] <= 25


def test_throttling_holds_back_all_callers(retrying, clock):
    """Who was not throttled itself waits as long as who was; a passing error holds back nobody else."""
    retries = retrying(max_attempts=1)
    with pytest.raises(DescriptionCallFailed):
        retries.call(clock.calling(throttled(20.0)))
    assert retries.call(clock.calling("yes")) == "yes"
    assert clock.calls[1][0] >= 20
    with pytest.raises(DescriptionCallFailed):
        retries.call(clock.calling(broken()))
    at = clock.seconds
    retries.call(clock.calling("yes"))
    assert clock.calls[-1][0] == at


def test_nobody_is_held_back_for_longer_than_the_longest_pause(retrying, clock):
    """A provider that says "tomorrow" is given up by who heard it, and asked again after a minute by others."""
    retries = retrying(max_pause_s=60.0)
    with pytest.raises(DescriptionCallFailed):
        retries.call(clock.calling(throttled(86_400.0)))
    assert retries.call(clock.calling("yes")) == "yes"
    assert 60 <= clock.calls[1][0] <= 75


def test_who_would_wait_beyond_the_deadline_gives_up(retrying, clock):
    """It is told at once, without a call."""
    retries = retrying(max_attempts=1, deadline_s=10.0)
    with pytest.raises(DescriptionCallFailed):
        retries.call(clock.calling(throttled(30.0)))
    with pytest.raises(DescriptionCallFailed, match="throttling"):
        retries.call(clock.calling("yes"))
    assert (len(clock.calls), clock.seconds) == (1, 0)


def test_what_will_fail_again_is_not_repeated(retrying, clock):
    """A refusal is final."""
    with pytest.raises(DescriptionCallFailed, match="no"):
        retrying().call(clock.calling(DescriptionCallFailed("no", FailureKind.REFUSED)))
    assert len(clock.calls) == 1


@given(
    attempts=st.integers(1, 6),
    timeout_s=st.floats(0.1, 100),
    deadline_s=st.floats(0.1, 300),
    lasting=st.floats(0, 100),
    hints=st.lists(st.none() | st.floats(0, 200), min_size=1, max_size=6),
)
def test_limits_hold_together(attempts, timeout_s, deadline_s, lasting, hints):
    """Never more calls than allowed, none begun after the deadline, none allowed to last beyond it."""
    clock = Clock()
    settings = ProviderSettings(
        "m", "https://a", "m", max_attempts=attempts, timeout_s=timeout_s, deadline_s=deadline_s
    )
    retries = DescriptionRetrier(settings, now=clock.now, sleep=clock.sleep)
    with pytest.raises(DescriptionCallFailed):
        retries.call(clock.calling(*map(throttled, hints), lasting=lasting))
    assert 1 <= len(clock.calls) <= attempts
    for at, allowed in clock.calls:
        assert allowed <= timeout_s
        assert at < deadline_s
        assert 0 < allowed <= deadline_s - at


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry-after": "7"}, None, 7),
        ({"retry-after": "1.5", "retry-after-ms": "250"}, None, 0.25),
        ({"retry-after": format_datetime(datetime.fromtimestamp(NOW + 30, UTC), usegmt=True)}, None, 30),
        ({"retry-after": format_datetime(datetime.fromtimestamp(NOW - 30, UTC), usegmt=True)}, None, 0),
        ({"retry-after": "-5"}, None, 0),
        ({"retry-after": "soon"}, None, None),
        ({"retry-after": "nan"}, None, None),
        ({"retry-after": "inf"}, None, None),
        ({"retry-after-ms": "soon", "retry-after": "2"}, None, 2),
        ({}, [{"error": {"code": 429, "details": [{"@type": "x"}, {"retryDelay": "24.5s"}]}}], 24.5),
        ({}, {"error": {"details": {"error_code": "x"}}}, None),
        ({}, {"error": "text"}, None),
        ({}, None, None),
    ],
)
def test_pauses_that_providers_ask_for(headers, body, seconds):
    """RFC 9110's Retry-After, the milliseconds of OpenAI and Anthropic, and google.rpc.RetryInfo."""
    found = retry_hint_s(headers, body, NOW)
    assert found == (None if seconds is None else pytest.approx(seconds, abs=0.01))


@given(st.text(max_size=30), JSON)
def test_no_hint_breaks_anything(said, body):
    """Whatever stands in headers and body: a pause of 0 or more seconds, or none; a text, or none."""
    hint = retry_hint_s({"retry-after": said}, body, NOW)
    assert hint is None or (isfinite(hint) and hint >= 0)
    assert isinstance(provider_message(body), str)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"error": {"message": "Too fast.", "type": "tokens", "code": "rate_limit_exceeded"}}, "Too fast."),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "Overloaded"),
        ([{"error": {"code": 400, "message": "Bad key.", "status": "INVALID_ARGUMENT"}}], "Bad key."),
        ({"code": "not-found", "error": "The model does not exist."}, "The model does not exist."),
        ({"object": "error", "message": "max_tokens is too large", "code": 400}, "max_tokens is too large"),
        ({"detail": "Not authenticated"}, "Not authenticated"),
        ({"detail": [{"msg": "field required"}]}, "field required"),
        ({}, ""),
        ([], ""),
        (None, ""),
        (7, ""),
    ],
)
def test_messages_of_all_providers_are_found(body, says):
    """OpenAI, Anthropic, Gemini, xAI, vLLM, and what is built with FastAPI."""
    assert provider_message(body) == says


@given(st.text(), st.text(min_size=8, alphabet="abcdef0123456789"))
def test_sentences_are_short_and_hold_no_secret(said, secret):
    """One line, not longer than the limit, and never the key, wherever it stands."""
    found = redact(f"{said}{secret} {secret}\n{said}", [secret])
    assert len(found) <= MAX_MESSAGE_CHARS
    assert "\n" not in found
    assert secret not in found


@pytest.mark.parametrize(
    "secret",
    [
        *("sk-ant-api03-abcdef", "sk-proj-1234****5678", "xai-AbCdEf123456", "AIzaSyD-1234567890abc", "Bearer abcdef"),
        *("org-AbCdEf123", "https://me:pw@host/v1?key=abc", "http://10.0.0.1:8000/v1/chat", "abc*****xyz"),
    ],
)
def test_what_looks_like_a_secret_is_left_out(secret):
    """Also one that is not the operator's, or is masked in part; the rest of the sentence stays."""
    assert redact(f"Before {secret} after.") == "Before … after."


@pytest.mark.parametrize(
    ("status", "content", "kind", "retry"),
    [
        (429, b"{}", "throttled", True),
        (529, b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', "throttled", True),
        (429, b'{"error":{"code":"insufficient_quota"}}', "refused", False),
        (429, b'{"error":{"details":{"error_code":"enforced_spend_limit_reached"}}}', "refused", False),
        (500, b"", "broken", True),
        (503, b"<html>", "broken", True),
        (408, b"", "broken", True),
        (302, b"", "broken", False),
        (400, b"", "refused", False),
        (401, b"", "refused", False),
        (418, b"", "refused", False),
    ],
)
def test_what_a_status_means(status, content, kind, retry):
    """Throttled, broken or refused, and whether the same call may succeed later."""
    failure = status_failure(status, {}, content, NOW)
    assert (str(failure.kind), failure.retry) == (kind, retry)
    assert f"HTTP status {status}" in str(failure)
