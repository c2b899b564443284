"""Failures of provider calls: meaning of HTTP statuses, requested waits, messages, and redaction of secrets."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime
from math import isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from lightmeter.errors import BackendError
from lightmeter.service.backends.providers.failures import (
    MAX_MESSAGE_CHARS,
    CallFailed,
    FailureKind,
    http_failure,
    provider_message,
    redact,
    retry_after_s,
)
from lightmeter.service.backends.providers.provider import ProviderSettings
from lightmeter.service.backends.providers.retry import Retrier

NOW = datetime(2026, 11, 22, tzinfo=UTC).timestamp()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "message", "detail", "details", "msg", "retryDelay"]), inner)
    ),
    max_leaves=10,
)


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
        ({"retry-after": "Fri, 99 Jan 2027 08:00:00 GMT"}, None, None),
        ({"retry-after": ""}, None, None),
        ({}, [{"error": {"code": 429, "details": [{"@type": "x"}, {"retryDelay": "24.5s"}]}}], 24.5),
        ({}, {"error": {"details": {"error_code": "x"}}}, None),
        ({}, {"error": "text"}, None),
        ({}, None, None),
    ],
)
def test_pauses_that_providers_ask_for(headers, body, seconds):
    """A wait is read from Retry-After (RFC 9110), from a header in milliseconds, and from google.rpc.RetryInfo."""
    found = retry_after_s(headers, body, NOW)
    assert found == (None if seconds is None else pytest.approx(seconds, abs=0.01))


@given(st.text(max_size=30), JSON)
def test_no_hint_breaks_anything(header, body):
    """Any headers and any body give a wait of 0 or more seconds or None, and a message or an empty text."""
    hint = retry_after_s({"retry-after": header}, body, NOW)
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
        ({"status": {"type": "error", "text": "No such image."}}, "No such image."),
        ({}, ""),
        ([], ""),
        (None, ""),
        (7, ""),
    ],
)
def test_messages_of_all_providers_are_found(body, says):
    """The message is found in error bodies of OpenAI, Anthropic, Gemini, xAI, vLLM and FastAPI."""
    assert provider_message(body) == says


@given(st.text(), st.text(min_size=8, alphabet="abcdef0123456789"))
def test_sentences_are_short_and_hold_no_secret(text, secret):
    """A redacted text is one line, not longer than the limit, and does not contain the key."""
    found = redact(f"{text}{secret} {secret}\n{text}", [secret])
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
    """Texts that look like a key are removed, even if they are unknown or partly masked; the rest stays."""
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
        (408, b"", "timeout", True),
        (302, b"", "broken", False),
        (400, b"", "refused", False),
        (401, b"", "refused", False),
        (404, b"", "refused", False),
        (418, b"", "refused", False),
        (301, b"", "broken", False),
    ],
)
def test_what_a_status_means(status, content, kind, retry):
    """An HTTP status decides the kind of a failure, and whether the same call may succeed later."""
    failure = http_failure(status, {}, content, NOW)
    assert (str(failure.kind), failure.is_transient) == (kind, retry)
    assert f"HTTP status {status}" in str(failure)


@settings(deadline=None)
@given(seconds=st.floats(0, 1e6))
def test_retry_after_in_seconds_is_not_rounded(seconds):
    """A number of seconds is returned as that number."""
    assert retry_after_s({"retry-after": repr(seconds)}, None, NOW) == seconds


@settings(deadline=None)
@given(before=st.text(max_size=300), after=st.text(max_size=300))
def test_a_message_is_short_printable_and_without_secrets(before, after):
    """Keys are removed before the text is cut, so that no part of a key is left."""
    secrets = ("secret-key-1234567890", "other-secret-1234567890", "token-1234567890abcdef")
    settings = ProviderSettings(
        "provider", "https://127.0.0.1", "", api_key=SecretStr(secrets[0]), api_secret=SecretStr(secrets[1])
    )

    def call(_):
        raise CallFailed(FailureKind.REFUSED, before.join(secrets) + after)

    retrier = Retrier(settings, secrets[2:])
    with pytest.raises(BackendError) as raised:
        retrier.run(call, retrier.deadline())
    text = str(raised.value)
    assert text.isprintable()
    assert len(text) <= MAX_MESSAGE_CHARS + 40
    assert not {secret[:8] for secret in secrets if secret[:8] in text}
    assert raised.value.__cause__ is None
