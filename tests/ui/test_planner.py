"""The planner's view-model, without a browser, with the embedded service."""

from __future__ import annotations

import json
import signal
import socket
import threading
from pathlib import Path

import pytest

import lightmeter as lm
from lightmeter.errors import Interrupted, ManifestError, SettingsError, UsageError
from lightmeter.testing import tiny_jpeg
from lightmeter.ui.planner.planner import PlannerView
from lightmeter.ui.planner.planner_facts import PlannerState

MARKUP = '<img src=x onerror="alert(1)">'


def pictures(folder: Path, number: int) -> Path:
    """Write a manifest of small pictures, with a column of two values; return its path."""
    for seed in range(number):
        (folder / f"{seed}.jpg").write_bytes(tiny_jpeg(seed))
    manifest = folder / "pictures.csv"
    manifest.write_text(
        "path,half\n" + "".join(f"{seed}.jpg,{'ab'[seed % 2]}\n" for seed in range(number)), encoding="utf-8"
    )
    return manifest


@pytest.fixture
def one(tmp_path):
    """A manifest of one picture."""
    return pictures(tmp_path, 1)


@pytest.fixture
def many(tmp_path):
    """A manifest of 150 small pictures: enough to stop a run with one request at a time in the middle."""
    return pictures(tmp_path, 150)


def one_by_one(many, out, **options):
    """Return a planner whose run sends one request at a time."""
    return PlannerView(many, out=out, features="colors", budget=1000, max_concurrency=1, precheck=False, **options)


def call_when_running(planner, function):
    """Call `function` once, as soon as the planner shows that the run is in progress."""
    done = threading.Event()

    def on_progress(change):
        if change["new"].get("phase") == "running" and not done.is_set():
            done.set()
            function()

    planner.observe(on_progress, "progress")


def ask(planner, method, **params):
    """Send a request of the page; return the reply."""
    replies = []
    planner.connect(replies.append)
    planner.on_message({"id": 1, "method": method, "params": params})
    return next(reply for reply in replies if reply.get("id") == 1)


def click(planner, method, **params):
    """Send a request of the page and wait for the end of the job that it started."""
    assert "error" not in ask(planner, method, **params)
    return planner.wait()


def total(planner):
    """Return the shown price as (low, high, label)."""
    return tuple(planner.price["credits"].values())


def test_plan_and_run_are_shown(tmp_path):
    """The page shows rows by status, reasons and credits, and texts of data stay data."""
    manifest = tmp_path / "few.jsonl"
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg(1))
    rows = [{"id": "a", "path": "a.jpg"}, {"id": "again", "path": "a.jpg"}, {"id": MARKUP, "path": f"{MARKUP[:9]}.jpg"}]
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    planner = PlannerView(manifest, out=tmp_path / "out", features="colors", budget=50)
    plan = planner.plan().result()
    facts = planner.plan_facts
    assert (facts["name"], facts["rows"], plan.rows) == ("few.jsonl", 3, 3)
    assert [each["words"] for each in facts["counts"]] == ["skipped", "duplicate", "to send"]
    assert {each["status"] for each in facts["reasons"]} == {"skipped", "duplicate"}
    run = planner.run().result()
    assert planner.outcome["message"] == "Done: 1 ok, 1 skipped, 1 duplicate."
    assert planner.outcome["tables"] == str(run.folder / "tables")
    assert (planner.outcome["paid"], planner.outcome["budget"]) == (run.summary().paid, 50)
    assert run.summary().paid in plan.credits
    assert planner.state is PlannerState.IDLE
    assert json.loads(json.dumps(planner.page_state()))["outcome"] == planner.outcome


def test_price_follows_the_form_without_the_manifest(tmp_path):
    """After planning, a change of features or budget updates the price, even if the manifest is deleted."""
    manifest = pictures(tmp_path, 3)
    planner = PlannerView(manifest, out=tmp_path / "out", features="colors", budget=6)
    assert not planner.price["planned"]
    planner.plan().result()
    manifest.unlink()
    assert (total(planner), planner.price["budget_status"]) == ((3, 3, "exact"), "clear")
    planner.set_form(features=planner.choices["features"])
    assert total(planner) == (6, 6, "exact")
    planner.set_form(budget=4)
    assert planner.price["budget_status"] == "reached"
    assert tuple(planner.price["affordable"].values()) == (2, 2, "exact")
    planner.set_form(budget=None)
    assert (planner.price["budget"], planner.price["affordable"]) == (None, None)


