"""Retries: bounded in number and time, never sooner than the provider asks, and never a secret in a message."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from lightmeter.errors import BackendError
from lightmeter.service.backends.providers.provider import ProviderSettings
from lightmeter.service.backends.providers.vision.retries import (
    BACKOFF_S,
    MAX_BACKOFF_S,
    MAX_MESSAGE_CHARS,
    VisionCallFailed,
    VisionRetrier,
    retry_after_seconds,
)

NOW = 1_800_000_000.0
SETTINGS = ProviderSettings(
    "provider", "https://127.0.0.1", "model", max_attempts=4, deadline_s=120.0, max_pause_s=60.0
)
FAILURES = st.builds(
    VisionCallFailed,
    st.sampled_from(["throttled", "timeout", "refused", "broken", "malformed"]),
    st.just("because"),
    passing=st.booleans(),
    retry_after_s=st.none() | st.floats(0, 200),
)


class Clock:
    """Time that passes while somebody sleeps or calls."""

    def __init__(self):
        self.now = 100.0
        self.waits = []

    def sleep(self, seconds):
        self.waits.append(seconds)
        self.now += seconds


def run(retries, call, deadline) -> str:
    """The answer, or the sentence of the error."""
    try:
        return retries.run("model", call, deadline)
    except BackendError as error:
        return str(error)


@settings(deadline=None)
@given(failures=st.lists(FAILURES, max_size=6), luck=st.floats(0, 1), lasts=st.floats(0, 90))
def test_retries_are_bounded(failures, luck, lasts):
    """Calls stop at the first success, at what does not pass, at the limit or the deadline; waits keep to the hints."""
    clock, left, starts = Clock(), list(failures), []
    retries = VisionRetrier(
        SETTINGS, sleep=clock.sleep, monotonic=lambda: clock.now, uniform=lambda low, high: low + luck * (high - low)
    )
    deadline = retries.deadline()
    assert deadline == 100.0 + 120.0

    def call():
        starts.append(clock.now)
        clock.now += lasts
        if left:
            raise left.pop(0)
        return "answer"

    outcome = run(retries, call, deadline)
    if outcome == "answer":
        assert left == []
    else:
        last = failures[len(starts) - 1]
        wait = (last.retry_after_s or 0) + luck * min(MAX_BACKOFF_S, BACKOFF_S * 2 ** (len(starts) - 1))
        assert not last.passing or len(starts) == 4 or wait > 60 or clock.now + wait > deadline
        assert outcome.endswith(": because")
    assert 1 <= len(starts) <= 4
    assert starts[-1] <= max(deadline, starts[0])
    for failure, wait in zip(failures, clock.waits, strict=False):
        assert failure.passing
        assert (failure.retry_after_s or 0) <= wait <= min((failure.retry_after_s or 0) + MAX_BACKOFF_S, 60)


def test_no_call_starts_after_the_deadline():
    """Where an earlier call used up the time of a picture, the next one is not made."""
    clock = Clock()
    retries = VisionRetrier(SETTINGS, sleep=clock.sleep, monotonic=lambda: clock.now)
    deadline = retries.deadline()
    clock.now = deadline + 1
    with pytest.raises(BackendError, match="no time was left for DetectLabels"):
        retries.run("DetectLabels", pytest.fail, deadline)


@settings(deadline=None)
@given(seconds=st.floats(0, 1e6))
def test_seconds_are_read_as_they_are(seconds):
    """A number of seconds is that number."""
    assert retry_after_seconds(repr(seconds), NOW) == seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("Fri, 15 Jan 2027 08:01:40 GMT", 100.0),
        ("Fri, 15 Jan 2027 08:00:00 GMT", 0.0),
        ("Fri, 01 Jan 2027 08:00:00 GMT", 0.0),
        ("7", 7.0),
        (None, None),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("Fri, 99 Jan 2027 08:00:00 GMT", None),
    ],
)
def test_the_header_is_read_in_both_forms(value, seconds):
    """An HTTP date counts from now; a date that is past means at once; anything else says nothing."""
    assert retry_after_seconds(value, NOW) == seconds


@settings(max_examples=50, deadline=None)
@given(value=st.text(max_size=20))
def test_any_header_is_read(value):
    """No text breaks the reader, and what it says is a finite wait."""
    seconds = retry_after_seconds(value, NOW)
    assert seconds is None or (seconds >= 0 and math.isfinite(seconds))


@settings(deadline=None)
@given(before=st.text(max_size=300), after=st.text(max_size=300))
def test_a_message_is_short_printable_and_without_secrets(before, after):
    """Keys are taken out before the text is cut, so that no half of one is left."""
    secrets = ("secret-key-1234567890", "other-secret-1234567890", "token-1234567890abcdef")
    settings = ProviderSettings(
        "provider", "https://127.0.0.1", "", api_key=SecretStr(secrets[0]), api_secret=SecretStr(secrets[1])
    )

    def call():
        raise VisionCallFailed("refused", before.join(secrets) + after)

    retries = VisionRetrier(settings, secrets[2:])
    with pytest.raises(BackendError) as raised:
        retries.run("model", call, retries.deadline())
    text = str(raised.value)
    assert text.isprintable()
    assert len(text) <= MAX_MESSAGE_CHARS + 40
    assert not {secret[:8] for secret in secrets if secret[:8] in text}
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("status", "kind", "passing"),
    [
        (429, "throttled", True),
        (408, "timeout", True),
        (500, "broken", True),
        (503, "broken", True),
        (301, "refused", False),
        (400, "refused", False),
        (401, "refused", False),
        (404, "refused", False),
    ],
)
def test_a_status_is_a_failure(status, kind, passing):
    """Throttling, timeouts and errors of servers pass; refusals do not."""
    failure = VisionCallFailed.from_status(status, "text", 3.0)
    assert (failure.kind, failure.passing, str(failure)) == (kind, passing, f"HTTP {status}: text")
    assert failure.retry_after_s == (3.0 if passing else None)
