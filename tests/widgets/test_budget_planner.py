"""The planner, driven without a browser, against the embedded service."""

from __future__ import annotations

import signal
import socket
import threading

import pytest

import lightmeter as lm
from lightmeter.errors import Interrupted, ManifestError, SettingsError, UsageError
from lightmeter.testing import tiny_jpeg
from lightmeter.widgets.planner_html import PlannerState


@pytest.fixture
def many(tmp_path):
    """A manifest of so many small pictures that a run of one request at a time can be stopped in its midst."""
    for seed in range(150):
        (tmp_path / f"{seed}.jpg").write_bytes(tiny_jpeg(seed))
    manifest = tmp_path / "many.csv"
    manifest.write_text("path\n" + "".join(f"{seed}.jpg\n" for seed in range(150)), encoding="utf-8")
    return manifest


def slow(many, out):
    return lm.BudgetPlanner(many, out=out, features="colors", budget=1000, max_concurrency=1, precheck=False)


def at_the_first_step_of_a_run(planner, act):
    """Call `act` once, as soon as the planner shows that a run has begun to work."""
    done = threading.Event()

    def look(change):
        if "running" in change["new"] and not done.is_set():
            done.set()
            act()

    planner.panel.status.observe(look, "value")


def test_plan_and_run_tell_where_every_row_stands(planner, run):
    """What the methods return is what the widget shows: rows by outcome, with reasons, and the price."""
    assert planner.planned.counts["pending"] == 3
    assert planner.planned.counts["duplicate"] == 1
    assert planner.planned.counts["skipped"] == 1
    assert run.summary().counts["ok"] == 3
    for words in ("few.jsonl: 5 rows", "to send: 3", "duplicate: 1", "same asset"):
        assert words in planner.panel.rows.value
    assert "Done: 3 ok, 1 skipped, 1 duplicate" in planner.panel.outcome.value
    assert str(run.folder / "tables") in planner.panel.outcome.value
    assert f"{run.summary().paid} credits paid of a budget of 50" in planner.panel.outcome.value


def test_end_of_a_run_leaves_the_form_free(planner):
    """When a run is over one can plan and run again, and nothing can be stopped."""
    assert planner.state is PlannerState.IDLE
    assert not planner.panel.run_button.disabled
    assert not planner.form.max_frames.disabled
    assert planner.panel.stop_button.disabled
    assert planner.panel.bar.value == 1


def test_paid_is_within_what_was_planned(planner, run):
    """The run cost what the plan's range allows."""
    assert run.summary().paid in planner.planned.credits


def test_prices_follow_the_form_without_the_manifest(tmp_path):
    """After planning, a change of features, frames or budget is priced at once; the manifest may even be gone."""
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
    """What the form asks for after planning is run with no row read or looked at again."""
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


def test_a_plan_is_saved_and_taken_up_again(tmp_path):
    """A plan file is what the form says now, and a planner made of it shows and runs it without the manifest's rows."""
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


def test_earlier_answers_leave_the_price_as_long_as_the_same_is_asked(tmp_path, monkeypatch):
    """Rows that an earlier run paid for cost nothing, and cost again once something else is asked."""
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


def test_frames_are_priced_from_the_clips_length(manifest, tmp_path):
    """More frames of a clip whose length was measured cost exactly as many more pictures."""
    planner = lm.BudgetPlanner(manifest, out=tmp_path / "out", features="colors", max_frames=1)
    planner.plan().result()
    assert "3 images and frames" in planner.panel.price.value
    planner.form.max_frames.value = 2
    assert "4 images and frames" in planner.panel.price.value


def test_nothing_ticked_is_not_everything(tmp_path):
    """Without a feature ticked there is nothing to plan: the widget says so, the method raises it."""
    planner = lm.BudgetPlanner(["https://example.org/a.jpg"], out=tmp_path / "out", features="colors")
    planner.form.features["colors"].value = False
    assert "Tick at least one feature" in planner.panel.price.value
    with pytest.raises(UsageError, match="Tick at least one feature"):
        planner.plan()
    planner.panel.plan_button.click()
    assert "Tick at least one feature" in planner.panel.outcome.value


def test_wrong_options_are_told_at_once(tmp_path):
    """An option that is wrong is said when the planner is made, as `plan` says it."""
    with pytest.raises(SettingsError, match="max-frames"):
        lm.BudgetPlanner("manifest.csv", out=tmp_path, max_frames=-1)


def test_errors_are_shown_and_raised(tmp_path):
    """A manifest that cannot be read is shown after a click, and raised by the method."""
    planner = lm.BudgetPlanner(tmp_path / "none.csv", out=tmp_path / "out")
    with pytest.raises(ManifestError):
        planner.plan().result()
    planner.panel.outcome.value = ""
    planner.panel.plan_button.click()
    with pytest.raises(ManifestError):
        planner.wait()
    assert "none.csv" in planner.panel.outcome.value
    assert planner.state is PlannerState.IDLE


