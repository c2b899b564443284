"""Metrics and logs have what operators need, and no private data of clients."""

from __future__ import annotations

import io
import json
import logging
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lightmeter.service import logs
from lightmeter.service.metrics import CONVENTIONAL_NAMES, Metrics


def figures(text: str) -> dict[tuple[str, ...], float]:
    """Return samples by name and label values, in the order of the label names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def read(caller) -> dict[tuple[str, ...], float]:
    """Return the samples of GET /metrics, which needs no key."""
    async with caller.session.get(f"{caller.base_url}/metrics") as answer:
        assert (answer.status, answer.content_type) == (200, "text/plain")
        return figures(await answer.text())


async def test_answers_are_counted_by_endpoint_and_status(starting, calling, encoded):
    """Requests are counted by route, not by path with its ids."""
    caller = await calling(await starting())
    await caller.ask(file=encoded())
    await caller.poll("0" * 32)
    await caller.poll("1" * 32)
    await caller.send("GET", "/api/secret")
    caller.headers = {}
    await caller.ask(file=encoded())
    metrics = await read(caller)
    counted = {name[1:]: value for name, value in metrics.items() if name[0] == "lightmeter_http_requests_total"}
    assert counted == {
        ("/api/fetch", "200"): 1,
        ("/api/fetch", "401"): 1,
        ("/api/response/{request_id}", "404"): 2,
        ("other", "404"): 1,
    }
    assert metrics["lightmeter_http_seconds_count", "/api/fetch"] == 2
    assert "secret" not in str(metrics)


async def test_work_is_counted_where_it_is_done(starting, calling, site, encoded):
    """An analysis counts pictures, jobs, credits and the times of each step."""
    caller = await calling(await starting())
    await caller.ask(file=encoded())
    await caller.finished(await caller.ask(url=site.url("video/tiny.avi")))
    await caller.ask(url=site.url("broken/x.jpg"))
    metrics = await read(caller)
    expected = {
        ("lightmeter_pictures_total", "palette", "colors"): 4,
        ("lightmeter_jobs_total", "completed"): 3,
        ("lightmeter_credits_charged_total",): 4,
        ("lightmeter_inference_pictures_sum", "palette"): 4,
        ("lightmeter_work_seconds_count", "ok", "fetch"): 2,
        ("lightmeter_work_seconds_count", "failed", "decode"): 1,
        ("lightmeter_queue_depth", "jobs"): 0,
        ("lightmeter_queue_depth", "inference"): 0,
    }
    assert {name: metrics.get(name) for name in expected} == expected


async def test_two_services_in_one_process_count_for_themselves(starting, calling, tmp_path):
    """Two services in one process have separate registries."""
    first = await calling(await starting())
    second = await calling(await starting(database=f"sqlite:///{tmp_path / 'second.db'}"))
    await first.balance()
    assert ("lightmeter_http_requests_total", "/api/credits", "200") in await read(first)
    assert ("lightmeter_http_requests_total", "/api/credits", "200") not in await read(second)


async def test_transactions_are_timed(starting, calling, encoded):
    """Reads and writes of the database are timed."""
    caller = await calling(await starting())
    await caller.ask(file=encoded())
    metrics = await read(caller)
    assert metrics["lightmeter_database_duration_seconds_count", "read", "ok"] > 0
    assert metrics["lightmeter_database_duration_seconds_count", "write", "ok"] > 0


def test_conventional_names_hold_the_same_figures():
    """Each histogram with a conventional name has the samples of the first name."""
    metrics = Metrics()
    metrics.count_answer("/api/fetch", 200, 0.2)
    metrics.count_inference("palette", 3, 0.02)
    with metrics.time_step("fetch"):
        pass
    values = figures(metrics.as_text().decode())
    for name, conventional in CONVENTIONAL_NAMES.items():
        samples = {key: value for key, value in values.items() if re.fullmatch(f"{name}_(bucket|sum|count)", key[0])}
        assert len(samples) == 18
        assert samples == {key: values[conventional + key[0].removeprefix(name), *key[1:]] for key in samples}


def test_every_figure_has_its_name():
    """Each metric has a documented name with its unit."""
    metrics = Metrics()
    metrics.count_pictures("palette", ["colors", "tags"], 3)
    metrics.count_inference("palette", 3, 0.02)
    metrics.count_backend_failure("palette")
    metrics.count_cache_lookup(hit=True)
    metrics.count_job_state("completed")
    metrics.count_charge(7)
    metrics.count_refusal("inference")
    metrics.watch_queue_depth("jobs", lambda: 4)
    metrics.watch_queue_depth("inference", lambda: 9)
    with metrics.time_step("fetch"):
        pass
    with pytest.raises(OSError, match="away"), metrics.time_step("fetch"):
        raise OSError("away")
    values = figures(metrics.as_text().decode())
    expected = {
        ("lightmeter_pictures_total", "palette", "colors"): 3,
        ("lightmeter_pictures_total", "palette", "tags"): 3,
        ("lightmeter_inference_seconds_count", "palette"): 1,
        ("lightmeter_inference_pictures_sum", "palette"): 3,
        ("lightmeter_backend_failures_total", "palette"): 1,
        ("lightmeter_cache_lookups_total", "hit"): 1,
        ("lightmeter_jobs_total", "completed"): 1,
        ("lightmeter_credits_charged_total",): 7,
        ("lightmeter_refusals_total", "inference"): 1,
        ("lightmeter_queue_depth", "jobs"): 4,
        ("lightmeter_queue_depth", "inference"): 9,
        ("lightmeter_work_seconds_count", "ok", "fetch"): 1,
        ("lightmeter_work_seconds_count", "failed", "fetch"): 1,
    }
    assert {name: values.get(name) for name in expected} == expected


@pytest.fixture
def written():
    """Collect log lines as JSON, and restore the logging configuration afterwards."""
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    root.handlers.clear()
    logs.configure("json")
    stream = root.handlers[0].stream = io.StringIO()
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:], root.level = before


async def test_every_request_is_one_line_that_gives_nothing_away(caller, encoded, written):
    """The access log has method, path, status, time, account and id, and no key, body, query or forged line."""
    content = encoded(5)
    done = await caller.ask({"X-Request-ID": "mine-1"}, file=content, prompt="a secret wish")
    await caller.send("GET", "/api/fetch?url=http://example.org/secret%0aplace&tag_score=7")
    await caller.send("GET", "/api/sec%0aond")
    lines = [line for line in written() if line["logger"] == "lightmeter.access"]
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("POST", "/api/fetch", 200),
        ("GET", "/api/fetch", 400),
        ("GET", "/api/sec%0Aond", 404),
    ]
    assert all(line["ms"] >= 0 and line["level"] == "info" and line["at"] for line in lines)
    assert (lines[0]["request"], lines[0]["account"]) == ("mine-1", done.body["user_id"])
    assert [line.get("request_id") for line in lines] == [done.body["request_id"], None, None]
    everything = json.dumps(written())
    key = caller.headers["X-API-Key"].removeprefix("Token ")
    assert not [secret for secret in (key, content, "secret", "wish", "tag_score") if secret in everything]


@pytest.mark.parametrize(("given", "accepted"), [("abc-1.x_Y", True), ("a b", False), ("x" * 65, False), ('"', False)])
async def test_answers_carry_the_id_of_their_request(caller, given, accepted):
    """An answer has the client's request id if it is valid, otherwise a new one; errors too."""
    for path in ("/api/credits", "/healthz", "/api/nothing"):
        answered = await caller.send("GET", path, headers={"X-Request-ID": given})
        request_id = answered.headers["X-Request-ID"]
        assert (request_id == given) == accepted
        assert accepted or re.fullmatch(r"[0-9a-f]{16}", request_id)


def test_logs_for_people_are_lines_of_text(capsys):
    """A text line has time, level, logger, message and request id; an error has its traceback."""
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    root.handlers.clear()
    try:
        logs.configure("text")
        token = logs.request_id.set("r-1")
        logs.log_access("GET", "/x", 200, 0.0012, 3)
        logs.request_id.reset(token)
        logging.getLogger("elsewhere").warning("watch out")
    finally:
        root.handlers[:], root.level = before
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("INFO lightmeter.access method=GET path=/x status=200 ms=1.2 account=3 request=r-1")
    assert second.endswith("WARNING elsewhere watch out")


def test_json_logs_hold_whatever_happens(written):
    """A JSON line has the exception as a field, and escapes special characters."""
    try:
        int("odd \ud800 news\nline")
    except ValueError:
        logging.getLogger("lightmeter.service").exception("it %s", "broke")
    (line,) = written()
    assert (line["message"], line["level"]) == ("it broke", "error")
    assert "ValueError" in line["exception"]
