"""The live page of a run: snapshots from the journal alone, while a process writes to it and after its end."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from lightmeter.journal.commands.submissions import acknowledge, hold_and_send, mark_over_budget
from lightmeter.journal.queries.live import Activity
from lightmeter.journal.store import Journal
from lightmeter.ui.live.live_run import LiveRunView
from lightmeter.ui.live.run_history import MAX_POINTS, RunHistory
from lightmeter.ui.live.run_monitor import RunMonitor
from lightmeter.ui.live.run_snapshot import SnapshotReader
from lightmeter.ui.web.run_views import run_views
from lightmeter.ui.web.web_server import WebView


@pytest.fixture
def folder(run, tmp_path) -> Path:
    """A copy of the run's folder, which a test may change."""
    return Path(shutil.copytree(run.folder, tmp_path / "out"))


def make_pending(journal: Journal) -> None:
    """Let one row of the manifest wait to be sent."""
    journal.submit(
        lambda db: db.execute("UPDATE items SET status = 'pending', submission_id = NULL WHERE seq = 1").get
    ).result()


def settled_snapshot(reader: SnapshotReader):
    """Read until nothing is added to the snapshot any more, such as the next steps of a run that ended."""
    reader.read()
    reader.read()
    return reader.read()


def test_finished_run(run):
    """Rows, credits and reasons of a finished run are those of `status`; its chart ends at the credits paid."""
    snapshot, summary = settled_snapshot(SnapshotReader(run.folder)), run.summary()
    assert (snapshot["state"], snapshot["phase"]) == ("finished", "done")
    assert snapshot["rows"] == {"total": summary.rows, "counts": summary.counts}
    assert (snapshot["credits"]["paid"], snapshot["credits"]["budget"]) == (summary.paid, 50)
    assert snapshot["requests"]["sent"] == summary.requests
    assert snapshot["history"]["points"][-1][2] == summary.paid
    assert snapshot["next_steps"] == run.next_steps()
    assert {(each["status"], each["reason"], each["rows"]) for each in snapshot["reasons"]} == {
        (each.status, each.reason, each.rows) for each in run.reasons() if each.status != "duplicate"
    }
    assert "tags" in snapshot["tables"]
    assert json.loads(json.dumps(snapshot))["eta_s"] is None


def test_run_of_another_process_is_followed(folder):
    """While a process holds the run, what it sends, and answers that wait with their deadline, are in the snapshot."""
    reader = SnapshotReader(folder)
    before = reader.read()
    with Journal(folder) as journal:
        make_pending(journal)
        number = journal.submit(hold_and_send([1], 3, None, time.time())).result()
        sending = reader.read()
        journal.submit(acknowledge(number, "request-7", 1_000_000.0)).result()
        waiting = reader.read()
        assert {**reader.read(), "rates": None} == {**waiting, "rates": None}
    assert (sending["state"], sending["phase"]) == ("running", "collecting")
    assert sending["requests"]["sent"] == before["requests"]["sent"] + 1
    assert sending["requests"]["open"] == [{"state": "sent", "requests": 1, "rows": 1, "credits": 3}]
    assert (sending["credits"]["held"], sending["rows"]["counts"]["pending"]) == (3, 1)
    assert waiting["waiting"]["first"] == [{"request_id": "request-7", "rows": 1, "until": 1_000_000.0 + 24 * 3600}]
    stopped = settled_snapshot(reader)
    assert stopped["state"] == "stopped"
    assert f"Resume with: lightmeter resume {folder}" in stopped["message"]
    assert any("can be collected" in step for step in stopped["next_steps"])


def limit_reached(folder: Path) -> None:
    """Leave one row of the run over budget."""
    with Journal(folder) as journal:
        make_pending(journal)
        journal.submit(mark_over_budget("budget", 0, 1 << 62)).result()


def test_run_stopped_by_the_budget(folder):
    """A run with rows over budget is not finished; the command that pays for them and an example are there at once."""
    limit_reached(folder)
    snapshot = SnapshotReader(folder).read()
    assert (snapshot["state"], snapshot["phase"]) == ("stopped", "sending")
    assert "1 row over budget was not sent" in snapshot["message"]
    assert any(f"lightmeter resume {folder} --budget 51" in step for step in snapshot["next_steps"])
    assert ["coffee" in each["example"] for each in snapshot["reasons"] if each["status"] == "over_budget"] == [True]


def test_new_run_in_the_folder_replaces_the_old_one(folder, run):
    """If the journal is replaced by that of another run, the snapshot has nothing of the former one."""
    reader = SnapshotReader(folder)
    assert reader.read()["requests"]["sent"] == run.summary().requests
    with Journal(folder) as journal:
        journal.submit(
            lambda db: (
                db.execute(
                    "UPDATE meta SET value = 'other' WHERE key = 'run_id'; DELETE FROM transitions; "
                    "UPDATE items SET submission_id = NULL, status = 'pending'; DELETE FROM answers; "
                    "DELETE FROM submissions; "
                    "UPDATE money SET paid = 0"
                ).get
            )
        ).result()
    snapshot = settled_snapshot(reader)
    assert (snapshot["run_id"], snapshot["requests"]["sent"], snapshot["history"]["points"]) == ("other", 0, [])
    assert snapshot["state"] == "planned"


