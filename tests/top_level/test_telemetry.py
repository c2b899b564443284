"""Telemetry: spans and metrics arrive at a real OTLP receiver, nothing secret is in them, and off means off."""

from __future__ import annotations

import gzip
import logging
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import lightmeter as lm
from lightmeter import telemetry
from lightmeter.errors import SettingsError
from lightmeter.settings import read_settings
from tests.conftest import DATA

pytest.importorskip("opentelemetry.sdk")
trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
metrics_service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")

PROMPT = "Is there a secret castle?"


@dataclass
class Collector:
    """What an OTLP receiver got: spans, metrics by name, and the raw bytes.

    Attributes:
        address: Base address of the receiver.
    """

    address: str = ""
    spans: list = field(default_factory=list)
    metrics: dict = field(default_factory=dict)
    raw: bytes = b""

    def named(self, name: str) -> list:
        return [span for span in self.spans if span.name == name]

    def receive(self, path: str, body: bytes) -> None:
        self.raw += body
        if path == "/v1/traces":
            request = trace_service.ExportTraceServiceRequest.FromString(body)
            scopes = [scope for resource in request.resource_spans for scope in resource.scope_spans]
            self.spans += [span for scope in scopes for span in scope.spans]
        else:
            request = metrics_service.ExportMetricsServiceRequest.FromString(body)
            scopes = [scope for resource in request.resource_metrics for scope in resource.scope_metrics]
            self.metrics |= {metric.name: metric for scope in scopes for metric in scope.metrics}


def values(span) -> dict:
    """Return the attributes of a span that are texts or whole numbers."""
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


@contextmanager
def collecting():
    """Serve an OTLP receiver on loopback."""
    collector = Collector()

    class OtlpHandler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.receive(self.path, gzip.decompress(body) if "Content-Encoding" in self.headers else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments):
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), OtlpHandler)
    collector.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def collector(monkeypatch):
    """Switch telemetry on for one test, and send it to a receiver."""
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
        telemetry._start.cache_clear()
        yield collector
        telemetry.close()
        telemetry._start.cache_clear()
    monkeypatch.undo()
    telemetry._start.cache_clear()


async def test_one_trace_shows_the_run_and_what_the_service_did(collector, tmp_path, charges_at_once, data_server):
    """The spans of a run and of the service are one trace, by the header `traceparent`, also over the job queue."""
    urls = [{"url": f"{data_server}/media/{name}.jpg"} for name in ("coffee", "koala")]  # one request, from the queue
    rows = [{"path": str(DATA / "media" / "camera.jpg")}, *urls]
    options = {"features": ["colors"], "backends": ["palette"], "batch_size": 2, "precheck": False, "budget": 50}
    plan = await lm.aio.plan(rows, **options)
    run = await lm.aio.run(plan, tmp_path / "out")
    telemetry.flush()
    (planned,), (span,) = collector.named("lightmeter.plan"), collector.named("lightmeter.run")
    assert values(planned)["lightmeter.rows"] == 3
    assert values(span)["lightmeter.rows.ok"] == 3
    assert values(span)["lightmeter.credits_paid"] == run.summary().paid
    mine = {one.span_id: one for one in collector.spans if one.trace_id == span.trace_id}
    requests, jobs = collector.named("lightmeter.request"), collector.named("lightmeter.job")
    assert len(requests) == len(jobs) == 2
    assert {one.parent_span_id for one in requests} == {span.span_id}
    for job in jobs:
        server = mine[job.parent_span_id]
        assert (server.name, server.kind) == ("POST /api/fetch", 2)
        assert mine[server.parent_span_id].name == "lightmeter.request"
        assert values(server)["http.response.status_code"] == 200
        assert values(server)["lightmeter.request_id"] == values(job)["lightmeter.request_id"]
    fetches, analyses = collector.named("lightmeter.fetch"), collector.named("lightmeter.analysis")
    assert (len(fetches), len(analyses)) == (2, 3)
    assert {mine[one.parent_span_id].name for one in fetches} == {"lightmeter.job"}
    assert {mine[one.parent_span_id].name for one in analyses} == {"lightmeter.job"}
    assert {values(one)["lightmeter.backend"] for one in analyses} == {"palette"}
    polls = collector.named("lightmeter.poll")
    assert polls
    assert all(mine[one.parent_span_id].name == "lightmeter.run" for one in polls)
    assert values(collector.named("lightmeter.export")[0])["lightmeter.rows.assets"] == 3
    paid = collector.metrics["lightmeter.client.credits_paid"].sum.data_points
    assert sum(point.as_double or point.as_int for point in paid) == run.summary().paid
    for name in ("lightmeter.client.request.duration", "http.server.request.duration", "lightmeter.service.jobs"):
        assert name in collector.metrics


async def test_no_key_no_address_and_no_prompt_is_sent(collector, try_out, monkeypatch):
    """The bytes that the collector gets hold no key, no URL of a row and no prompt, also where a request fails."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "verysecretkey")
    described = {"features": ["descriptions"], "backends": ["openai"]}
    await try_out(["answer", "drop", "refuse"], rows=3, prompt=PROMPT, **described)
    telemetry.flush()
    assert collector.named("lightmeter.request")
    for secret in ("verysecretkey", "pictures.example", PROMPT, "/out"):
        assert secret.encode() not in collector.raw


@pytest.mark.parametrize(
    "more", [{}, {"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}]
)
def test_without_a_collector_the_sdk_is_not_imported(more):
    """Without the variables, or with telemetry switched off, functions do nothing and import nothing."""
    code = (
        "import sys; from lightmeter import telemetry as t\n"
        "with t.span('x', {'a': 1}) as s: s.set({'b': 2}); t.count('c'); t.record_seconds('d', 1.0)\n"
        "t.store_trace_parent('k'); assert t.pop_trace_parent('k') is None and t.trace_headers() == {}\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    if more:
        environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", **more}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_a_missing_extra_is_one_sentence_and_no_error(monkeypatch, caplog):
    """If the variables are set but the package is missing, a warning names the command, and work goes on."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    telemetry._start.cache_clear()
    with caplog.at_level(logging.WARNING), telemetry.span("x"):
        telemetry.count("y")
    telemetry._start.cache_clear()
    (record,) = caplog.records
    assert "pip install 'lightmeter[otel]'" in record.message


def test_a_collector_that_is_down_is_one_line():
    """If nobody listens, the end is one line with the address and the reason, and no record of the SDK is printed."""
    code = (
        "from lightmeter import telemetry as t\n"
        "with t.span('x'): t.count('y')\n"
        "t.close(); print('the result', flush=True)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://me:secret@127.0.0.1:9"
    command = [sys.executable, "-c", code]
    ended = subprocess.run(
        command, env=environment, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert ended.stdout.splitlines() == [
        "telemetry was not delivered to http://127.0.0.1:9: Connection refused",
        "the result",
    ]


@pytest.mark.parametrize("address", ["localhost:4799", "grpc://localhost", "http://"])
def test_an_endpoint_without_a_scheme_is_an_error_of_the_settings(monkeypatch, address):
    """An address that no exporter can use is refused in one sentence, unless telemetry is switched off."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    with pytest.raises(SettingsError, match="OTEL_EXPORTER_OTLP_ENDPOINT: it is no address that starts with http://"):
        read_settings()
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    read_settings()
