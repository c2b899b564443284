"""Records OpenTelemetry spans and metrics of a run's requests and polls, if telemetry is on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lightmeter import telemetry
from lightmeter.client.classify import Classification
from lightmeter.client.http_answer import RawAnswer
from lightmeter.engine.in_flight import InFlightRequest, PolledRequest
from lightmeter.facts.answer_fields import AnswerFields
from lightmeter.options import Options


class RequestSpan:
    """The OpenTelemetry span of one request or poll; `end` adds values of the answer.

    Attributes:
        outcome: Verdict on the answer, such as `answered` or `throttled`; `no_answer` before an answer has come, and if
            telemetry is off.
        http_status: HTTP status of the answer; None before an answer has come, and if telemetry is off.
    """

    def __init__(self, span: telemetry.TelemetrySpan) -> None:
        self.outcome = "no_answer"
        self.http_status: int | None = None
        self._span = span

    def end(self, raw: RawAnswer, classify: Callable[[], Classification]) -> None:
        """Add HTTP status, verdict, request id and charged credits of the answer `raw` to the span.

        `classify` returns the verdict; it is called only if telemetry is on.
        """
        if telemetry.is_on():
            classification = classify()
            self.outcome, self.http_status = classification.verdict.value, raw.status
            wire = AnswerFields(classification.data or {})
            self._span.set(
                {
                    "http.response.status_code": raw.status,
                    "lightmeter.outcome": self.outcome,
                    "lightmeter.request_id": wire.request_id,
                    "lightmeter.credits_paid": wire.credits_paid,
                }
            )


@contextmanager
def request_span(options: Options, request: InFlightRequest) -> Iterator[RequestSpan]:
    """Record the `with` block as a span: one attempt to send a request.

    The span states the features and back ends in `options`. The client sends its id in the header `traceparent`. The
    caller tells the yielded object how the attempt ended.
    """
    attributes: telemetry.Attributes = {
        "lightmeter.submission_id": request.submission_id,
        "lightmeter.rows": len(request.rows) or 1,
        "lightmeter.credits_held": request.hold,
        "lightmeter.backends": tuple(options.backends or ()),
        "lightmeter.features": tuple(options.features or ()),
    }
    with _timed_span("lightmeter.request", "lightmeter.client.request.duration", attributes) as http_span:
        yield http_span


@contextmanager
def poll_span(polled: PolledRequest) -> Iterator[RequestSpan]:
    """Record the `with` block as a span: one poll for the answer to an accepted request."""
    attributes: telemetry.Attributes = {
        "lightmeter.submission_id": polled.request.submission_id,
        "lightmeter.request_id": polled.request_id,
        "lightmeter.polls": polled.polls,
    }
    with _timed_span("lightmeter.poll", "lightmeter.client.poll.duration", attributes) as http_span:
        yield http_span


@contextmanager
def _timed_span(name: str, metric: str, attributes: telemetry.Attributes) -> Iterator[RequestSpan]:
    start_s = time.perf_counter()
    with telemetry.span(name, attributes, kind="client") as span:
        http_span = RequestSpan(span)
        try:
            yield http_span
        finally:
            outcome = {"lightmeter.outcome": http_span.outcome, "http.response.status_code": http_span.http_status}
            telemetry.record_seconds(metric, time.perf_counter() - start_s, outcome)
