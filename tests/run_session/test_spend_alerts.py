"""A run posts an alert to the user's webhook once for each threshold; no webhook stops it or is told a key."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

import lightmeter as lm
from lightmeter.cli.print_results import show_summary
from lightmeter.clock import SystemClock
from lightmeter.errors import SettingsError
from lightmeter.journal.commands.alerts import add_notes, claim_alert, end_alert, read_alerts
from lightmeter.journal.header import read_run_header
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.money.spend_thresholds import SpendReading, parse_thresholds, reached_thresholds
from lightmeter.run_session.spend_alerts import watch_spend
from lightmeter.settings import read_settings
from tests.engine.hostile import Hostile, listening
from tests.sweeps import sweep


@asynccontextmanager
async def hook(monkeypatch, answer=lambda _: web.Response()):
    """A webhook on loopback that answers each POST with `answer(number)`; yields the requests that came."""
    came = []

    async def handle(request):
        came.append((request.method, request.path, dict(request.headers), await request.json()))
        result = answer(len(came))
        return await result if asyncio.iscoroutine(result) else result

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    monkeypatch.setenv("LIGHTMETER_ALERT_WEBHOOK", f"http://127.0.0.1:{port}/hook/SECRET-TOKEN")
    monkeypatch.setenv("LIGHTMETER_ALERT_ALLOW_PRIVATE", "true")
    try:
        yield came
    finally:
        await runner.cleanup()


@asynccontextmanager
async def a_run(folder, rows, **options):
    """A run of so many pictures, whose service still answers during the block."""
    async with listening(Hostile(lambda *_: "well")) as base_url:
        urls = [f"http://pictures.example/{number}.jpg" for number in range(rows)]
        plan_options = {
            "features": ["tags"],
            "backends": ["clarifai"],
            "precheck": False,
            "base_url": base_url,
            **options,
        }
        yield await lm.aio.run(await lm.aio.plan(urls, **plan_options), folder / "out")


def states(run):
    with open_read_only(run.folder) as db:
        return read_alerts(db)


async def test_each_threshold_is_posted_once(tmp_path, charges_at_once, monkeypatch):
    """Spent and expected credits reach the thresholds; the JSON says which one, and holds no key."""
    monkeypatch.setenv("LIGHTMETER_ALERT_THRESHOLDS", "50%, 100%,5")
    async with hook(monkeypatch) as came, a_run(tmp_path, 6, budget=8) as run:
        assert run.summary().paid == 6
        posted = {(body["event"], body["threshold"]): body for *_, body in came}
        assert {("lightmeter.budget.spent", "5"), ("lightmeter.budget.forecast", "5")} <= set(posted)
        assert len(came) == len(posted) <= 4  # a lower threshold is not posted if a higher one is reached with it
        body = posted["lightmeter.budget.spent", "5"]
        run_id = read_run_header(run.folder).run_id
        assert (body["threshold_credits"], body["budget"], body["run_id"]) == (5.0, 8, run_id)
        assert body["alert_id"] == f"{body['run_id']} spent 5"
        assert (came[0][0], came[0][1]) == ("POST", "/hook/SECRET-TOKEN")
        assert '"key"' not in json.dumps([came[0][2], body])  # the fixture's key is "key"
        first = len(came)
        await lm.aio.resume(run.folder)
        assert len(came) == first
    assert set(states(run).values()) <= {"delivered", "superseded"}
    assert set(states(run)) == {f"{kind} {credits_}" for kind in ("spent", "forecast") for credits_ in (4, 5)}


def test_one_post_of_each_kind_for_the_highest_threshold():
    """Of several thresholds reached at once only the highest is claimed; the others are never sent."""
    thresholds = parse_thresholds("5,80%,100%,7", 10)
    reading = SpendReading(paid=8, held=0, forecast=17, counts={})
    assert [(kind, [one.label for one in reached]) for kind, reached in reached_thresholds(thresholds, reading)] == [
        ("spent", ["80%", "7", "5"]),
        ("forecast", ["100%", "80%", "7", "5"]),
    ]


async def test_a_raised_budget_has_thresholds_of_its_own(tmp_path, charges_at_once, monkeypatch):
    """80 % of 20 credits is another threshold than 80 % of 10: it is posted after a resume, each of them once."""
    monkeypatch.setenv("LIGHTMETER_ALERT_THRESHOLDS", "80%")
    async with hook(monkeypatch) as came, a_run(tmp_path, 17, budget=10) as run:
        spent = [body for *_, body in came if body["event"].endswith("spent")]
        assert [body["threshold_credits"] for body in spent] == [8.0]
        (forecast,) = [body for *_, body in came if body["event"].endswith("forecast")]
        assert "would spend 17 credits on the whole manifest, but its budget stops it at 10" in forecast["text"]
        await lm.aio.resume(run.folder, budget=20)
        for kind in ("spent", "forecast"):
            posts = [body["threshold_credits"] for *_, body in came if body["event"].endswith(kind)]
            assert posts == [8.0, 16.0]


async def test_rows_that_the_budget_does_not_pay_for_are_part_of_the_forecast(try_out, monkeypatch):
    """A budget that is too small is announced, though never more than the budget is spent."""
    monkeypatch.setenv("LIGHTMETER_ALERT_THRESHOLDS", "200%,90%")
    async with hook(monkeypatch) as came:
        await try_out(Hostile(lambda *_: "well"), rows=10, budget=4)
        posted = {(body["event"].rpartition(".")[2], body["threshold"]) for *_, body in came}
        assert {("forecast", "200%"), ("spent", "90%")} <= posted
        (body,) = [body for *_, body in came if body["threshold"] == "200%"]
        assert body["forecast"] == 10


@pytest.mark.parametrize("status", [302, *map(sweep, (404, 500))])
async def test_a_webhook_that_refuses_is_reported_and_tried_again_at_the_next_start(
    tmp_path, charges_at_once, monkeypatch, capsys, status
):
    """A redirect is not followed; the run goes on; its notes name the alert, not the address; resuming tries again."""
    monkeypatch.setenv("LIGHTMETER_ALERT_THRESHOLDS", "3")
    works = []

    def answer(_):
        return web.Response() if works else web.Response(status=status, headers={"Location": "/elsewhere"})

    async with hook(monkeypatch, answer) as came, a_run(tmp_path, 4) as run:
        assert run.summary().counts["ok"] == 4
        assert {path for _, path, *_ in came} == {"/hook/SECRET-TOKEN"}
        notes = " ".join(read_run_header(run.folder).notes)
        assert "“spent 3” was not delivered" in notes
        show_summary(run)
        stdout = capsys.readouterr().out
        assert stdout.count("warning: The alert “") == 1
        assert f"was not delivered: HTTP {status}." in stdout
        assert "SECRET" not in notes
        assert set(states(run).values()) == {"failed"}
        works.append("now")
        await lm.aio.resume(run.folder)
        assert set(states(run).values()) == {"delivered"}
        show_summary(run)
        assert "warning" not in capsys.readouterr().out


class SlowJournal(Journal):
    """A journal that writes nothing before `disk_is_free` is set; `is_asked` says that a task waits for it."""

    def __init__(self, folder):
        super().__init__(folder)
        self.disk_is_free, self.is_asked = threading.Event(), asyncio.Event()
        self.submit(lambda _: self.disk_is_free.wait())

    async def write(self, change):
        self.is_asked.set()
        return await super().write(change)


async def test_an_alert_that_is_claimed_as_the_run_ends_is_posted(tmp_path, charges_at_once, monkeypatch):
    """The end of the run waits for the disk that records the claim, and then posts the alert."""
    monkeypatch.setenv("LIGHTMETER_ALERT_THRESHOLDS", "4")
    async with a_run(tmp_path, 5, budget=5) as run, hook(monkeypatch) as came:
        with SlowJournal(run.folder) as journal:
            async with watch_spend(journal, run.header, read_settings(), SystemClock()):
                await journal.is_asked.wait()
                asyncio.get_running_loop().call_later(0.1, journal.disk_is_free.set)
        assert {body["event"].rpartition(".")[2] for *_, body in came} == {"spent", "forecast"}
    assert states(run) == {"spent 4": "delivered", "forecast 4": "delivered"}


async def test_a_claimed_alert_cannot_be_claimed_by_another_process(try_out):
    """An alert that a killed process was sending is not sent again, because it may have been accepted."""
    run, _ = await try_out(Hostile(lambda *_: "well"), rows=1)
    with Journal(run.folder) as journal:
        assert await journal.write(claim_alert(["spent 3", "spent 2"])) == "spent 3"
        assert await journal.write(claim_alert(["spent 3", "spent 2"])) is None


async def test_an_alert_of_a_killed_process_is_reported(try_out, capsys):
    """The user learns that an alert may not have been delivered if the process was killed while it sent the alert."""
    run, _ = await try_out(Hostile(lambda *_: "well"), rows=1)
    with Journal(run.folder) as journal:
        assert await journal.write(claim_alert(["spent 1", "spent 0.5"])) == "spent 1"
    assert states(run) == {"spent 1": "unknown", "spent 0.5": "superseded"}
    show_summary(run)
    assert "warning: The alert “spent 1” may not have been delivered: no answer" in capsys.readouterr().out
    with Journal(run.folder) as journal:  # a message with the same words is no report of an alert
        await journal.write(add_notes(["The alert “spent 2” was not delivered: says the service."]))
        await journal.write(end_alert("spent 1", "delivered", None))
    show_summary(run)
    assert "warning" not in capsys.readouterr().out


async def test_a_webhook_that_never_answers_does_not_stop_the_run(tmp_path, charges_at_once, monkeypatch):
    """The run ends with all rows, and the alert, which may have been accepted, is not sent again."""
    monkeypatch.setenv("LIGHTMETER_ALERT_THRESHOLDS", "1")
    monkeypatch.setattr("lightmeter.run_session.spend_alerts.END_WAIT_S", 0.3)
    stuck = asyncio.Event()

    async def never():
        await stuck.wait()
        return web.Response()

    async with hook(monkeypatch, lambda _: never()) as came, a_run(tmp_path, 3) as run:
        assert run.summary().counts["ok"] == 3
        first = len(came)
        assert set(states(run).values()) == {"unknown"}
        await lm.aio.resume(run.folder)
        assert len(came) == first
        stuck.set()


async def test_private_addresses_need_a_setting(try_out, monkeypatch, caplog):
    """Without the setting, no connection is made to this machine; a warning says so before anything is sent."""
    monkeypatch.setenv("LIGHTMETER_ALERT_THRESHOLDS", "1")
    async with hook(monkeypatch) as came:
        monkeypatch.delenv("LIGHTMETER_ALERT_ALLOW_PRIVATE")
        records_before = []
        hostile = Hostile(lambda *_: records_before.append(len(caplog.records)) or "well")
        run, _ = await try_out(hostile, rows=2)
        assert came == []
    assert records_before[0] == 1
    (record,) = caplog.records
    assert "LIGHTMETER_ALERT_ALLOW_PRIVATE" in record.message
    assert "SECRET" not in record.message
    assert run.summary().counts["ok"] == 2


@pytest.mark.parametrize("url", ["ftp://x.example/", "https://", "https://me:pw@x.example/", "x.example"])
def test_a_wrong_webhook_is_refused_without_showing_it(monkeypatch, url):
    """An address that is no webhook is an error of the settings, whose text does not hold it."""
    monkeypatch.setenv("LIGHTMETER_ALERT_WEBHOOK", url)
    with pytest.raises(SettingsError, match="LIGHTMETER_ALERT_WEBHOOK") as caught:
        read_settings()
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "80%,,", "-1", "1e3", "eighty", "80%%"])
def test_wrong_thresholds_are_refused(monkeypatch, text):
    """A threshold is a percentage or a number of credits; an empty variable counts as not set."""
    monkeypatch.setenv("LIGHTMETER_ALERT_THRESHOLDS", text)
    if not text:
        assert read_settings().alert_thresholds == "80%,100%"
        return
    with pytest.raises(SettingsError, match="neither a percentage"):
        read_settings()


def test_percentages_need_a_budget():
    """Without a budget only thresholds in credits count; a threshold of 0 is never reached."""
    assert [one.label for one in parse_thresholds("80%,500", None)] == ["500"]
    reading = SpendReading(paid=500, held=3, forecast=None, counts={})
    reached = reached_thresholds(parse_thresholds("0%,80%,500,501", 600), reading)
    assert [(kind, [one.label for one in found]) for kind, found in reached] == [("spent", ["500", "80%"])]