def test_deleted_folder_is_an_error_until_it_is_back(folder, tmp_path):
    """While the folder is missing the snapshot is an error with a hint; then the run is shown again."""
    reader = SnapshotReader(folder)
    assert reader.read()["state"] == "finished"
    folder.rename(tmp_path / "away")
    assert "holds no run" in reader.read()["error"]["message"]
    (tmp_path / "away").rename(folder)
    assert reader.read()["state"] == "finished"


def test_reading_keeps_no_lock(folder):
    """Between two snapshots no file of the run is open, so that a new run can replace the journal at any time."""
    reader = SnapshotReader(folder)
    reader.read()
    opened = [path.resolve() for path in Path("/proc/self/fd").iterdir() if path.exists()]
    assert [path for path in opened if folder in path.parents] == []


def test_monitor_passes_on_changes_alone(folder):
    """A receiver gets one snapshot of a run that does not change, and a new one of a run that does; the thread ends."""
    received, changed = [], threading.Event()
    unsubscribe = RunMonitor(folder, interval_s=0.01).subscribe(lambda each: (received.append(each), changed.set()))
    deadline = time.monotonic() + 20
    while (not received or received[-1]["next_steps"] == []) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    assert [each["state"] for each in received] == ["finished"] * len(received)
    assert len(received) <= 2  # without and with what is left to do
    event_count = len(received)
    changed.clear()
    with Journal(folder):
        assert changed.wait(20)
    unsubscribe()
    assert received[event_count]["state"] == "running"
    for thread in threading.enumerate():
        if thread.name == "lightmeter-run-monitor":
            thread.join(20)
            assert not thread.is_alive()


def test_history_merges_intervals():
    """A long run has at most so many points, and none of its rows and credits is lost."""
    history = RunHistory()
    for second in range(0, 100_000, 50):
        history.add([Activity(second, 1, 0, 1, 2, 3)])
    points = history.points()
    assert len(points) <= MAX_POINTS
    assert points[-1][1:] == (4_000, 6_000)
    assert history.sent == 2_000
    assert points == sorted(points)


def test_time_left_is_a_range():
    """The range of the time left contains the estimate; with few answers it has no upper bound."""
    history = RunHistory()
    history.add(Activity(second, 1, 0, 1, 2, 2) for second in range(60))
    rates = history.recent_rates(60.0, 0.0)
    low, high = rates.seconds_for(120)
    assert low < 60 < high
    capped_low, capped_high = rates.seconds_for(120, 30)  # pays for 30 rows
    assert capped_low < 15 < capped_high < low + high
    few = RunHistory()
    few.add([Activity(59, 1, 0, 1, 1, 1)])
    assert few.recent_rates(60.0, 0.0).seconds_for(10)[1] is None
    assert few.recent_rates(200.0, 0.0).seconds_for(10) is None


def test_live_page(folder, serve_views, page):
    """The page shows the run while a process holds it and after it let go of it, without being loaded again."""
    views = run_views(folder)
    with Journal(folder) as journal:
        make_pending(journal)
        page.goto(serve_views({"run": views["run"]}))
        expect(page.locator(".lm-state")).to_contain_text("Running", timeout=20_000)
        expect(page.locator("[aria-current=step]")).to_contain_text("Send")
        expect(page.locator(".lm-legend").first).to_contain_text("pending 1")
    expect(page.locator(".lm-state")).to_contain_text("Stopped", timeout=20_000)
    expect(page.locator(".lm-live-head")).to_contain_text(f"Resume with: lightmeter resume {folder}")
    expect(page.get_by_role("img", name="Credits left of the budget")).to_be_visible()


def test_unknown_time_left_has_no_range(folder, serve_views, page):
    """While the time left is not known, the page does not call it a 95 % range."""
    view = LiveRunView(folder)
    view.close_view()
    snapshot = SnapshotReader(folder).read()
    counts = {**snapshot["rows"]["counts"], "pending": 1}
    view.snapshot = {
        **snapshot,
        "state": "running",
        "rows": {"total": 6, "counts": counts},
        "eta_s": None,
        "error": None,
    }
    page.goto(serve_views({"run": WebView("Run", lambda: view)}))
    expect(page.locator(".lm-figure", has_text="Time left")).to_have_text("Time leftnot known", timeout=20_000)


def test_live_page_of_a_run_stopped_by_the_budget(folder, serve_views, page):
    """The badge names the rows over budget, no step after sending is ticked, and a short run's times have seconds."""
    limit_reached(folder)
    page.goto(serve_views({"run": run_views(folder)["run"]}))
    expect(page.locator(".lm-state")).to_have_text("■ Stopped: 1 row over budget", timeout=20_000)
    expect(page.locator("[aria-current=step]")).to_contain_text("Send")
    expect(page.locator(".lm-past")).to_have_count(1)
    expect(page.locator(".lm-chart text").last).to_have_text(re.compile(r"\d\d:\d\d:\d\d"))