def test_a_generator_can_be_planned_again(one, tmp_path):
    """A planner of a generator has its rows also in the second plan."""
    planner = PlannerView((path for path in one.parent.glob("*.jpg")), out=tmp_path / "out", features="colors")
    assert [planner.plan().result().rows for _ in range(2)] == [1, 1]


def test_sentences_of_a_plan_are_shown_only_with_its_options(tmp_path):
    """What the plan says of its budget is not shown beside the price for another budget, or beside an error."""
    planner = PlannerView(pictures(tmp_path, 3), out=tmp_path / "out", features="colors", budget=6)
    planner.plan().result()
    sentences = planner.price["sentences"]
    assert planner.price["is_planned"]
    assert "budget 6 credits: enough for all 3 rows" in " ".join(sentences)
    planner.set_form(budget=1)
    assert (planner.price["is_planned"], planner.price["sentences"]) == (False, [])
    planner.set_form(features=[])
    assert set(planner.price) == {"error"}
    planner.set_form(features=["colors"], budget=6)
    assert planner.price["sentences"] == sentences


def test_price_by_value_adds_up(tmp_path):
    """The price by a manifest column has one line for each value, and the rows add up."""
    planner = PlannerView(pictures(tmp_path, 5), out=tmp_path / "out", features="nsfw")
    planner.plan().result()
    assert planner.columns == ["kind", "half"]
    found = threading.Event()
    planner.observe(lambda change: change["new"].get("values") and found.set(), "price")
    planner.column = "half"
    assert found.wait(20)
    assert [(each["value"], each["rows"]) for each in planner.price["values"]] == [("a", 3), ("b", 2)]


def test_a_changed_form_runs_the_planned_rows(one, tmp_path):
    """A form that is changed after planning runs the planned rows, without reading or checking them again."""
    planner = PlannerView(one, out=tmp_path / "out", features="colors", budget=6)
    planner.plan().result()
    one.unlink()
    planner.set_form(features=["colors", "nsfw"], budget=2)
    run = planner.run().result()
    assert run.summary().counts["ok"] == 1
    assert (run.header.options.features, run.header.options.budget) == (("colors", "nsfw"), 2)
    assert len(run.nsfw) > 0


def test_a_saved_plan_can_be_run(one, tmp_path):
    """A saved plan has the options of the form, and a planner created from it can show and run it."""
    planner = PlannerView(one, out=tmp_path / "out", features="colors")
    with pytest.raises(UsageError, match="no plan to save"):
        planner.save(tmp_path / "plan.json")
    planner.plan().result()
    planner.set_form(budget=4)
    planner.save(tmp_path / "plan.json")
    again = PlannerView(lm.load_plan(tmp_path / "plan.json"), out=tmp_path / "out")
    assert again.form["budget"] == 4
    assert (again.plan_facts["name"], again.plan_facts["rows"]) == ("pictures.csv", 1)
    assert total(again) == (1, 1, "exact")
    assert again.plan().result().rows == 1
    assert again.run().result().summary().counts["ok"] == 1


def test_cached_answers_cost_nothing_until_options_change(one, tmp_path, monkeypatch):
    """Rows with cached answers cost nothing, and cost credits again once the request options change."""
    monkeypatch.setenv("LIGHTMETER_ANSWERS_DIR", str(tmp_path / "answers"))
    PlannerView(one, out=tmp_path / "out", features="colors").run().result()
    planner = PlannerView(one, out=tmp_path / "second", features="colors")
    planner.plan().result()
    assert planner.plan_facts["counts"][0]["words"] == "answered by earlier runs"
    assert (planner.price["rows"]["high"], total(planner)) == (0, (0, 0, "exact"))
    planner.set_form(features=["colors", "nsfw"])
    assert planner.price["rows"]["high"] == 1


def test_no_ticked_feature_is_an_error(tmp_path):
    """Without a ticked feature the page shows an error, and the method raises it."""
    planner = PlannerView(["https://example.org/a.jpg"], out=tmp_path / "out", features="colors")
    planner.set_form(features=[])
    assert planner.price["error"]["message"] == "Tick at least one feature."
    with pytest.raises(UsageError, match="Tick at least one feature"):
        planner.plan()
    assert "Tick at least one feature" in ask(planner, "make_plan")["error"]["message"]
    assert "Tick at least one feature" in planner.error


