"""Failures of the vision providers with HTTP: throttling, refusals, errors, timeouts, lost connections."""

from __future__ import annotations

import base64
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from pydantic import SecretStr

from lightmeter.errors import BackendError, SettingsError
from tests.sweeps import sweep

KEY, SECRET = "key-0123456789abcdef", "secret-0123456789abcdef"
NAMES = ("googlevision", "imagga", "rekognition")
GOOD = {
    "googlevision": {"responses": [{"labelAnnotations": [{"description": "Dog", "score": 0.9}]}]},
    "imagga": {"result": {"tags": [{"confidence": 90, "tag": {"en": "Dog"}}]}, "status": {"type": "success"}},
    "rekognition": {"Labels": [{"Name": "Dog", "Confidence": 90.0}]},
}


def error_body(name: str, status: int, message: str) -> dict:
    """Return an error body in the provider's form."""
    return {
        "googlevision": {"error": {"code": status, "message": message, "status": "ANY"}},
        "imagga": {"status": {"type": "error", "text": message}},
        "rekognition": {
            "__type": {429: "ThrottlingException", 403: "AccessDeniedException"}.get(status, "InternalServerError"),
            "message": message,
        },
    }[name]


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def good(name, http_provider):
    return http_provider.reply(200, GOOD[name])


def test_throttled_then_answered(name, good, adapter_of, http_provider, analyze, counted):
    """A throttled call is repeated, and both calls are counted."""
    body = error_body(name, 429, "Too many requests.")
    http_provider.script.extend([http_provider.reply(429, body, Retry_After="0"), good])
    assert analyze(adapter_of(name, http_provider.url), "tags").tags["Dog"][0].score == 0.9
    assert counted.errors == [(name, "throttled")]
    assert len(counted.usages) == 1


@pytest.mark.parametrize("in_seconds", [True, False])
def test_a_wait_beyond_the_deadline_is_not_waited_for(in_seconds, name, adapter_of, http_provider, analyze):
    """If the provider asks to wait for an hour, the picture fails at once."""
    moment = datetime.now(UTC) + timedelta(hours=1)
    header = "3600" if in_seconds else format_datetime(moment, usegmt=True)
    body = error_body(name, 429, "Quota used up.")
    http_provider.otherwise = http_provider.reply(429, body, Retry_After=header)
    with pytest.raises(BackendError, match=r"limits the rate of calls: .*Quota used up\."):
        analyze(adapter_of(name, http_provider.url, max_attempts=9), "tags")
    assert len(http_provider.requests) == 1


def test_a_refusal_is_not_retried_and_shows_no_key(name, adapter_of, http_provider, analyze, counted):
    """A wrong key is one call; the message is the provider's own, short, on one line, without the key in any form."""
    basic = base64.b64encode(f"{KEY}:{SECRET}".encode()).decode()
    message = f"The key {KEY}\r\nis not valid {SECRET}, {basic if name == 'imagga' else ''} " + "for this account " * 50
    http_provider.otherwise = http_provider.reply(403, error_body(name, 403, message))
    with pytest.raises(BackendError, match=r"refused the call: .*is not valid") as raised:
        analyze(adapter_of(name, http_provider.url), "tags")
    text = str(raised.value)
    assert not {secret for secret in (KEY, SECRET, basic) if secret in text}
    assert len(text) < 260
    assert text.isprintable()
    assert (counted.errors, len(http_provider.requests)) == ([(name, "refused")], 1)


def test_a_server_error_passes(name, good, adapter_of, http_provider, analyze, counted):
    """A server error is retried, also if a proxy sent it."""
    http_provider.script.extend([http_provider.reply(502, b"<html>Bad Gateway</html>", Content_Type="text/html"), good])
    assert analyze(adapter_of(name, http_provider.url), "tags").tags
    assert counted.errors == [(name, "broken")]


def test_attempts_are_bounded(name, adapter_of, http_provider, analyze, counted):
    """The picture fails after the allowed number of calls."""
    http_provider.otherwise = http_provider.reply(500, error_body(name, 500, "Internal error."))
    with pytest.raises(BackendError, match=r"failed \(2 calls\): .*Internal error\."):
        analyze(adapter_of(name, http_provider.url), "tags")
    assert (counted.errors, counted.usages) == ([(name, "broken")] * 2, [])
    assert len(http_provider.requests) == 2


