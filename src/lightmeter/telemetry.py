"""OpenTelemetry traces and metrics of runs and of the service; needs `pip install 'lightmeter[otel]'`.

Telemetry is on if OTEL_EXPORTER_OTLP_ENDPOINT, or its form for traces or metrics alone, is set. All OTEL_… variables of
the SDK apply. While telemetry is off, no function of this module does anything, and the SDK is not imported. Spans hold
counts, ids and names of back ends, and of errors only the type: never a key, a URL, a prompt or an answer.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from threading import Event, Lock, Thread
from typing import Any, Final, Literal

SpanKind = Literal["internal", "client", "server"]
Attributes = Mapping[str, str | int | float | bool | tuple[str, ...] | None]

_ENDPOINTS: Final = {
    "traces": ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
    "metrics": ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
}
_ENDPOINT_NAMES: Final = sorted({name for names in _ENDPOINTS.values() for name in names})
_HTTP: Final = re.compile("https?://[^/]", re.IGNORECASE)
_TIMEOUT: Final = "OTEL_EXPORTER_OTLP_TIMEOUT"
_DEFAULT_TIMEOUT_S: Final = 2
"""Longest time for one export, also for the last one of the process. OTEL_EXPORTER_OTLP_TIMEOUT overrides it."""

_MAX_REASON: Final = 200
_MAX_KEPT_PARENTS: Final = 10_000
_NAME: Final = "lightmeter"

log = logging.getLogger("lightmeter")


class TelemetryFailures(logging.Handler):
    """Handles the SDK's log records: reports in one line, once, that telemetry was not delivered.

    Without a handler, Python would print each record of the SDK on standard error.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._reason: str | None = None
        self._is_reported = False

    def emit(self, record: logging.LogRecord) -> None:
        """Remember the cause in the SDK's log record; if the record says that an export failed finally, report it."""
        text = record.getMessage()
        cause = re.search(r"\[Errno -?\d+\] ([^'\")]+)|(timed out)|reason: (.+)", text)
        if cause is not None:
            self._reason = next(group for group in cause.groups() if group)[:_MAX_REASON]
        if record.levelno >= logging.ERROR and "export" in text:
            self.report("it does not answer, or accepts nothing")

    def report(self, otherwise: str) -> None:
        """Log once that telemetry was not delivered, with the known reason, or `otherwise` if no reason is known."""
        if not self._is_reported:
            self._is_reported = True
            where = next(address for name in _ENDPOINT_NAMES if (address := os.environ.get(name)))
            log.warning("telemetry was not delivered to %s: %s", _without_user(where), self._reason or otherwise)


@dataclass(slots=True)
class Telemetry:
    """The parts of OpenTelemetry that this process uses while telemetry is on.

    Attributes:
        tracer: Makes spans.
        meter: Makes instruments.
        providers: What sends spans and metrics to the collector.
        failures: Reports that the collector cannot be reached.
        closing: Set when no more telemetry comes: then the threads `closers` send what is left.
        closers: One thread for each provider; they are started early, because none can be started at exit.
        instruments: Counters and histograms by name.
        parents: Values of the HTTP header `traceparent` that `store_trace_parent` has stored, by request id.
        lock: Protects `instruments` and `parents`.
    """

    tracer: Any
    meter: Any
    providers: tuple[Any, ...]
    failures: TelemetryFailures
    closing: Event = field(default_factory=Event)
    closers: list[Thread] = field(default_factory=list)
    instruments: dict[str, Any] = field(default_factory=dict)
    parents: OrderedDict[str, str] = field(default_factory=OrderedDict)
    lock: Lock = field(default_factory=Lock)


class TelemetrySpan:
    """A running OpenTelemetry span, to add attributes to; nothing happens if telemetry is off (`span` is None)."""

    __slots__ = ("_span",)

    def __init__(self, span: Any = None) -> None:
        self._span = span

    def set(self, attributes: Attributes) -> None:
        """Add attributes to the span; those that are None are left out."""
        if self._span is not None:
            self._span.set_attributes({name: value for name, value in attributes.items() if value is not None})


_NO_SPAN: Final = TelemetrySpan()
_current: ContextVar[Any] = ContextVar("lightmeter_span", default=None)


