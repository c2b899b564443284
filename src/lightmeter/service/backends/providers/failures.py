"""Failures of provider calls: their kinds, what an HTTP error status means, and redaction of messages. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

import orjson

from lightmeter.http_message import parse_wait_s

MAX_MESSAGE_CHARS: Final = 200
"""Maximum length, in characters, of a provider's message that an error message quotes; a longer one is cut. It is
enough for a sentence, and too short for an HTML page."""

_MIN_SECRET_CHARS: Final = 4
"""Secrets shorter than this, in characters, are not removed from messages: they could be part of an ordinary word."""

_MAX_SCANNED_CHARS: Final = 4000
"""Maximum length, in characters, of a text that is searched for secrets. A longer text is cut first, because the
time of the search grows with the square of the length."""

_OVERLOADED: Final = 529
"""Anthropic's HTTP status for "overloaded"; treated as 429 (too many requests)."""

_TOO_MANY_REQUESTS: Final = 429
_REQUEST_TIMEOUT: Final = 408

_TRANSIENT_STATUSES: Final = frozenset({409, 425})
"""HTTP statuses from 400 to 499 after which the same call may succeed later: 409 (conflict), 425 (too early)."""

_OUT_OF_QUOTA: Final = re.compile(rb"insufficient_quota|spend_limit_reached")
"""Error codes with which OpenAI and Anthropic say, under status 429, that the account has no money left. No pause
helps then. The message does not decide, because Gemini uses the same message for limits that are renewed each
minute."""

_URL: Final = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s\"'<>]+", re.IGNORECASE)
_SECRET: Final = re.compile(
    r"\bbearer\s+\S+|\b(?:sk|xai|gsk|jina|org|proj|key)[-_][\w*.-]{6,}|\bAIza[\w*-]{10,}|\S*\*{3,}\S*", re.IGNORECASE
)
"""Matches texts that look like a key, a partly masked key, or the name of an account."""

_NEXT_STEPS: Final = {
    **dict.fromkeys((301, 302, 307, 308), "redirects are not followed; the operator must check the base URL"),
    401: "the operator must check the provider's key",
    403: "the operator must check the provider's key",
    404: "the operator must check the name of the model and the base URL",
}
"""HTTP status → advice that is added to the error message."""


_STATUS_OF_CODE: Final = {
    **dict.fromkeys(("ratelimit", "ratelimitexceeded", "toomanyrequests", "resourceexhausted"), 429),
    **dict.fromkeys(("insufficientquota", "spendlimitreached"), 429),
    "overloaded": 529,
    **dict.fromkeys(("api", "server", "internal", "internalserver"), 500),
    **dict.fromkeys(("unavailable", "serviceunavailable"), 503),
    **dict.fromkeys(("timeout", "deadlineexceeded"), 504),
    **dict.fromkeys(("invalidrequest", "invalidargument", "badrequest"), 400),
    **dict.fromkeys(("authentication", "unauthenticated", "invalidapikey"), 401),
    **dict.fromkeys(("permission", "permissiondenied"), 403),
    "notfound": 404,
}
"""Code or type of an error, in lowercase letters and without `error` at its end → the HTTP status that usually has it.

The codes are those of OpenAI, Anthropic, Google and vLLM.
"""


class FailureKind(StrEnum):
    """Reason why a call of a provider failed; also the label of the error metric.

    Attributes:
        THROTTLED: The provider limits the rate of calls.
        TIMEOUT: No answer came in time.
        REFUSED: The provider rejected the request.
        BROKEN: There was no connection, or an error on the provider's side.
        MALFORMED: The answer cannot be used.
    """

    THROTTLED = "throttled"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    BROKEN = "broken"
    MALFORMED = "malformed"


