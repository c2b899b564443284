"""The budget planner without a browser, with the embedded service."""

from __future__ import annotations

import signal
import socket
import threading

import pytest
from lightmeter.widgets.planner_html import PlannerState

import lightmeter as lm
from lightmeter.errors import Interrupted, ManifestError, SettingsError, UsageError
from lightmeter.testing import tiny_jpeg


@pytest.fixture
def many(tmp_path):
    """A manifest of 150 small pictures: enough to stop a run with one request at a time in the middle."""
    for seed in range(150):
        (tmp_path / f"{seed}.jpg").write_bytes(tiny_jpeg(seed))
    manifest = tmp_path / "many.csv"
    manifest.write_text("path\n" + "".join(f"{seed}.jpg\n" for seed in range(150)), encoding="utf-8")
    return manifest


def slow(many, out):
    return lm.BudgetPlanner(many, out=out, features="colors", budget=1000, max_concurrency=1, precheck=False)


def call_when_running(planner, function):
    """Call `function` once, as soon as the planner shows that the run is in progress."""
    done = threading.Event()

    def on_status(change):
        if "running" in change["new"] and not done.is_set():
            done.set()
            function()

    planner.panel.status.observe(on_status, "value")


def test_widget_shows_the_rows_of_plan_and_run(planner, run):
    """The widget shows the rows by status, the reasons and the credits that the methods return."""
    assert planner.planned.counts["pending"] == 3
    assert planner.planned.counts["duplicate"] == 1
    assert planner.planned.counts["skipped"] == 1
    assert run.summary().counts["ok"] == 3
    for words in ("few.jsonl: 5 rows", "to send: 3", "duplicate: 1", "same asset"):
        assert words in planner.panel.rows.value
    assert "Done: 3 ok, 1 skipped, 1 duplicate" in planner.panel.outcome.value
    assert str(run.folder / "tables") in planner.panel.outcome.value
    assert f"{run.summary().paid} credits paid of a budget of 50" in planner.panel.outcome.value


def test_form_is_unlocked_after_a_run(planner):
    """After a run, Plan and Run are enabled, Stop is not."""
    assert planner.state is PlannerState.IDLE
    assert not planner.panel.run_button.disabled
    assert not planner.form.max_frames.disabled
    assert planner.panel.stop_button.disabled
    assert planner.panel.bar.value == 1


def test_paid_credits_are_within_the_plan(planner, run):
    """The credits paid are within the range that the plan predicted."""
    assert run.summary().paid in planner.planned.credits


def test_price_follows_the_form_without_the_manifest(tmp_path):
    """After planning, a change of features, frames or budget updates the price, even if the manifest is deleted."""
    for seed in range(3):
        (tmp_path / f"{seed}.jpg").write_bytes(tiny_jpeg(seed))
    manifest = tmp_path / "three.csv"
    manifest.write_text("path\n0.jpg\n1.jpg\n2.jpg\n", encoding="utf-8")
    planner = lm.BudgetPlanner(manifest, out=tmp_path / "out", features="colors", budget=6)
    assert "Plan to learn" in planner.panel.price.value
    planner.plan().result()
    manifest.unlink()
    assert "1 to 3 credits" in planner.panel.price.value
    assert "will not be reached" in planner.panel.price.value
    for box in planner.form.features.values():
        box.value = True
    assert "5 to 6 credits" in planner.panel.price.value
    planner.form.budget.value = 4
    assert "will be reached" in planner.panel.price.value
    planner.form.has_budget.value = False
    assert "No budget" in planner.panel.price.value


def test_a_changed_form_runs_the_planned_rows(tmp_path):
    """A form that is changed after planning runs the planned rows, without reading or checking them again."""
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg(1))
    manifest = tmp_path / "one.csv"
    manifest.write_text("path\na.jpg\n", encoding="utf-8")
    planner = lm.BudgetPlanner(manifest, out=tmp_path / "out", features="colors", budget=6)
    planner.plan().result()
    manifest.unlink()
    planner.form.features["nsfw"].value = True
    planner.form.budget.value = 2
    run = planner.run().result()
    assert run.summary().counts["ok"] == 1
    assert (run.header.options.features, run.header.options.budget) == (("colors", "nsfw"), 2)
    assert len(run.nsfw) > 0


def test_a_saved_plan_can_be_run(tmp_path):
    """A saved plan has the options of the form, and a planner created from it can show and run it."""
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg(1))
    (tmp_path / "one.csv").write_text("path\na.jpg\n", encoding="utf-8")
    planner = lm.BudgetPlanner(tmp_path / "one.csv", out=tmp_path / "out", features="colors")
    with pytest.raises(UsageError, match="no plan to save"):
        planner.save(tmp_path / "plan.json")
    planner.plan().result()
    planner.form.has_budget.value = True
    planner.form.budget.value = 4
    planner.save(tmp_path / "plan.json")
    again = lm.BudgetPlanner(lm.load_plan(tmp_path / "plan.json"), out=tmp_path / "out")
    assert again.form.budget.value == 4
    assert "one.csv: 1 row" in again.panel.rows.value
    assert "1 credit" in again.panel.price.value
    assert again.plan().result().rows == 1
    assert again.run().result().summary().counts["ok"] == 1