def is_on() -> bool:
    """Return whether this process sends telemetry."""
    return _start() is not None


def _wanted_signals() -> dict[str, bool]:
    """Return for `traces` and for `metrics` whether the OTEL_… environment variables ask to send them."""
    wanted = {signal: any(os.environ.get(name) for name in names) for signal, names in _ENDPOINTS.items()}
    for signal in wanted:
        wanted[signal] &= os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp") == "otlp"
        wanted[signal] &= os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true"
    return wanted


def _without_user(address: str) -> str:
    return re.sub(r"//[^/]*@", "//", address.partition("?")[0])


def find_wrong_endpoint() -> str | None:
    """Return the name of an OTEL_… variable that is used but holds no http or https URL; None if all are right."""
    if not any(_wanted_signals().values()):
        return None
    names = (name for name in _ENDPOINT_NAMES if (address := os.environ.get(name)) and not _HTTP.match(address.strip()))
    return next(names, None)


@cache
def _start() -> Telemetry | None:
    """Import and set up the SDK if the environment names a collector; return None otherwise. Called once."""
    wanted = _wanted_signals()
    if not any(wanted.values()):
        return None
    try:
        return _set_up(traces=wanted["traces"], metrics=wanted["metrics"])
    except ImportError as error:
        missing = (error.name or "opentelemetry").partition(".")[0]
        log.warning(
            "OTEL_… variables are set, but the package %s is not installed, so nothing is sent. "
            "Install it: pip install 'lightmeter[otel]'",
            missing,
        )
        return None
    except Exception as error:  # noqa: BLE001 (a wrong OTEL_… variable must not stop a run)
        log.warning("OpenTelemetry cannot be set up, so nothing is sent: %s", error)
        return None


