"""What an answer means for money: paid, refused, not yet, or unknown. Pure, and never raises.

The contract has no idempotency key, so a submission is sent again only when its answer proves that it was not
taken. The body is looked at before the status, because errors do not always carry a matching one; both
dialects of the service are read.

What a submission's answer says, first match wins:

====================================================  ============
body, or status                                       verdict
====================================================  ============
`all`, and `status` not queued, processing, failed    ANSWERED
error text `Access denied…`, or 401                   DENIED
error text `No credits.`, `Insufficient…`, or 402     NO_CREDITS
error text of a request that cannot be taken          REFUSED
`status` is `failed`, with 2xx or a request id        FAILED
429, or 503 with Retry-After                          THROTTLED
error text `Request failed…`, any other 5xx, 408      UNCERTAIN
another error text with 2xx and a request id          FAILED
another error text with 2xx or 4xx                    REFUSED
request id with 2xx                                   ACKNOWLEDGED
307, 308 (by their definition not acted upon)         REFUSED
anything else                                         UNCERTAIN
====================================================  ============

A poll differs: it spends nothing, so its `UNCERTAIN` only means "ask again"; 404 or `… not found.` is
NOT_FOUND, the text `Request failed…` and the status `failed`, whatever its text, are FAILED, and any other
object without `all` is PROCESSING, whatever word its `status` has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final

from lightmeter.client.decode import body_excerpt, decode_answer
from lightmeter.client.http_answer import RawAnswer
from lightmeter.facts.lenient_json import parse_object_lenient
from lightmeter.facts.wire_answer import WireAnswer
from lightmeter.models.response import Answer
from lightmeter.models.vocabulary import (
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

__all__ = ["Classification", "ResponseVerdict", "classify_poll", "classify_submission", "retry_after_s"]

_FAILED: Final = "failed"
_WITHOUT_RESULTS: Final = frozenset({"queued", "processing", _FAILED})
_DENIED: Final = ACCESS_DENIED.rstrip(".").casefold()
_PENNILESS: Final = (NO_CREDITS.rstrip(".").casefold(), INSUFFICIENT_CREDITS.rstrip(".").casefold())
_BROKE_DOWN: Final = REQUEST_FAILED.casefold()
_NOT_TAKEN: Final = tuple(
    text.rstrip(".").casefold()
    for text in (PARAMS_REQUIRED, INVALID_FORMAT, INVALID_URLS, FILE_TOO_LARGE, QUERY_TOO_LONG)
)
_NOT_FOUND: Final = re.compile(r"request id .* not found", re.IGNORECASE | re.DOTALL)
_NOT_ACTED_UPON: Final = (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT)
# Fractions are none of the standard's, and are sent all the same; more digits than nine are no time to wait.
_SECONDS: Final = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


class ResponseVerdict(StrEnum):
    """What an answer means."""

    ANSWERED = "answered"
    """The results are here; what was charged stands beside them."""
    ACKNOWLEDGED = "acknowledged"
    """Taken, and paid for sooner or later: poll the request id."""
    PROCESSING = "processing"
    """Not done yet: poll again."""
    FAILED = "failed"
    """Taken and not done: there will be no results; the answer may say what was charged."""
    REFUSED = "refused"
    """Not taken, not charged; sending the same again gets the same."""
    THROTTLED = "throttled"
    """Not taken, not charged; it can be sent again later."""
    DENIED = "denied"
    """The key or the account may not be used: nothing else will go through either."""
    NO_CREDITS = "no_credits"
    """Not taken: the account holds less than the price."""
    NOT_FOUND = "not_found"
    """No such request id: never given, or its results have expired."""
    UNCERTAIN = "uncertain"
    """No proof either way: a submission may have been charged."""


_SILENT: Final = frozenset({ResponseVerdict.ANSWERED, ResponseVerdict.ACKNOWLEDGED, ResponseVerdict.PROCESSING})


@dataclass(frozen=True)
class Classification:
    """A verdict and what it rests on.

    Attributes:
        verdict: What the answer means.
        body: The bytes it was read from.
        error: The error text, or for an answer outside the contract what it looks like; None when there is
            none.
        retry_after_s: Seconds the service asks to wait, 0 or more; None when it does not say.
        request_id: What to poll; None when the answer names none.
        data: The JSON object in it, so that nobody reads it twice; None when there is none.
    """

    verdict: ResponseVerdict
    body: bytes = field(default=b"", repr=False)
    error: str | None = None
    retry_after_s: float | None = None
    request_id: str | None = None
    data: dict[str, Any] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def answer(self) -> Answer | None:
        """What could be read of the answer, typed; None when it is no JSON object.

        Made when first asked for: a verdict costs 20 µs, typing a whole answer of 6 KB costs three times
        that.
        """
        return decode_answer(self.body)


@dataclass(slots=True)
class _Reading:
    """The parts of a raw answer that verdicts are made of."""

    status: int
    data: dict[str, Any] | None
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
        """The service, or something before it, gave up on a request that it may have acted upon."""
        return self.status >= HTTPStatus.INTERNAL_SERVER_ERROR or self.status == HTTPStatus.REQUEST_TIMEOUT

    @property
    def failed(self) -> bool:
        """Whether a request that was taken has failed; mere refusals may carry the word too."""
        return self.word == _FAILED and (self.ok or self.request_id is not None)

    @property
    def throttled(self) -> bool:
        asked_to_wait = self.status == HTTPStatus.SERVICE_UNAVAILABLE and self.retry_after_s is not None
        return asked_to_wait or self.status == HTTPStatus.TOO_MANY_REQUESTS

    @property
    def denied(self) -> bool:
        return self.error_starts(_DENIED) or self.status == HTTPStatus.UNAUTHORIZED

    def error_starts(self, *texts: str) -> bool:
        return self.error is not None and self.error.casefold().startswith(texts)


def classify_submission(
    raw: RawAnswer, *, now: float | None = None, data: dict[str, Any] | None = None
) -> Classification:
    """What the answer to POST /api/fetch means.

    Args:
        raw: Any answer at all.
        now: Seconds since the epoch, for a Retry-After given as a date in an answer that has no Date of its
            own.
        data: The JSON object in it, where somebody has read it already.
    """
    reading = _read(raw, now, data)
    return _judged(_verdict_on_submission(reading), reading, raw)


def classify_poll(raw: RawAnswer, *, now: float | None = None, data: dict[str, Any] | None = None) -> Classification:
    """What the answer to GET /api/response/<request_id> means; arguments as for `classify_submission`."""
    reading = _read(raw, now, data)
    return _judged(_verdict_on_poll(reading), reading, raw)


def retry_after_s(raw: RawAnswer, *, now: float | None = None) -> float | None:
    """Seconds an answer asks to wait, 0 or more; None when it does not say so in a way that can be read.

    A date is counted from the answer's own Date where it has one: then our clock need not agree with the
    service's. RFC 9110 §10.2.3.
    """
    text = raw.headers.get("retry-after", "").strip()
    if not text:
        return None
    if _SECONDS.fullmatch(text):
        return float(text)
    until = _date(text)
    if until is None:
        return None
    since = _date(raw.headers.get("date", ""))
    start = now if since is None else since
    return None if start is None else max(0.0, until - start)


def _verdict_on_submission(reading: _Reading) -> ResponseVerdict:
    verdict = _verdict_by_body(reading)
    if verdict is not None:
        return verdict
    if reading.broken or reading.error_starts(_BROKE_DOWN):
        return ResponseVerdict.UNCERTAIN
    if reading.error is not None:
        return _verdict_on_other_error(reading)
    if reading.request_id is not None and reading.ok:
        return ResponseVerdict.ACKNOWLEDGED
    return ResponseVerdict.REFUSED if reading.status in _NOT_ACTED_UPON else ResponseVerdict.UNCERTAIN


def _verdict_on_poll(reading: _Reading) -> ResponseVerdict:
    if reading.error is not None and _NOT_FOUND.match(reading.error):
        return ResponseVerdict.NOT_FOUND
    ended = reading.failed and not reading.denied and not reading.throttled  # the end of this request, not of others
    verdict = ResponseVerdict.FAILED if ended else _verdict_by_body(reading)
    if verdict is not None:
        return verdict
    if reading.status == HTTPStatus.NOT_FOUND:
        return ResponseVerdict.NOT_FOUND
    if reading.error_starts(_BROKE_DOWN):
        return ResponseVerdict.FAILED
    if reading.error is not None:
        return _verdict_on_other_error(reading)
    known = reading.word is not None or reading.request_id is not None
    return ResponseVerdict.PROCESSING if known and reading.ok else ResponseVerdict.UNCERTAIN


def _verdict_by_body(reading: _Reading) -> ResponseVerdict | None:
    """What is the same for submissions and polls; None when the body decides nothing."""
    if reading.has_results:
        return ResponseVerdict.ANSWERED
    if reading.denied:
        return ResponseVerdict.DENIED
    if reading.error_starts(*_PENNILESS) or (reading.error and reading.status == HTTPStatus.PAYMENT_REQUIRED):
        return ResponseVerdict.NO_CREDITS
    if reading.error_starts(*_NOT_TAKEN):
        return ResponseVerdict.REFUSED
    if reading.failed:
        return ResponseVerdict.FAILED
    return ResponseVerdict.THROTTLED if reading.throttled else None


def _verdict_on_other_error(reading: _Reading) -> ResponseVerdict:
    if reading.ok:
        # What has a request id was taken, and may have been charged.
        return ResponseVerdict.REFUSED if reading.request_id is None else ResponseVerdict.FAILED
    client_error = HTTPStatus.BAD_REQUEST <= reading.status < HTTPStatus.INTERNAL_SERVER_ERROR
    return ResponseVerdict.REFUSED if client_error and not reading.broken else ResponseVerdict.UNCERTAIN


def _judged(verdict: ResponseVerdict, reading: _Reading, raw: RawAnswer) -> Classification:
    error = reading.error
    if error is None and verdict not in _SILENT:
        said = body_excerpt(raw.body)
        error = f"HTTP {raw.status}: {said}" if said else f"HTTP {raw.status} without a body"
    return Classification(verdict, raw.body, error, reading.retry_after_s, reading.request_id, reading.data)


def _read(raw: RawAnswer, now: float | None, data: dict[str, Any] | None) -> _Reading:
    data = parse_object_lenient(raw.body) if data is None else data
    wire = WireAnswer(data or {})
    return _Reading(
        status=raw.status,
        data=data,
        error=_plain_denial(raw.body) if data is None else wire.error,
        word=wire.status,
        has_results=wire.has_results and wire.status not in _WITHOUT_RESULTS,
        request_id=wire.request_id,
        retry_after_s=retry_after_s(raw, now=now),
    )


def _plain_denial(body: bytes) -> str | None:
    """The text of a body that is no JSON object and says that access is denied; None for any other text."""
    plain = body_excerpt(body).strip('"')
    return plain if plain.casefold().startswith(_DENIED) else None


def _date(text: str) -> float | None:
    try:
        parsed = parsedate_to_datetime(text)
        aware: datetime = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
        return aware.timestamp()
    except (ValueError, OverflowError):
        return None
