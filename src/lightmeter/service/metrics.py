"""Prometheus metrics of the service.

Each service has its own registry, so that several services in one process do not mix their counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from platform import python_version
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector, start_http_server
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from lightmeter import __version__, telemetry
from lightmeter.errors import SettingsError
from lightmeter.service.backends.providers.provider import Usage

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
"""Content type of `Metrics.as_text`: version 0.0.4 of the Prometheus text format, which old and new servers read."""

DURATION_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Upper bounds of the histogram buckets for durations in seconds: from a cached answer to the longest allowed fetch."""

PICTURE_BUCKETS: Final = (1, 2, 4, 8, 16, 32)
"""Upper bounds of the histogram buckets for the number of images and video frames in one call of a back end."""


@contextmanager
def _time(histogram: Callable[..., Histogram], name: str) -> Iterator[None]:
    """Record in a histogram how many seconds the `with` block takes.

    `histogram` is called with two labels and returns the histogram to record in. The first label is `name`. The second
    is `ok`, or `failed` if the block raises an error.
    """
    start_s = time.perf_counter()
    outcome = "failed"
    try:
        yield
        outcome = "ok"
    finally:
        histogram(name, outcome).observe(time.perf_counter() - start_s)


CONVENTIONAL_NAMES: Final = {
    "lightmeter_http_seconds": "lightmeter_http_request_duration_seconds",
    "lightmeter_work_seconds": "lightmeter_asset_step_duration_seconds",
    "lightmeter_inference_seconds": "lightmeter_inference_duration_seconds",
}
"""Name of a histogram → a second name, which follows the naming conventions of Prometheus.

The histogram is reported under both names.
"""


class _ConventionalNames(Collector):
    """Prometheus collector that reports each histogram in `CONVENTIONAL_NAMES` a second time, under its second name."""

    def __init__(self, histograms: Iterable[Histogram]) -> None:
        self._histograms = tuple(histograms)

    def collect(self) -> Iterator[Metric]:
        for histogram in self._histograms:
            for family in histogram.collect():
                name = CONVENTIONAL_NAMES[family.name]
                renamed = Metric(name, family.documentation, family.type)
                renamed.samples = [
                    sample._replace(name=name + sample.name.removeprefix(family.name)) for sample in family.samples
                ]
                yield renamed