@pytest.mark.parametrize("form", [{"max_frames": -1}, {"budget": "many"}, {"nothing": 1}, {"sample": "best"}])
def test_invalid_forms_are_errors(form, tmp_path):
    """A form with a value that is not allowed shows an error, and starts nothing."""
    planner = PlannerView(["https://example.org/a.jpg"], out=tmp_path / "out")
    planner.set_form(**form)
    assert planner.price["error"]["message"]
    assert "error" in ask(planner, "make_plan")
    assert planner.state is PlannerState.IDLE


def test_invalid_options_are_rejected_at_creation(tmp_path):
    """An invalid option raises an error when the planner is created."""
    with pytest.raises(SettingsError, match="max-frames"):
        PlannerView("manifest.csv", out=tmp_path, max_frames=-1)


def test_errors_are_shown_and_raised(tmp_path):
    """An unreadable manifest is shown as an error after a click, and raised by the method."""
    planner = PlannerView(tmp_path / "none.csv", out=tmp_path / "out")
    ask(planner, "make_plan")
    with pytest.raises(ManifestError):
        planner.wait()
    assert (planner.outcome["mood"], planner.state) == ("error", PlannerState.IDLE)
    assert "none.csv" in planner.outcome["message"]


def test_consent_is_asked_for(tmp_path, monkeypatch):
    """A run that needs consent is refused until the consent box is ticked; the plan shows why."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    planner = PlannerView(
        ["http://127.0.0.1:9/a.jpg"], out=tmp_path / "out", base_url="http://127.0.0.1:9", precheck=False
    )
    planner.plan().result()
    assert "No back end is named" in planner.price["needs_consent"][0]
    assert planner.offer["balance"] is None
    planner.set_form(budget=3)
    click(planner, "make_plan")
    assert "No back end is named" in ask(planner, "spend", max_credits=planner.offer["credits"])["error"]["message"]
    assert planner.offer["credits"] is not None
    with pytest.raises(UsageError, match="No back end is named"):
        planner.run().result()


def test_stop_loses_nothing(many, tmp_path):
    """A stopped run resumes where it stopped: in the end every row is ok and paid for once."""
    planner = one_by_one(many, tmp_path / "out")
    click(planner, "make_plan")
    call_when_running(planner, lambda: ask(planner, "stop"))
    click(planner, "spend", max_credits=150)
    stopped = planner.result
    assert isinstance(stopped.stopped_by, Interrupted)
    assert stopped.summary().counts["pending"] > 0
    assert "to continue from here" in planner.outcome["hint"]
    paid = stopped.summary().paid
    if paid:
        assert planner.outcome["remaining"]["rows"] == stopped.summary().counts["pending"]
        assert planner.outcome["remaining"]["credits"]["label"] == "estimate"
    click(planner, "make_plan")
    assert (planner.offer["credits"], planner.offer["continues"]) == (150 - paid, True)
    again = click(planner, "spend", max_credits=150 - paid)
    assert again.summary().counts["ok"] == 150
    assert again.summary().paid == 150


def test_an_interrupt_stops_the_run(many, tmp_path, slow_service):
    """An interrupt of `wait` stops the run, waits for requests in flight, and is raised again."""
    service = {"base_url": slow_service.base_url, "backends": "palette", "upload": "always"}
    planner = one_by_one(many, tmp_path / "out", **service)
    main = threading.main_thread().ident
    call_when_running(planner, lambda: signal.pthread_kill(main, signal.SIGINT))
    planner.run()
    with pytest.raises(KeyboardInterrupt):
        planner.wait()
    assert isinstance(planner.result.stopped_by, Interrupted)
    assert planner.result.summary().held == 0
    assert planner.state is PlannerState.IDLE


@pytest.fixture
def silent(tmp_path):
    """A planner of a picture on a server that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/a.jpg"
        yield PlannerView([url], out=tmp_path / "out", features="colors")


def test_planning_can_be_stopped(silent):
    """Stop ends a plan immediately, from any thread, even if a server does not answer, and nothing is spent."""
    ask(silent, "make_plan")
    threading.Thread(target=ask, args=(silent, "stop")).start()
    with pytest.raises(Interrupted):
        silent.wait()
    assert silent.planned is None
    assert "nothing was spent" in silent.outcome["message"]
    assert silent.state is PlannerState.IDLE


def test_a_second_job_is_refused(silent):
    """While one job runs, starting another raises an error; no method blocks."""
    begun = silent.plan()
    assert not begun.done()
    with pytest.raises(UsageError, match="still at work"):
        silent.run()
    silent.stop()
    with pytest.raises(Interrupted):
        begun.result()