def test_cached_answers_cost_nothing_until_options_change(tmp_path, monkeypatch):
    """Rows with cached answers cost nothing, and cost credits again once the request options change."""
    monkeypatch.setenv("LIGHTMETER_ANSWERS_DIR", str(tmp_path / "answers"))
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg(1))
    (tmp_path / "one.csv").write_text("path\na.jpg\n", encoding="utf-8")
    lm.BudgetPlanner(tmp_path / "one.csv", out=tmp_path / "out", features="colors").run().result()
    planner = lm.BudgetPlanner(tmp_path / "one.csv", out=tmp_path / "second", features="colors")
    planner.plan().result()
    assert "answered by earlier runs: 1" in planner.panel.rows.value
    assert "0 rows to send" in planner.panel.price.value
    planner.form.features["nsfw"].value = True
    assert "1 row to send" in planner.panel.price.value


def test_frames_are_priced_by_the_video_duration(manifest, tmp_path):
    """One more frame of a video of known duration is charged as one more image."""
    planner = lm.BudgetPlanner(manifest, out=tmp_path / "out", features="colors", max_frames=1)
    planner.plan().result()
    assert "3 images and frames" in planner.panel.price.value
    planner.form.max_frames.value = 2
    assert "4 images and frames" in planner.panel.price.value


def test_no_ticked_feature_is_an_error(tmp_path):
    """Without a ticked feature the widget shows an error, and the method raises it."""
    planner = lm.BudgetPlanner(["https://example.org/a.jpg"], out=tmp_path / "out", features="colors")
    planner.form.features["colors"].value = False
    assert "Tick at least one feature" in planner.panel.price.value
    with pytest.raises(UsageError, match="Tick at least one feature"):
        planner.plan()
    planner.panel.plan_button.click()
    assert "Tick at least one feature" in planner.panel.outcome.value


def test_invalid_options_are_rejected_at_creation(tmp_path):
    """An invalid option raises an error when the planner is created."""
    with pytest.raises(SettingsError, match="max-frames"):
        lm.BudgetPlanner("manifest.csv", out=tmp_path, max_frames=-1)


def test_errors_are_shown_and_raised(tmp_path):
    """An unreadable manifest is shown as an error after a click, and raised by the method."""
    planner = lm.BudgetPlanner(tmp_path / "none.csv", out=tmp_path / "out")
    with pytest.raises(ManifestError):
        planner.plan().result()
    planner.panel.outcome.value = ""
    planner.panel.plan_button.click()
    with pytest.raises(ManifestError):
        planner.wait()
    assert "none.csv" in planner.panel.outcome.value
    assert planner.state is PlannerState.IDLE


def test_another_service_needs_consent(tmp_path, monkeypatch):
    """A run that needs consent is refused until the consent box is ticked; the plan shows why."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    planner = lm.BudgetPlanner(
        ["http://127.0.0.1:9/a.jpg"], out=tmp_path / "out", base_url="http://127.0.0.1:9", precheck=False
    )
    assert planner.panel.consent.layout.display == "none"
    planner.plan().result()
    assert planner.panel.consent.layout.display == ""
    assert "No back end is named" in planner.panel.rows.value
    with pytest.raises(UsageError, match="No back end is named"):
        planner.run().result()


def test_stop_loses_nothing(many, tmp_path):
    """A stopped run resumes where it stopped: in the end every row is ok and paid for once."""
    planner = slow(many, tmp_path / "out")
    locked = []

    def stop():
        locked.append(planner.form.budget.disabled)
        planner.panel.stop_button.click()

    call_when_running(planner, stop)
    planner.panel.run_button.click()
    planner.wait()
    planner.panel.confirm_button.click()
    planner.wait()
    stopped = planner.result
    assert locked == [True]
    assert not planner.form.budget.disabled
    assert isinstance(stopped.stopped_by, Interrupted)
    assert stopped.summary().counts["pending"] > 0
    assert "continues from here" in planner.panel.outcome.value
    again = planner.run().result()
    assert again.summary().counts["ok"] == 150
    assert again.summary().paid == 150


def test_an_interrupt_stops_the_run(many, tmp_path):
    """An interrupt of `wait` stops the run, waits for requests in flight, and is raised again."""
    planner = slow(many, tmp_path / "out")
    main = threading.main_thread().ident
    call_when_running(planner, lambda: signal.pthread_kill(main, signal.SIGINT))
    planner.run()
    with pytest.raises(KeyboardInterrupt):
        planner.wait()
    assert isinstance(planner.result.stopped_by, Interrupted)
    assert planner.result.summary().held == 0
    assert planner.state is PlannerState.IDLE


def test_planning_can_be_stopped(tmp_path):
    """Stop ends a plan immediately, even if a server does not answer, and nothing is spent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.jpg"
        planner = lm.BudgetPlanner([url], out=tmp_path / "out", features="colors")
        planner.panel.plan_button.click()
        planner.panel.stop_button.click()
        with pytest.raises(Interrupted):
            planner.wait()
    assert planner.planned is None
    assert "nothing was spent" in planner.panel.outcome.value
    assert planner.state is PlannerState.IDLE