def _new_registry() -> CollectorRegistry:
    """Return a Prometheus registry with two kinds of metrics, to which `Metrics` adds those of the service.

    It has the processor time, memory and open files of this process, and the versions of lightmeter and Python.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    build = Gauge("lightmeter_build_info", "Always 1.", ("version", "python"), registry=registry)
    build.labels(__version__, python_version()).set(1)
    return registry


class Metrics:
    """The Prometheus metrics of one service: counters, gauges and histograms. Any thread may change them."""

    def __init__(self) -> None:
        self._registry = _new_registry()
        count = partial(Counter, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry, buckets=DURATION_BUCKETS_S)
        # Cached by label values, because `labels` takes longer than counting.
        self._requests = cache(count("lightmeter_http_requests", "Answers.", ("endpoint", "status")).labels)
        gauge = partial(Gauge, registry=self._registry)
        self.in_flight = gauge("lightmeter_http_requests_in_flight", "Requests without an answer.")
        request_s = histogram("lightmeter_http_seconds", "From request to answer.", ("endpoint",))
        self._request_s = cache(request_s.labels)
        pictures = count("lightmeter_pictures", "Images and frames that were analyzed.", ("feature", "backend"))
        self._pictures = cache(pictures.labels)
        self._failures = cache(
            count("lightmeter_backend_failures", "Calls of a back end that failed.", ("backend",)).labels
        )
        self._jobs = cache(count("lightmeter_jobs", "Jobs that have entered a state.", ("state",)).labels)
        work_s = histogram("lightmeter_work_seconds", "Time to fetch or decode one asset.", ("step", "outcome"))
        self._work_s = cache(work_s.labels)
        inference_s = histogram("lightmeter_inference_seconds", "Time of one call of a back end.", ("backend",))
        self._inference_s = cache(inference_s.labels)
        self._registry.register(_ConventionalNames((request_s, work_s, inference_s)))
        batch = histogram("lightmeter_inference_pictures", "Pictures in a call.", ("backend",), buckets=PICTURE_BUCKETS)
        self._batch = cache(batch.labels)
        self._cache = cache(count("lightmeter_cache_lookups", "Lookups in the result cache.", ("outcome",)).labels)
        self._queue = gauge("lightmeter_queue_depth", "Items that wait now.", ("queue",))
        self._refused = cache(count("lightmeter_refusals", "Requests refused: queue full.", ("queue",)).labels)
        self._credits = count("lightmeter_credits_charged", "Credits charged.")
        database_s = histogram(
            "lightmeter_database_duration_seconds", "From queueing a transaction to its end.", ("operation", "outcome")
        )
        self._database_s = cache(database_s.labels)
        by_model = ("backend", "model")
        self._provider_calls = cache(count("lightmeter_provider_calls", "Calls that were answered.", by_model).labels)
        errors = count("lightmeter_provider_errors", "Calls that failed.", ("backend", "kind"))
        self._provider_errors = cache(errors.labels)
        tokens = count("lightmeter_provider_tokens", "Tokens that were billed.", (*by_model, "direction"))
        self._provider_tokens = cache(tokens.labels)
        self._provider_usd = cache(
            count("lightmeter_provider_usd", "Cost in US dollars by published prices, where known.", by_model).labels
        )

    def count_answer(self, endpoint: str, status: int, seconds: float) -> None:
        """Count an HTTP answer with the status `status`, and record the `seconds` since its request.

        `endpoint` is the pattern of the route, such as `/api/response/{request_id}`.
        """
        self._requests(endpoint, str(status)).inc()
        self._request_s(endpoint).observe(seconds)
        attributes: telemetry.Attributes = {"http.route": endpoint, "http.response.status_code": status}
        telemetry.record_seconds("http.server.request.duration", seconds, attributes)

    def count_pictures(self, backend: str, features: Iterable[str], pictures: int) -> None:
        """Count `pictures` images and video frames, which a back end has analyzed, once for each of `features`."""
        for feature in features:
            self._pictures(feature, backend).inc(pictures)

    def count_inference(self, backend: str, pictures: int, seconds: float) -> None:
        """Record the duration of a successful call of a back end in seconds, and how many pictures it analyzed.

        Pictures are images and video frames.
        """
        self._inference_s(backend).observe(seconds)
        self._batch(backend).observe(pictures)
        attributes = {"lightmeter.backend": backend}
        telemetry.count("lightmeter.service.pictures", pictures, attributes)
        telemetry.record_seconds("lightmeter.service.analysis.duration", seconds, attributes)

    def count_backend_failure(self, backend: str) -> None:
        """Count a failed call of a back end."""
        self._failures(backend).inc()

    def count_cache_lookup(self, *, hit: bool) -> None:
        """Count a lookup in the cache of results, as a hit or a miss."""
        self._cache("hit" if hit else "miss").inc()

    def count_job_state(self, state: str) -> None:
        """Count an analysis request that has entered the state `queued`, `running`, `completed` or `failed`."""
        self._jobs(state).inc()
        telemetry.count("lightmeter.service.jobs", 1, {"lightmeter.state": state})

    def provider_usage(self, backend: str, usage: Usage) -> None:
        """Count a call that an AI provider has answered, with its tokens and its cost.

        `backend` is the name of the back end that made the call.
        """
        self._provider_calls(backend, usage.model).inc()
        if usage.input_tokens is not None:
            self._provider_tokens(backend, usage.model, "input").inc(usage.input_tokens)
        if usage.output_tokens is not None:
            self._provider_tokens(backend, usage.model, "output").inc(usage.output_tokens)
        if usage.usd is not None:
            self._provider_usd(backend, usage.model).inc(float(usage.usd))

    def provider_error(self, backend: str, kind: str) -> None:
        """Count a failed call of an AI provider.

        `backend` is the name of the back end that made the call. `kind` is a `FailureKind`: throttled, timeout,
        refused, broken or malformed.
        """
        self._provider_errors(backend, kind).inc()

    def count_charge(self, credits_: int) -> None:
        """Count the credits that a finished analysis request was charged."""
        self._credits.inc(credits_)
        telemetry.count("lightmeter.service.credits_charged", credits_)

    def count_refusal(self, queue: str) -> None:
        """Count a request that was refused because a queue, such as `pictures`, was full."""
        self._refused(queue).inc()

    def watch_queue_depth(self, queue: str, depth: Callable[[], float]) -> None:
        """Add a gauge that reports `depth()`, the number of items that wait in a queue.

        `queue` is the name of the queue, such as `pictures`. `depth` is called whenever the metrics are read, from any
        thread. It must not block.
        """
        self._queue.labels(queue).set_function(depth)

    @contextmanager
    def time_step(self, step: str) -> Iterator[None]:
        """Record how long the `with` block takes to fetch or decode a file. `step` is `fetch` or `decode`.

        If the block raises an exception, the duration is labeled `failed`.
        """
        with _time(self._work_s, step):
            yield

    @contextmanager
    def time_transaction(self, operation: str) -> Iterator[None]:
        """Record how many seconds the `with` block, a transaction of the database, takes.

        `operation` is `read` or `write`.
        """
        with _time(self._database_s, operation):
            yield

    def serve(self, host: str, port: int) -> tuple[str, Callable[[], None]]:
        """Serve the metrics over HTTP in a thread; return the URL, and a function that stops the server.

        Raises:
            SettingsError: the address cannot be used.
        """
        try:
            server, thread = start_http_server(port, host, self._registry)
        except OSError as error:
            raise SettingsError(
                f"Cannot serve metrics on {host}:{port}: {error.strerror or error}.", hint="Use another --metrics-port."
            ) from error

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        url_host = f"[{host}]" if ":" in host else host
        return f"http://{url_host}:{server.server_port}/metrics", stop

    def as_text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)