def test_only_the_named_credits_can_be_spent(one, tmp_path):
    """The page cannot run anything before a plan, nor for other credits than those of the button."""
    planner = PlannerView(one, out=tmp_path / "out", features="colors", budget=7)
    assert "error" in ask(planner, "spend", max_credits=1)
    click(planner, "make_plan")
    assert planner.offer == {
        "credits": 1,
        "continues": False,
        "price": {"low": 1, "high": 1, "label": "exact"},
        "budget": 7,
        "free": False,
        "balance": 1_000_000_000,
        "command": f"lightmeter run {one} --out {tmp_path / 'out'} --features colors --prices demo --budget 7",
    }
    for method, params in (("spend", {"max_credits": 2}), ("run", {}), ("plan", {}), ("_start", {})):
        assert "error" in ask(planner, method, **params)
    assert (planner.result, (tmp_path / "out").exists()) == (None, False)
    assert click(planner, "spend", max_credits=1).summary().paid == 1
    assert planner.offer == {}


def test_the_accepted_credits_are_the_budget(tmp_path):
    """Without a budget, the accepted number of credits becomes the hard cap of the run."""
    planner = PlannerView(pictures(tmp_path, 3), out=tmp_path / "out", features="colors", precheck=False)
    click(planner, "make_plan")
    assert click(planner, "spend", max_credits=3).header.options.budget == 3


def test_a_changed_form_withdraws_the_offer(one, tmp_path):
    """After a change of the form there is no offer, and the old one spends nothing."""
    planner = PlannerView(one, out=tmp_path / "out", features="colors", budget=7)
    click(planner, "make_plan")
    planner.set_from_page({"form": {**planner.form, "features": ["colors", "nsfw"]}})
    assert planner.offer == {}
    assert "Plan again" in ask(planner, "spend", max_credits=1)["error"]["hint"]
    assert (planner.state, planner.result) == (PlannerState.IDLE, None)


def test_an_unbounded_price_cannot_be_accepted(tmp_path, monkeypatch):
    """A run whose price has no upper end cannot be accepted without a budget."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    planner = PlannerView(
        ["http://127.0.0.1:9/a.mp4"],
        out=tmp_path / "out",
        features="tags",
        backends="clarifai",
        max_frames=0,
        base_url="http://127.0.0.1:9",
        precheck=False,
    )
    click(planner, "make_plan")
    assert (planner.offer["credits"], planner.offer["price"]["high"]) == (None, None)
    assert "error" in ask(planner, "spend", max_credits=0)


def test_unexpected_errors_of_clicks_are_shown(one, tmp_path, monkeypatch):
    """An unexpected exception in a request is shown, and the planner can be used again."""
    planner = PlannerView(one, out=tmp_path / "out", features="colors")
    monkeypatch.setattr(planner._job, "start", lambda _: 1 / 0)
    assert "ZeroDivisionError" in ask(planner, "make_plan")["error"]["message"]
    assert planner.state is PlannerState.IDLE


async def test_methods_work_inside_a_running_loop(one, tmp_path):
    """The methods work in a thread whose event loop is running, as in a notebook."""
    assert PlannerView(one, out=tmp_path / "out", features="colors").plan().result().rows == 1


def test_a_run_folder_can_be_priced_again(one, tmp_path):
    """The planner of a run's folder prices the run's rows for other options, and spends nothing."""
    PlannerView(one, out=tmp_path / "out", features="colors").run().result()
    planner = PlannerView.for_run(tmp_path / "out")
    assert planner.wait().options.features == ("colors",)
    planner.set_form(features=["colors", "nsfw"])
    assert planner.price["rows"]["high"] == 1
    assert planner.may_spend is False
    click(planner, "make_plan", read_again=True)
    credits_ = planner.offer["credits"]
    assert "only prices" in ask(planner, "spend", max_credits=credits_)["error"]["message"]
    with pytest.raises(UsageError, match="only prices"):
        planner.run()


def test_the_price_of_other_options_reads_no_rows(tmp_path):
    """A change of the form computes a new price from counts, without reading the rows again."""
    planner = PlannerView(pictures(tmp_path, 40), out=tmp_path / "out", features="colors")
    plan = planner.plan().result()
    for file in plan.folder.iterdir():
        file.unlink()
    planner.set_form(features=["nsfw"], duplicates="near", sample="random", budget=5)
    assert "error" not in planner.price