def test_missing_answer_is_a_timeout(name, adapter_of, http_provider, analyze, counted):
    """A provider that does not answer fails after the timeout."""
    http_provider.otherwise = http_provider.hang
    with pytest.raises(BackendError, match=r"did not answer in time: no answer within 0\.3 s"):
        analyze(adapter_of(name, http_provider.url, timeout_s=0.3, max_attempts=1), "tags")
    assert counted.errors == [(name, "timeout")]


def test_a_reset_passes(name, good, adapter_of, http_provider, analyze, counted):
    """After a connection reset, the call is repeated."""
    http_provider.script.extend([http_provider.reset, good])
    assert analyze(adapter_of(name, http_provider.url), "tags").tags
    assert counted.errors == [(name, "broken")]


def test_refused_connection_is_an_error(name, adapter_of, http_provider, analyze, counted):
    """A refused connection raises BackendError."""
    address = http_provider.url
    http_provider.close()
    with pytest.raises(BackendError, match="could not be reached"):
        analyze(adapter_of(name, address, max_attempts=1), "tags")
    assert counted.errors == [(name, "broken")]


def test_proxies_of_the_environment_are_not_used(name, good, adapter_of, http_provider, analyze, monkeypatch):
    """Pictures and keys go to the provider's address alone."""
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    http_provider.script.append(good)
    assert analyze(adapter_of(name, http_provider.url), "tags").tags


@pytest.mark.parametrize("bad", ["key-0123456789abcdef\n", "key 0123456789abcdef", "ключ-0123456789abcdef"])
def test_a_key_that_cannot_be_sent_is_not_shown(bad, name, adapter_of):
    """A key with a line break is refused when the adapter is made: libraries would show it, escaped, in a message."""
    with pytest.raises(SettingsError, match="A key of the back end") as raised:
        adapter_of(name, "http://127.0.0.1:9", api_key=SecretStr(bad))
    assert "0123456789" not in str(raised.value)


def test_many_threads_share_an_adapter(name, good, adapter_of, http_provider, analyze, counted):
    """Calls from several threads at once each get their answer."""
    http_provider.otherwise = good
    backend = adapter_of(name, http_provider.url)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: analyze(backend, "tags"), range(24)))
    assert all(set(entries.tags) == {"Dog"} for entries in found)
    assert (len(counted.usages), counted.errors) == (24, [])


@pytest.mark.parametrize("rest", ["googlevision", "imagga"])
def test_redirects_are_refused(rest, adapter_of, http_provider, analyze):
    """Redirects are not followed."""
    http_provider.otherwise = http_provider.reply(302, b"", Location=http_provider.url + "/elsewhere")
    with pytest.raises(BackendError, match="HTTP status 302"):
        analyze(adapter_of(rest, http_provider.url), "tags")
    assert len(http_provider.requests) == 1


@pytest.mark.parametrize("rest", ["googlevision", "imagga"])
def test_slow_answer_is_a_timeout(rest, adapter_of, http_provider, analyze, counted):
    """The timeout holds for the whole answer, not for each read."""
    http_provider.otherwise = http_provider.drip
    with pytest.raises(BackendError, match="did not answer in time"):
        analyze(adapter_of(rest, http_provider.url, timeout_s=0.3, max_attempts=1), "tags")
    assert counted.errors == [(rest, "timeout")]


def test_an_answer_that_is_too_long_is_given_up(adapter_of, http_provider, analyze, monkeypatch):
    """An answer that is too long is refused."""
    monkeypatch.setattr("lightmeter.service.backends.providers.http_client.MAX_ANSWER_BYTES", 1000)
    http_provider.otherwise = http_provider.reply(200, b" " * 2000)
    with pytest.raises(BackendError, match="longer than 1000 bytes"):
        analyze(adapter_of("googlevision", http_provider.url), "tags")


@pytest.mark.parametrize("name", [NAMES[0], *map(sweep, NAMES[1:])], indirect=True)
def test_throttling_holds_back_other_calls(name, good, adapter_of, http_provider, analyze):
    """After one picture was throttled, the next picture waits as long as the provider asked, too."""
    body = error_body(name, 429, "Too many requests.")
    http_provider.script.extend([http_provider.reply(429, body, Retry_After="1"), good])
    backend = adapter_of(name, http_provider.url, max_attempts=1)
    with pytest.raises(BackendError, match="limits the rate of calls"):
        analyze(backend, "tags")
    throttled_at = time.monotonic()
    assert analyze(backend, "tags").tags
    assert time.monotonic() - throttled_at > 0.9