def _set_up(*, traces: bool, metrics: bool) -> Telemetry:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415 (an extra)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    resource = Resource.create({} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": _NAME})
    failures = TelemetryFailures()
    logging.getLogger("opentelemetry").addHandler(failures)
    tracer_provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    if traces:
        exporter = OTLPSpanExporter(timeout=_sdk_timeout_s("TRACES"))
        tracer_provider.add_span_processor(BatchSpanProcessor(exporter))
    metric_exporter = OTLPMetricExporter(timeout=_sdk_timeout_s("METRICS"))
    readers = [PeriodicExportingMetricReader(metric_exporter)] if metrics else []
    meter_provider = MeterProvider(resource=resource, metric_readers=readers, shutdown_on_exit=False)
    providers = (tracer_provider, meter_provider)
    telemetry = Telemetry(
        tracer_provider.get_tracer(_NAME), meter_provider.get_meter(_NAME), providers, failures=failures
    )
    for provider in providers:
        closer = Thread(target=_shut_down, args=(telemetry.closing, provider), daemon=True)
        closer.start()
        telemetry.closers.append(closer)
    atexit.register(_close, telemetry)
    return telemetry


def _sdk_timeout_s(signal: str) -> int | None:
    """Return the timeout to pass to an exporter, in seconds; None if the user has set an environment variable for it.

    The SDK reads these variables itself: OTEL_EXPORTER_OTLP_TIMEOUT, or the one for `signal` (`TRACES` or `METRICS`).
    """
    is_set = os.environ.get(_TIMEOUT) or os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_TIMEOUT")
    return None if is_set else _DEFAULT_TIMEOUT_S


def _shut_down(closing: Event, provider: Any) -> None:
    closing.wait()
    with suppress(Exception):  # (a failed export is reported by `TelemetryFailures`)
        provider.shutdown()


def close() -> None:
    """Send all finished spans and all metrics, and end telemetry.

    Wait at most 2 seconds, or OTEL_EXPORTER_OTLP_TIMEOUT seconds. If telemetry was not delivered, log one warning.
    """
    if (telemetry := _start()) is not None:
        _close(telemetry)


def _close(telemetry: Telemetry) -> None:
    if telemetry.closing.is_set():
        return
    telemetry.closing.set()
    try:
        limit_s = float(os.environ.get(_TIMEOUT) or _DEFAULT_TIMEOUT_S)
    except ValueError:
        limit_s = _DEFAULT_TIMEOUT_S
    deadline_s = time.monotonic() + limit_s
    for closer in telemetry.closers:
        closer.join(max(0.0, deadline_s - time.monotonic()))
    if any(closer.is_alive() for closer in telemetry.closers):
        telemetry.failures.report(f"no answer within {limit_s:g} s")


def flush() -> None:
    """Send all finished spans and all metrics now; return when the collector has them or the SDK gives up."""
    if (telemetry := _start()) is not None:
        for provider in telemetry.providers:
            provider.force_flush()


@contextmanager
def span(
    name: str, attributes: Attributes | None = None, *, kind: SpanKind = "internal", parent: str | None = None
) -> Iterator[TelemetrySpan]:
    """Record the `with` block as a span. Spans that start inside the block, its tasks or its threads are its children.

    An exception marks the span as failed, with the type of the exception alone.

    Args:
        name: Name of the span, such as `lightmeter.request`.
        attributes: Attributes; those that are None are left out.
        kind: Whether the span waits for a service (`client`), answers a client (`server`), or neither.
        parent: The `traceparent` of another process or task; by default the span around this one.
    """
    telemetry = _start()
    if telemetry is None:
        yield _NO_SPAN
        return
    from opentelemetry import trace  # noqa: PLC0415 (an extra)

    started = telemetry.tracer.start_span(
        name,
        context=_context(parent),
        kind=trace.SpanKind[kind.upper()],
        record_exception=False,
        set_status_on_exception=False,
    )
    running = TelemetrySpan(started)
    running.set(attributes or {})
    token = _current.set(started)
    try:
        yield running
    except BaseException as error:
        started.set_status(trace.Status(trace.StatusCode.ERROR, type(error).__name__))
        raise
    finally:
        with suppress(ValueError):  # a generator that was closed from another task
            _current.reset(token)
        started.end()


def _context(parent: str | None) -> Any:
    from opentelemetry import trace  # noqa: PLC0415 (an extra)
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    if parent:
        return TraceContextTextMapPropagator().extract({"traceparent": parent})
    current = _current.get()
    return None if current is None else trace.set_span_in_context(current)


def trace_headers() -> dict[str, str]:
    """Return the HTTP header `traceparent`, which names the current span; empty if there is no span."""
    if _start() is None or (current := _current.get()) is None:
        return {}
    context = current.get_span_context()
    return {"traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"}


def store_trace_parent(key: str) -> None:
    """Store the current `traceparent` by `key` (a request id) for `pop_trace_parent`; the latest 10,000 are kept."""
    if (telemetry := _start()) is not None and (header := trace_headers()):
        with telemetry.lock:
            telemetry.parents[key] = header["traceparent"]
            while len(telemetry.parents) > _MAX_KEPT_PARENTS:
                telemetry.parents.popitem(last=False)


def pop_trace_parent(key: str) -> str | None:
    """Return the `traceparent` that `store_trace_parent` stored by `key`, and delete it; None if there is none."""
    if (telemetry := _start()) is None:
        return None
    with telemetry.lock:
        return telemetry.parents.pop(key, None)


def count(name: str, amount: float = 1, attributes: Attributes | None = None) -> None:
    """Add `amount` to the counter `name`; each set of attributes is counted by itself."""
    if (telemetry := _start()) is not None:
        _instrument(telemetry, name, "create_counter", "1").add(amount, _given(attributes))


def record_seconds(name: str, seconds: float, attributes: Attributes | None = None) -> None:
    """Add a duration, `seconds`, to the histogram `name`; each set of attributes has a histogram of its own."""
    if (telemetry := _start()) is not None:
        _instrument(telemetry, name, "create_histogram", "s").record(seconds, _given(attributes))


def _given(attributes: Attributes | None) -> dict[str, Any]:
    return {name: value for name, value in (attributes or {}).items() if value is not None}


def _instrument(telemetry: Telemetry, name: str, create: str, unit: str) -> Any:
    with telemetry.lock:
        if name not in telemetry.instruments:
            telemetry.instruments[name] = getattr(telemetry.meter, create)(name, unit=unit)
        return telemetry.instruments[name]