def test_a_second_job_is_refused(tmp_path):
    """While one job runs, starting another raises an error."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.jpg"
        planner = lm.BudgetPlanner([url], out=tmp_path / "out", features="colors")
        planner.panel.plan_button.click()
        with pytest.raises(UsageError, match="still at work"):
            planner.run()
        planner.stop()
        with pytest.raises(Interrupted):
            planner.wait()


@pytest.fixture
def one(tmp_path):
    """A manifest of one picture."""
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg(1))
    (tmp_path / "one.csv").write_text("path\na.jpg\n", encoding="utf-8")
    return tmp_path / "one.csv"


def test_run_spends_nothing_until_it_is_confirmed(one, tmp_path):
    """A click on Run asks with price and cap; only the button that names the credits spends."""
    planner = lm.BudgetPlanner(one, out=tmp_path / "out", features="colors", budget=7)
    assert planner.panel.confirm.layout.display == "none"
    planner.panel.run_button.click()
    planner.wait()
    assert planner.result is None
    assert not (tmp_path / "out").exists()
    assert planner.panel.confirm.layout.display == ""
    assert planner.panel.confirm_button.description == "Spend up to 1 credit"
    assert "Price: 1 credit; the budget of 7" in planner.panel.question.value
    planner.panel.confirm_button.click()
    planner.wait()
    assert planner.result.summary().paid == 1
    assert planner.panel.confirm.layout.display == "none"


def test_the_confirmed_credits_are_the_budget(many, tmp_path):
    """Without a budget, the confirmed number of credits becomes the hard cap of the run."""
    planner = lm.BudgetPlanner(many, out=tmp_path / "out", features="colors", precheck=False)
    planner.panel.run_button.click()
    planner.wait()
    assert planner.panel.confirm_button.description == "Spend up to 150 credits"
    planner.panel.confirm_button.click()
    planner.wait()
    assert planner.result.header.options.budget == 150


def test_a_changed_form_withdraws_the_question(one, tmp_path):
    """After a change of the form, the old confirm button spends nothing, and Run asks again."""
    planner = lm.BudgetPlanner(one, out=tmp_path / "out", features="colors", budget=7)
    planner.panel.run_button.click()
    planner.wait()
    planner.form.features["nsfw"].value = True
    assert planner.panel.confirm.layout.display == "none"
    planner.panel.confirm_button.click()
    assert "Click Run again" in planner.panel.outcome.value
    assert (planner.state, planner.result) == (PlannerState.IDLE, None)


def test_an_unbounded_price_cannot_be_confirmed(tmp_path, monkeypatch):
    """A run whose price has no upper end cannot be confirmed without a budget."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    planner = lm.BudgetPlanner(
        ["http://127.0.0.1:9/a.mp4"],
        out=tmp_path / "out",
        features="tags",
        backends="clarifai",
        max_frames=0,
        base_url="http://127.0.0.1:9",
        precheck=False,
    )
    planner.panel.run_button.click()
    with pytest.raises(UsageError, match="no upper end"):
        planner.wait()
    assert planner.panel.confirm.layout.display == "none"
    assert "Set a budget" in planner.panel.outcome.value


def test_methods_return_immediately(tmp_path):
    """No method blocks: a kernel that executes a cell may not process a click on Stop."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.jpg"
        planner = lm.BudgetPlanner([url], out=tmp_path / "out", features="colors")
        begun = planner.run()
        assert not begun.done()
        planner.panel.stop_button.click()
        with pytest.raises(Interrupted):
            begun.result()


def test_unexpected_errors_of_clicks_are_shown(one, tmp_path, monkeypatch):
    """An unexpected exception in a callback is shown in the widget."""
    planner = lm.BudgetPlanner(one, out=tmp_path / "out", features="colors")
    monkeypatch.setattr(planner._job, "start", lambda _: 1 / 0)
    planner.panel.plan_button.click()
    assert "ZeroDivisionError" in planner.panel.outcome.value


async def test_methods_work_inside_a_running_loop(manifest, tmp_path):
    """The methods work in a thread whose event loop is running, as in a notebook."""
    plan = lm.BudgetPlanner(manifest, out=tmp_path / "out", features="colors").plan().result()
    assert plan.rows == 5


def test_data_is_escaped(planner):
    """A row whose name is HTML markup is shown as text."""
    assert "<img src=x" not in planner.panel.rows.value
    assert "&lt;img src=x" in planner.panel.rows.value


def test_text_representation(planner):
    """A viewer without widgets shows one line of text about the planner."""
    bundle = planner._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"].startswith("BudgetPlanner(out=")
