"""What went wrong with a call of a provider, as one sentence that a caller of the service may read. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from math import isfinite
from typing import Any, Final

import orjson

from lightmeter.errors import BackendError

__all__ = ["DescriptionCallFailed", "FailureKind", "provider_message", "redact", "retry_hint_s", "status_failure"]

MAX_MESSAGE_CHARS: Final = 200
"""Of what a provider says; enough for its sentence, too little for a page of HTML."""

_OVERLOADED: Final = 529
"""Anthropic's own status for "overloaded"; meant like 429."""
_TOO_MANY_REQUESTS: Final = 429
_PASSING: Final = frozenset({408, 409, 425})
"""Statuses below 500 after which the same call may succeed: timeout, conflict, too early."""
_NO_MONEY: Final = re.compile(rb"insufficient_quota|spend_limit_reached")
"""Codes of a 429 for an account without money (OpenAI, Anthropic), which no pause cures. The message does not tell:
Gemini uses the same one for limits that are renewed each minute."""

_URL: Final = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s\"'<>]+", re.IGNORECASE)
_SECRET: Final = re.compile(
    r"\bbearer\s+\S+|\b(?:sk|xai|gsk|jina|org|proj|key)[-_][\w*.-]{6,}|\bAIza[\w*-]{10,}|\S*\*{3,}\S*", re.IGNORECASE
)
"""What looks like a key, a key that was masked in part, or the name of an account."""


class FailureKind(StrEnum):
    """The few words that failed calls are counted by."""

    THROTTLED = "throttled"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    BROKEN = "broken"
    MALFORMED = "malformed"


class DescriptionCallFailed(BackendError):
    """One call of a provider failed.

    Attributes:
        kind: What it is counted by.
        retry: Whether the same call may succeed later.
        wait_s: Seconds to wait before, as the provider says; None where it says nothing.
    """

    def __init__(self, message: str, kind: FailureKind, *, retry: bool = False, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry = retry
        self.wait_s = wait_s


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """One line of at most `MAX_MESSAGE_CHARS` characters, without keys, account names and addresses."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "…")
    text = " ".join(_SECRET.sub("…", _URL.sub("…", text)).split())
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1].rstrip() + "…"


def provider_message(body: object) -> str:
    """The sentence in an error body, whichever of the providers' forms it has; empty where it has none.

    Forms: `{"error": {"message"}}` (OpenAI, Anthropic, Ollama, vLLM), a list with one of those (Gemini), `{"error":
    "…"}` (xAI), `{"message"}` and `{"detail"}` (older vLLM, FastAPI).
    """
    for _ in range(4):
        if isinstance(body, list):
            body = body[0] if body else ""
        elif isinstance(body, dict):
            body = next((body[key] for key in ("error", "message", "detail", "msg") if body.get(key)), "")
    return body if isinstance(body, str) else ""


def retry_hint_s(headers: Mapping[str, str], body: object, now_s: float) -> float | None:
    """Seconds that the provider asks to wait: `retry-after-ms`, `Retry-After`, or the `retryDelay` of Google's errors.

    Args:
        headers: Of the answer, looked up in lowercase.
        body: The decoded body.
        now_s: Seconds since 1970: `Retry-After` may be a date (RFC 9110, section 10.2.3).

    Returns:
        0 or more; None where nothing usable is said.
    """
    for said, unit in ((headers.get("retry-after-ms"), 0.001), (headers.get("retry-after"), 1.0), (_delay(body), 1.0)):
        wait_s = _seconds(said or "", now_s)
        if wait_s is not None:
            return max(0.0, wait_s * unit)
    return None


def _seconds(said: str, now_s: float) -> float | None:
    try:
        wait_s = float(said)
    except ValueError:
        wait_s = _until(said, now_s)
    return wait_s if isfinite(wait_s) else None


def _until(date: str, now_s: float) -> float:
    try:
        parsed = parsedate_to_datetime(date)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() - now_s
    except (ValueError, TypeError, OverflowError, IndexError):
        return float("nan")


def _delay(body: object) -> str:
    """`{"error": {"details": [{"retryDelay": "24s"}]}}`, or that in a list (google.rpc.RetryInfo)."""
    first = body[0] if isinstance(body, list) and body else body
    error = first.get("error") if isinstance(first, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str):
            return delay.removesuffix("s")
    return ""


def status_failure(
    status: int, headers: Mapping[str, str], content: bytes, now_s: float, secrets: Iterable[str] = ()
) -> DescriptionCallFailed:
    """What an HTTP status other than 200 means, and whether another call may help.

    `x-should-retry: true` or `false` (OpenAI, Anthropic) overrides what the status alone would mean.

    Args:
        status: The status.
        headers: Of the answer, looked up in lowercase.
        content: The body as it came.
        now_s: Seconds since 1970.
        secrets: What must not stand in the sentence.
    """
    body = _decoded(content)
    said = provider_message(body)
    kind = _kind(status, has_money=not _NO_MONEY.search(content))
    retry = kind is not FailureKind.REFUSED and status >= 400  # noqa: PLR2004 (a redirect leads to no other answer)
    ordered = headers.get("x-should-retry", "").strip().lower()
    retry = {"true": True, "false": False}.get(ordered, retry)
    said = redact(said, secrets)
    sentences = [f"The provider answered with HTTP status {status}{': ' + said if said else '.'}"]
    if status in _NEXT_STEPS:
        sentences.append(_NEXT_STEPS[status])
    wait_s = retry_hint_s(headers, body, now_s)
    return DescriptionCallFailed(" ".join(sentences), kind, retry=retry, wait_s=wait_s)


_NEXT_STEPS: Final = {
    **dict.fromkeys((301, 302, 307, 308), "Redirects are not followed: the operator must check the base URL."),
    401: "The operator must check the provider's key.",
    403: "The operator must check the provider's key.",
    404: "The operator must check the name of the model and the base URL.",
}


def _kind(status: int, *, has_money: bool) -> FailureKind:
    if status == _OVERLOADED or (status == _TOO_MANY_REQUESTS and has_money):
        return FailureKind.THROTTLED
    if status in _PASSING or status >= 500 or status < 400:  # noqa: PLR2004 (classes of status, RFC 9110)
        return FailureKind.BROKEN
    return FailureKind.REFUSED


def _decoded(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except ValueError:
        return None
