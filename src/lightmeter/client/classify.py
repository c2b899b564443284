"""Classifies HTTP answers of a service by whether the request was accepted and charged. No I/O; never raises.

The wire contract has no idempotency key, so a submission (POST) is sent again only if its answer proves that it was
not accepted. The body is examined before the HTTP status, because errors do not always carry a matching status. The
JSON field `all` of the body holds the results. Words such as `status` in the table are JSON fields of the body, too;
numbers are HTTP statuses.

Verdicts on the answer to a submission (the first matching line of the table counts):

====================================================  ============
body, or status                                       verdict
====================================================  ============
`all`, and `status` not queued, processing, failed    ANSWERED
error text `Access denied…`, or 401                   DENIED
error text `No credits.`, `Insufficient…`             NO_CREDITS
any error text with 402                               NO_CREDITS
error text of an invalid request                      REFUSED
`status` is `failed`, with 2xx or a request id        FAILED
429, or 503 with Retry-After                          THROTTLED
error text `Request failed…`, any other 5xx, 408      UNCERTAIN
another error text with 2xx and a request id          FAILED
another error text with 2xx or 4xx                    REFUSED
request id with 2xx                                   ACKNOWLEDGED
307, 308 (the request was not acted upon)             REFUSED
anything else                                         UNCERTAIN
====================================================  ============

The error text is the JSON field `error`; case does not matter. A body that is not JSON counts as an error text only if
it begins with `Access denied`. The error texts of an invalid request begin with `File/URL params are required`,
`Invalid request format`, `Invalid URLs detected`, `File too large. Max 20MB` or `Max request length exceeded`.

ANSWERED and ACKNOWLEDGED mean that the request was accepted and charged, FAILED that it was accepted and perhaps
charged. DENIED, NO_CREDITS, REFUSED and THROTTLED mean that it was neither accepted nor charged. UNCERTAIN means that
neither is known.

The verdicts on the answer to a poll differ. A poll is free, so UNCERTAIN only means "poll again". A 404, or an error
text `… not found.`, is NOT_FOUND. These are FAILED, because the request was accepted before: an error text `Request
failed…` or of an invalid request, any other error text with 2xx, and the `status` failed with any text. Any answer with
2xx that has a `status` or a request id, but neither results nor an error text, is PROCESSING.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final

from lightmeter.client.http_answer import RawAnswer, body_excerpt, decode_answer
from lightmeter.facts.answer_fields import AnswerFields
from lightmeter.facts.lenient_json import parse_object_lenient
from lightmeter.http_message import parse_http_date, parse_wait_s
from lightmeter.wire.constants import (
    ACCESS_DENIED,
    FILE_TOO_LARGE,
    INSUFFICIENT_CREDITS,
    INVALID_FORMAT,
    INVALID_URLS,
    NO_CREDITS,
    PARAMS_REQUIRED,
    QUERY_TOO_LONG,
    REQUEST_FAILED,
)
from lightmeter.wire.response import Answer

_FAILED: Final = "failed"
_WITHOUT_RESULTS: Final = frozenset({"queued", "processing", _FAILED})
_ACCESS_DENIED_TEXT: Final = ACCESS_DENIED.rstrip(".").casefold()
_NO_CREDITS_TEXTS: Final = (NO_CREDITS.rstrip(".").casefold(), INSUFFICIENT_CREDITS.rstrip(".").casefold())
_REQUEST_FAILED_TEXT: Final = REQUEST_FAILED.casefold()
_INVALID_REQUEST_TEXTS: Final = tuple(
    text.rstrip(".").casefold()
    for text in (PARAMS_REQUIRED, INVALID_FORMAT, INVALID_URLS, FILE_TOO_LARGE, QUERY_TOO_LONG)
)
_NOT_FOUND: Final = re.compile(r"request id .* not found", re.IGNORECASE | re.DOTALL)
_NOT_ACTED_UPON: Final = (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT)


class ResponseVerdict(StrEnum):
    """What the answer to a POST or a poll says about the request: whether it was accepted, and whether it is done."""

    ANSWERED = "answered"
    """The answer holds the results; it usually also states the charge."""
    ACKNOWLEDGED = "acknowledged"
    """The service accepted the request and charges it, now or later. Poll for the results by the request id."""
    PROCESSING = "processing"
    """The request is not finished yet: poll again later."""
    FAILED = "failed"
    """The service accepted the request, but there will be no results. The answer may state a charge."""
    REFUSED = "refused"
    """The request was not accepted and not charged. If it is sent again, it will be refused again."""
    THROTTLED = "throttled"
    """The request was not accepted and not charged. It can be sent again later."""
    DENIED = "denied"
    """The API key or the account may not be used. The service will deny every other request, too."""
    NO_CREDITS = "no_credits"
    """The request was not accepted, because its price exceeds the balance of the account."""
    NOT_FOUND = "not_found"
    """The service does not know the request id, or the results have expired."""
    UNCERTAIN = "uncertain"
    """The answer does not show whether the request was accepted. A submission may have been charged."""


_WITHOUT_ERROR: Final = frozenset({ResponseVerdict.ANSWERED, ResponseVerdict.ACKNOWLEDGED, ResponseVerdict.PROCESSING})


@dataclass(frozen=True)
class Classification:
    """The verdict on an HTTP answer of the service, with the fields of the answer that callers need.

    Attributes:
        verdict: What the answer says about the request.
        body: The bytes of the body.
        error: The error text of the service. For an unsuccessful answer without an error text: the HTTP status and the
            start of the body. None if there is no error.
        retry_after_s: Seconds that the service asks to wait, 0 or more; None if the answer asks for no wait.
        request_id: The id by which to poll for the results; None if the answer names none.
        data: The body as a parsed JSON object, so that callers need not parse it again; None if it is no JSON object.
    """

    verdict: ResponseVerdict
    body: bytes = field(default=b"", repr=False)
    error: str | None = None
    retry_after_s: float | None = None
    request_id: str | None = None
    data: dict[str, Any] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def answer(self) -> Answer | None:
        """The body as a typed answer; None if the body is not a JSON object.

        The body is decoded on first access only: decoding 6 KB takes some 60 µs, three times as long as classifying.
        """
        return decode_answer(self.body)


@dataclass(slots=True)
class _AnswerFacts:
    """Fields of an HTTP answer that decide its verdict (whether the request was accepted and has finished).

    Attributes:
        status: The HTTP status.
        error: The JSON field `error` of the body as text; None if it is missing or empty. If the body is not a JSON
            object: its text if it begins with `Access denied`, otherwise None.
        word: The JSON field `status` of the body, in lowercase; None if it is not a text.
        has_results: Whether the JSON field `all` of the body is not null, and `word` is not queued, processing or
            failed.
        request_id: The service's id of the request; None if the answer names none.
        retry_after_s: Seconds that the answer asks to wait (header Retry-After); None if it asks for no wait.
    """

    status: int
    error: str | None
    word: str | None
    has_results: bool
    request_id: str | None
    retry_after_s: float | None

    @property
    def ok(self) -> bool:
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def broken(self) -> bool:
        """Whether the HTTP status is 408 or 5xx: the service or a proxy failed, but may have processed the request."""
        return self.status >= HTTPStatus.INTERNAL_SERVER_ERROR or self.status == HTTPStatus.REQUEST_TIMEOUT

    @property
    def failed(self) -> bool:
        """Whether the service accepted the request, but could not process it.

        True if the JSON field `status` is `failed`, and the answer has an HTTP status 2xx or a request id. If the
        answer has neither of these two, the service did not accept the request.
        """
        return self.word == _FAILED and (self.ok or self.request_id is not None)

    @property
    def throttled(self) -> bool:
        asked_to_wait = self.status == HTTPStatus.SERVICE_UNAVAILABLE and self.retry_after_s is not None
        return asked_to_wait or self.status == HTTPStatus.TOO_MANY_REQUESTS

    @property
    def denied(self) -> bool:
        return self.error_starts(_ACCESS_DENIED_TEXT) or self.status == HTTPStatus.UNAUTHORIZED

    def error_starts(self, *texts: str) -> bool:
        return self.error is not None and self.error.casefold().startswith(texts)


def classify_submission(raw: RawAnswer, *, now: float | None = None) -> Classification:
    """Return the verdict on the answer to POST /api/fetch, with the fields of the answer that callers need.

    Args:
        raw: The answer.
        now: Present time in seconds since the epoch. It is needed only if Retry-After is a date and the answer has no
            Date header; with None, such a Retry-After is ignored.
    """
    return _classify(raw, now, _submission_verdict)


def classify_poll(raw: RawAnswer, *, now: float | None = None) -> Classification:
    """Return the verdict on the answer to GET /api/response/<request_id>, with the fields that callers need.

    Args:
        raw: The answer.
        now: Present time in seconds since the epoch. It is needed only if Retry-After is a date and the answer has no
            Date header; with None, such a Retry-After is ignored.
    """
    return _classify(raw, now, _poll_verdict)


def retry_after_s(raw: RawAnswer, *, now: float | None = None) -> float | None:
    """Return the seconds that the answer `raw` asks to wait (header Retry-After), 0 or more; None if it states none.

    Retry-After may be a date. It is compared with the answer's Date header, so that the clocks of client and service
    need not agree. If the answer has no Date header, Retry-After is compared with `now`, the present time in seconds
    since the epoch. If `now` is None, too, the date is ignored. Source: RFC 9110, section 10.2.3.
    """
    text = raw.headers.get("retry-after", "").strip()
    since = parse_http_date(raw.headers.get("date", ""))
    return None if text.startswith("-") else parse_wait_s(text, now if since is None else since)


def _submission_verdict(facts: _AnswerFacts) -> ResponseVerdict:
    verdict = _common_verdict(facts)
    if verdict is not None:
        return verdict
    if facts.broken or facts.error_starts(_REQUEST_FAILED_TEXT):
        return ResponseVerdict.UNCERTAIN
    if facts.error is not None:
        return _other_error_verdict(facts)
    if facts.request_id is not None and facts.ok:
        return ResponseVerdict.ACKNOWLEDGED
    return ResponseVerdict.REFUSED if facts.status in _NOT_ACTED_UPON else ResponseVerdict.UNCERTAIN


def _poll_verdict(facts: _AnswerFacts) -> ResponseVerdict:
    if facts.error is not None and _NOT_FOUND.match(facts.error):
        return ResponseVerdict.NOT_FOUND
    ended = facts.failed and not facts.denied and not facts.throttled  # this request has ended; others may go on
    verdict = ResponseVerdict.FAILED if ended else _common_verdict(facts)
    if verdict is not None:
        return ResponseVerdict.FAILED if verdict is ResponseVerdict.REFUSED else verdict
    if facts.status == HTTPStatus.NOT_FOUND:
        return ResponseVerdict.NOT_FOUND
    if facts.error_starts(_REQUEST_FAILED_TEXT) or (facts.error is not None and facts.ok):
        return ResponseVerdict.FAILED
    if facts.error is not None:
        return _other_error_verdict(facts)
    known = facts.word is not None or facts.request_id is not None
    return ResponseVerdict.PROCESSING if known and facts.ok else ResponseVerdict.UNCERTAIN


def _common_verdict(facts: _AnswerFacts) -> ResponseVerdict | None:
    """Apply the rules that are equal for submissions and polls; return the verdict, or None if no such rule applies.

    `facts` are the fields of the answer that decide the verdict.
    """
    if facts.has_results:
        return ResponseVerdict.ANSWERED
    if facts.denied:
        return ResponseVerdict.DENIED
    if facts.error_starts(*_NO_CREDITS_TEXTS) or (facts.error and facts.status == HTTPStatus.PAYMENT_REQUIRED):
        return ResponseVerdict.NO_CREDITS
    if facts.error_starts(*_INVALID_REQUEST_TEXTS):
        return ResponseVerdict.REFUSED
    if facts.failed:
        return ResponseVerdict.FAILED
    return ResponseVerdict.THROTTLED if facts.throttled else None


def _other_error_verdict(facts: _AnswerFacts) -> ResponseVerdict:
    if facts.ok:
        # A request with an id was accepted, and may have been charged.
        return ResponseVerdict.REFUSED if facts.request_id is None else ResponseVerdict.FAILED
    client_error = HTTPStatus.BAD_REQUEST <= facts.status < HTTPStatus.INTERNAL_SERVER_ERROR
    return ResponseVerdict.REFUSED if client_error and not facts.broken else ResponseVerdict.UNCERTAIN


def _classify(
    raw: RawAnswer, now: float | None, verdict_of: Callable[[_AnswerFacts], ResponseVerdict]
) -> Classification:
    data = parse_object_lenient(raw.body)
    wire = AnswerFields(data or {})
    facts = _AnswerFacts(
        status=raw.status,
        error=_plain_denial(raw.body) if data is None else wire.error,
        word=wire.status,
        has_results=wire.has_results and wire.status not in _WITHOUT_RESULTS,
        request_id=wire.request_id,
        retry_after_s=retry_after_s(raw, now=now),
    )
    verdict, error = verdict_of(facts), facts.error
    if error is None and verdict not in _WITHOUT_ERROR:
        excerpt = body_excerpt(raw.body)
        error = f"HTTP {raw.status}: {excerpt}" if excerpt else f"HTTP {raw.status} without a body"
    return Classification(verdict, raw.body, error, facts.retry_after_s, facts.request_id, data)


def _plain_denial(body: bytes) -> str | None:
    """Return the body as text if it is plain text (not JSON) which says that access is denied; None otherwise."""
    plain = body_excerpt(body).strip('"')
    return plain if plain.casefold().startswith(_ACCESS_DENIED_TEXT) else None