def test_another_service_needs_a_yes(tmp_path, monkeypatch):
    """What a run would do silently is shown by the plan, and refused until the box is ticked."""
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
    """After Stop the run goes on where it was: in the end every row is ok and paid for once."""
    planner = slow(many, tmp_path / "out")
    locked = []

    def stop():
        locked.append(planner.form.budget.disabled)
        planner.panel.stop_button.click()

    at_the_first_step_of_a_run(planner, stop)
    planner.panel.run_button.click()
    planner.wait()
    planner.panel.confirm_button.click()
    planner.wait()
    stopped = planner.result
    assert locked == [True]
    assert not planner.form.budget.disabled
    assert isinstance(stopped.stopped_by, Interrupted)
    assert stopped.summary().counts["pending"] > 0
    assert "goes on from here" in planner.panel.outcome.value
    again = planner.run().result()
    assert again.summary().counts["ok"] == 150
    assert again.summary().paid == 150


def test_an_interrupt_stops_as_the_button_does(many, tmp_path):
    """Interrupting a blocking run waits for what is in flight, and then raises the interrupt."""
    planner = slow(many, tmp_path / "out")
    main = threading.main_thread().ident
    at_the_first_step_of_a_run(planner, lambda: signal.pthread_kill(main, signal.SIGINT))
    planner.run()
    with pytest.raises(KeyboardInterrupt):
        planner.wait()
    assert isinstance(planner.result.stopped_by, Interrupted)
    assert planner.result.summary().held == 0
    assert planner.state is PlannerState.IDLE


def test_planning_can_be_stopped(tmp_path):
    """Stop ends a plan at once, though a server keeps it waiting, and says that nothing was spent."""
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


def test_two_jobs_at_once_are_refused(tmp_path):
    """While one thing goes on another cannot be started."""
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


def test_run_shows_the_price_and_spends_nothing_until_it_is_confirmed(one, tmp_path):
    """The first click asks with the price and the cap, the second, on a button that names the credits, spends."""
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


def test_what_the_button_names_is_the_cap(many, tmp_path):
    """Without a budget the amount that was confirmed is the hard cap of the run."""
    planner = lm.BudgetPlanner(many, out=tmp_path / "out", features="colors", precheck=False)
    planner.panel.run_button.click()
    planner.wait()
    assert planner.panel.confirm_button.description == "Spend up to 150 credits"
    planner.panel.confirm_button.click()
    planner.wait()
    assert planner.result.header.options.budget == 150


def test_a_changed_form_takes_the_question_back(one, tmp_path):
    """Whoever changes the form after the price was shown is asked anew: the old button spends nothing."""
    planner = lm.BudgetPlanner(one, out=tmp_path / "out", features="colors", budget=7)
    planner.panel.run_button.click()
    planner.wait()
    planner.form.features["nsfw"].value = True
    assert planner.panel.confirm.layout.display == "none"
    planner.panel.confirm_button.click()
    assert "Click Run again" in planner.panel.outcome.value
    assert (planner.state, planner.result) == (PlannerState.IDLE, None)


def test_a_price_without_an_end_is_not_offered(tmp_path, monkeypatch):
    """A run of unknown price cannot be confirmed before it has a cap."""
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


def test_methods_return_at_once(tmp_path):
    """No method waits by itself: a kernel that runs a cell may not hear of a click on Stop."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.jpg"
        planner = lm.BudgetPlanner([url], out=tmp_path / "out", features="colors")
        begun = planner.run()
        assert not begun.done()
        planner.panel.stop_button.click()
        with pytest.raises(Interrupted):
            begun.result()


def test_whatever_a_click_raises_is_shown(one, tmp_path, monkeypatch):
    """Also an error that is none of ours stands in the widget: nobody sees what a callback raises."""
    planner = lm.BudgetPlanner(one, out=tmp_path / "out", features="colors")
    monkeypatch.setattr(planner._job, "start", lambda _: 1 / 0)
    planner.panel.plan_button.click()
    assert "ZeroDivisionError" in planner.panel.outcome.value


async def test_methods_work_inside_a_running_loop(manifest, tmp_path):
    """In a notebook a loop runs in the calling thread: the methods work there too."""
    plan = lm.BudgetPlanner(manifest, out=tmp_path / "out", features="colors").plan().result()
    assert plan.rows == 5


def test_text_of_the_data_is_never_markup(planner):
    """A row called like an element is shown as text."""
    assert "<img src=x" not in planner.panel.rows.value
    assert "&lt;img src=x" in planner.panel.rows.value


def test_shown_as_text_where_there_are_no_widgets(planner):
    """A notebook that is only read has a line that says what this was."""
    bundle = planner._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"].startswith("BudgetPlanner(out=")
