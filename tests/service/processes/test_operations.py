"""What operators see of a service and of a worker: start line, warnings, access log and metrics."""

from __future__ import annotations

import json
import platform
import re
import signal
import urllib.request

import pytest

from lightmeter import __version__
from tests.service.test_metrics import figures


def get(url):
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 (our own service)
        return answer.read().decode()


def test_the_start_is_one_line_with_version_address_and_back_ends(process):
    """The log says which version started where, on which kind of database, with which back ends, and warns."""
    process.begin()
    assert process.end(signal.SIGTERM) == 0
    logged = process.log.read_text()
    assert re.findall(r"INFO lightmeter\.service (.* started: .*)", logged) == [
        f"service started: version={__version__} address={process.base_url} database=sqlite backends=palette"
    ]
    assert "WARNING lightmeter.service --allow-private: everyone with a key" in logged


def test_probes_are_not_logged_and_their_failures_are(process):
    """Successful answers to monitors leave no line in the access log; other requests do."""
    process.begin()
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
        get(process.base_url + path)
    assert process.end(signal.SIGTERM) == 0
    assert re.findall(r"path=(\S+)", process.log.read_text()) == ["/openapi.json"]


def test_metrics_describe_the_process_and_its_build(process):
    """The metrics have the process, the versions, requests in flight, and times of the database."""
    process.begin()
    get(process.base_url + "/healthz")
    metrics = figures(get(process.base_url + "/metrics"))
    assert process.end(signal.SIGTERM) == 0
    assert metrics["lightmeter_build_info", platform.python_version(), __version__] == 1
    assert metrics["lightmeter_http_requests_in_flight",] == 1
    if platform.system() == "Linux":
        assert metrics["process_resident_memory_bytes",] > 0
        assert metrics["process_open_fds",] > 0


@pytest.mark.postgres
def test_a_worker_serves_its_metrics(processes, postgres):
    """`lightmeter worker --metrics-port` serves metrics, and the log says where."""
    worker = processes(postgres, "worker")
    worker.options = ["--metrics-port", "0", "--log-format", "json"]
    worker.begin()
    (line,) = [json.loads(line) for line in worker.log.read_text().splitlines() if '"started"' in line]
    metrics = figures(get(line["metrics"]))
    assert (line["kind"], line["version"], line["database"]) == ("worker", __version__, "postgresql")
    assert metrics["lightmeter_build_info", platform.python_version(), __version__] == 1
    assert worker.end(signal.SIGTERM) == 0