class CallFailed(Exception):
    """Failure of one call of a provider. The classes that call providers raise it; `Retrier.run` catches it.

    Args:
        kind: Reason of the failure.
        message: Details: the provider's own text, or the error of the connection.
        is_transient: Whether the same call may succeed later.
        retry_after_s: Seconds for which the provider asks to wait before the next call; None if it asks for no wait.
    """

    def __init__(
        self, kind: FailureKind, message: str, *, is_transient: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.is_transient = is_transient
        self.retry_after_s = retry_after_s


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` as one printable line of at most `MAX_MESSAGE_CHARS`, without secrets and URLs.

    `…` replaces each URL, each text that looks like an API key or an account name (such as `sk-…`, `org-…`), and each
    of `secrets`. Secrets with fewer than four characters are not replaced, because they could be part of an ordinary
    word.
    """
    for secret in secrets:
        if len(secret) >= _MIN_SECRET_CHARS:
            text = text.replace(secret, "…")
    text = "".join(char if char.isprintable() else " " for char in text[:_MAX_SCANNED_CHARS])
    text = " ".join(_SECRET.sub("…", _URL.sub("…", text)).split())
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1].rstrip() + "…"


def provider_message(body: object) -> str:
    """Return the message in the decoded body of a provider's error; empty if there is none.

    Known forms: `{"error": {"message"}}` (OpenAI, Anthropic, Google, Ollama, vLLM), a list of such objects (Gemini),
    `{"error": "…"}` (xAI), `{"message"}` and `{"detail"}` (older vLLM, FastAPI), `{"status": {"text"}}` (Imagga).
    """
    for _ in range(4):
        if isinstance(body, list):
            body = body[0] if body else ""
        elif isinstance(body, dict):
            keys = ("error", "message", "detail", "msg", "status", "text")
            body = next((body[key] for key in keys if body.get(key)), "")
    return body if isinstance(body, str) else ""


def retry_after_s(headers: Mapping[str, str], body: object, now_s: float) -> float | None:
    """Return how many seconds, 0 or more, a provider asks to wait; None if the answer holds no valid wait.

    Args:
        headers: Headers of the answer, with lowercase names. `retry-after-ms` has priority over `retry-after` (RFC
            9110, section 10.2.3).
        body: Decoded body of the answer. Its `google.rpc.RetryInfo` counts only if no header has a valid wait.
        now_s: Current time in seconds since 1970, because `retry-after` may be a date.
    """
    hints = ((headers.get("retry-after-ms"), 0.001), (headers.get("retry-after"), 1.0), (_google_delay(body), 1.0))
    for hint, unit_s in hints:
        wait_s = parse_wait_s(hint or "", now_s)
        if wait_s is not None:
            return wait_s * unit_s
    return None


def _google_delay(body: object) -> str:
    """Return the number of seconds that Google asks to wait, as text; empty if `body` names none.

    `body` is the decoded body of an error. Example: the result is `24` for
    `{"error": {"details": [{"retryDelay": "24s"}]}}`, and for a list that starts with this object.
    """
    first = body[0] if isinstance(body, list) and body else body
    error = first.get("error") if isinstance(first, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str):
            return delay.removesuffix("s")
    return ""


def http_failure(status: int, headers: Mapping[str, str], content: bytes, now_s: float) -> CallFailed:
    """Convert a provider's HTTP answer with a status other than 200 to a `CallFailed`, which the caller raises.

    Whether a later call may succeed is decided by the header `x-should-retry: true` or `false` (OpenAI, Anthropic) or,
    without it, by the status.

    Args:
        status: HTTP status.
        headers: Headers of the answer, with lowercase names.
        content: Raw body.
        now_s: Current time in seconds since 1970.
    """
    body = parse_json(content)
    message = provider_message(body)
    kind = _kind_of_status(status, is_out_of_quota=bool(_OUT_OF_QUOTA.search(content)))
    is_transient = kind is not FailureKind.REFUSED and status >= 400  # noqa: PLR2004 (a redirect stays a redirect)
    requested = headers.get("x-should-retry", "").strip().lower()
    is_transient = {"true": True, "false": False}.get(requested, is_transient)
    next_step = f", {_NEXT_STEPS[status]}" if status in _NEXT_STEPS else ""
    text = f"HTTP status {status}{next_step}{': ' + message if message else '.'}"
    return CallFailed(kind, text, is_transient=is_transient, retry_after_s=retry_after_s(headers, body, now_s))


def error_in_answer(body: object, headers: Mapping[str, str], now_s: float) -> CallFailed | None:
    """Convert an error that a provider reports in an answer with HTTP status 200; return None if there is none.

    The call may be repeated if it may be repeated after the HTTP status of such an error.

    Args:
        body: Decoded body of the answer.
        headers: Headers of the answer, with lowercase names.
        now_s: Current time in seconds since 1970.
    """
    first = body[0] if isinstance(body, list) and body else body
    if not isinstance(first, dict):
        return None
    error = first if first.get("object") == "error" else first.get("error")
    if not error:
        return None
    fields = error if isinstance(error, dict) else first
    found = (_status_of(fields.get(name)) for name in ("code", "status", "type"))
    status = next((each for each in found if each is not None), None)
    if status is None:
        return CallFailed(FailureKind.MALFORMED, f"it is an error: {provider_message(first)}")
    return http_failure(status, headers, orjson.dumps(body), now_s)


def _status_of(code: object) -> int | None:
    """Return the HTTP status that a code in a provider's error stands for, such as 429 or `rate_limit_error`."""
    word = re.sub(r"[^a-z0-9]", "", str(code).lower())
    if word.isdecimal():
        return int(word) if len(word) == 3 and "400" <= word <= "599" else None  # noqa: PLR2004 (RFC 9110)
    return _STATUS_OF_CODE.get(word.removesuffix("error"))


def _kind_of_status(status: int, *, is_out_of_quota: bool) -> FailureKind:
    if status == _OVERLOADED or (status == _TOO_MANY_REQUESTS and not is_out_of_quota):
        return FailureKind.THROTTLED
    if status == _REQUEST_TIMEOUT:
        return FailureKind.TIMEOUT
    if status in _TRANSIENT_STATUSES or status >= 500 or status < 400:  # noqa: PLR2004 (status classes, RFC 9110)
        return FailureKind.BROKEN
    return FailureKind.REFUSED


def parse_json(content: bytes) -> Any:
    """Return the value of a JSON text; None if it is no JSON."""
    try:
        return orjson.loads(content)
    except ValueError:
        return None
