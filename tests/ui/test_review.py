"""The review: decisions that no kill, undo or second page loses, and its page by keyboard alone."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from playwright.sync_api import expect

import lightmeter as lm
from lightmeter.export.export_tables import export_tables
from lightmeter.export.review_table import export_reviews
from lightmeter.journal.reviews import read_reviews
from lightmeter.tables import Dataset
from lightmeter.tables.arrow.schema import schema
from lightmeter.tables.compaction import compact
from lightmeter.ui.review.review import NO_RATINGS, READ_ONLY, ReviewView
from lightmeter.ui.review.review_queue import UNRATED, Choice, ReviewQueue
from lightmeter.ui.web.web_server import WebView
from tests.sweeps import sweep
from tests.tables.replace_table import replace_table

SEVERITIES = {
    "chelsea": {"red": 0.9, "green": 0.2},
    "coffee": {"red": 0.7, "green": 0.8},
    "samoyed": {"red": 0.1, "green": 0.6},
    "again": {"red": 0.05, "green": None},
}
QUEUE = ["chelsea", "coffee", "samoyed"]
"""The items that a back end rates at least .5, in the order of their highest severity."""


def copy_of(run, folder: Path, suffix: str = "") -> Path:
    """Copy a run to a folder, with the ratings of `SEVERITIES`, whose sources get a suffix, in place of its own."""
    shutil.copytree(run.folder, folder)
    rows = [
        {"item_id": item, "url": item, "run_id": "r", "label": "nsfw", "severity": severity, "source": source + suffix}
        for item, by_source in SEVERITIES.items()
        for source, severity in by_source.items()
    ]
    with replace_table(Dataset(folder), "nsfw", schema("nsfw")) as writer:
        writer.write(pa.Table.from_pylist(rows, schema=schema("nsfw")))
    return folder


@pytest.fixture
def out(run, tmp_path) -> Path:
    """A folder with a run of its own, whose decisions a test may change."""
    return copy_of(run, tmp_path / "out")


def opened(folder, **options) -> ReviewView:
    """Return a review that has read its ratings, with the default queue."""
    view = ReviewView(folder, **options)
    view.wait()
    return view


def test_queue_is_ordered_by_severity_or_disagreement(out):
    """The queue holds the items at or above a threshold, worst first, or where the back ends differ most first."""
    view = opened(out)
    found = view.choose({"red": 0.5, "green": 0.5})
    assert (found["flagged"], found["disputed"]) == (3, 2)
    assert [(pair["only_one"], pair["only_other"], pair["both"]) for pair in found["pairs"]] == [(1, 1, 1)]
    assert [item["item_id"] for item in view.window(0, 9)["items"]] == QUEUE
    view.choose({"red": 0.5, "green": 0.5}, "disputed", "disagreement")
    assert [item["item_id"] for item in view.window(0, 9)["items"]] == ["chelsea", "samoyed"]
    assert view.choose({"red": 1.0, "green": 0.81})["flagged"] == 0
    view.choose({"red": 0.5, "green": 0.5}, "below")
    assert [item["item_id"] for item in view.window(0, 9)["items"]] == ["again"]


def test_histograms_count_every_rated_item(out):
    """The counts at a threshold follow from one histogram of each back end."""
    view = opened(out)
    histograms = {source["name"]: source["histogram"] for source in view.sources}
    assert {name: sum(counts) for name, counts in histograms.items()} == {"red": 4, "green": 3}
    assert histograms["red"][90] == histograms["green"][80] == 1


def test_an_empty_queue_says_why(out):
    """A queue without items names the highest severity, or says that all items are decided or that none is."""
    view = opened(out)
    assert view.choose({"red": 0.5, "green": 0.5})["empty"] == ""
    assert view.choose({"red": 0.95, "green": 0.95})["empty"] == (
        "No item reaches 0.95; the highest severity is 0.90: lower a threshold."
    )
    assert view.choose({"red": 1.0, "green": 0.85}, "disputed")["empty"] == (
        "No item reaches a threshold; the highest severities are green 0.80, red 0.90: lower a threshold."
    )
    assert view.choose({"red": 0, "green": 0}, "below")["empty"] == "Every item is at or above a threshold: raise one."
    assert view.choose({"red": 0, "green": 0}, "disputed")["empty"].startswith("The back ends disagree about no item")
    assert view.choose({}, state="decided")["empty"] == "No item of this queue is decided yet."
    for item in QUEUE:
        view.decide(item, "keep")
    assert view.choose({}, state="undecided")["empty"] == "All 3 items of this queue are decided."


def test_an_empty_queue_has_nothing_to_open(out, serve_views, page):
    """Without an item, the page says why and the buttons of the item are disabled."""
    page.goto(serve_views({"review": WebView("Review", lambda: ReviewView(out))}))
    expect(page.locator(".lm-large img")).to_have_attribute("alt", "chelsea.jpg, blurred", timeout=30_000)
    for name in ("red", "green"):
        page.get_by_role("slider", name=f"Threshold of {name}").press("End")
    expect(page.get_by_text("No item reaches 1.00; the highest severity is 0.90")).to_be_visible()
    for name in ("Keep", "Show", "Details"):
        expect(page.get_by_role("button", name=name, exact=False).first).to_be_disabled()


def test_counts_of_pairs_are_those_of_a_loop():
    """Flags, disagreement and order are those that a loop over random ratings gives."""
    chance = np.random.default_rng(7)
    percents = chance.choice([0, 30, 50, 51, 99, UNRATED], (200, 3)).astype(np.uint8)
    queue = ReviewQueue("abc", pa.array([str(row) for row in range(200)]), percents)
    queue.choose(Choice({"a": 0.5, "b": 0.51, "c": 0.3}, "disputed", "disagreement"))
    rated = [
        [(value, least) for value, least in zip(row, (50, 51, 30), strict=True) if value != UNRATED]
        for row in percents.tolist()
    ]
    flags = [[value >= least for value, least in row] for row in rated]
    assert queue.totals()["flagged"] == sum(map(any, flags))
    assert queue.totals()["disputed"] == sum(any(row) and not all(row) for row in flags) == len(queue.rows)
    values = [[value for value, _ in rated[row]] for row in queue.rows]
    assert [max(row) - min(row) for row in values] == sorted((max(row) - min(row) for row in values), reverse=True)


def test_all_undecided_items_are_decided_after_a_confirmed_number(out):
    """A decision about many items needs their number, leaves decided items alone, and is undone as a whole."""
    view = opened(out)
    view.choose({"red": 0.5, "green": 0.5})
    view.decide("coffee", "reject")
    events = []
    view.connect(events.append)
    with pytest.raises(lm.LightmeterError, match="There are now 2 such items, not 3"):
        view.decide_all("above", "keep", 3)
    view.decide_all("above", "keep", view.count_undecided("above"))
    deadline = time.monotonic() + 30
    while not events and time.monotonic() < deadline:
        time.sleep(0.01)
    assert view.progress == {"items": 3, "decided": 3, "undecided": 0, "keep": 2, "reject": 1, "unsure": 0}
    assert sorted(view.undo(events[0]["value"]["batch"])) == ["chelsea", "samoyed"]
    assert view.progress["undecided"] == 2


def test_table_follows_within_seconds_and_at_the_close(out):
    """The table `reviews` has a decision soon after it, and at once when the view is closed."""
    view = opened(out)
    view.user = "Ann"
    view.decide("coffee", "reject", "too bright")
    view.close_view()
    (row,) = lm.open(out).table("reviews").to_pylist()
    assert (row["item_id"], row["frame"], row["decision"]) == ("coffee", None, "reject")
    assert (row["reviewer"], row["note"]) == ("Ann", "too bright")
    view.decide("coffee", "keep")
    deadline = time.monotonic() + 30
    while lm.open(out).sql("SELECT decision FROM reviews")["decision"].tolist() != ["keep"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_rebuild_and_compact_keep_the_decisions(out):
    """Neither a rebuild, with or without the old tables, nor a compaction loses a decision."""
    view = opened(out)
    view.decide("chelsea", "unsure")
    shutil.rmtree(out / "tables")
    assert export_tables(out, rewrite_all=True)["reviews"] == 1
    compact(Dataset(out))
    assert export_tables(out)["reviews"] == 1
    assert lm.open(out).reviews["decision"].tolist() == ["unsure"]
    assert "tables/reviews/*.parquet" in (out / "views.sql").read_text()


def test_a_kill_between_decision_and_export_loses_nothing(out):
    """A process that is killed right after a decision leaves it to the next page, and to a rebuild."""
    script = (
        "import os, signal, sys; from lightmeter.ui.review.review import ReviewView; view = ReviewView(sys.argv[1]); "
        "view.wait(); view.user = 'Ann'; view.decide('coffee', 'keep'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(out)], check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    view = opened(out)
    assert view.window(0, 9)["items"][1]["review"]["decision"] == "keep"
    assert lm.open(out).reviews["item_id"].tolist() == ["coffee"]


def test_read_only_pages_refuse_decisions(out):
    """A page without the permission shows decisions and writes nothing, whatever the page sends."""
    view = opened(out, may_write=False)
    assert view.note == READ_ONLY
    assert "--allow-review" in READ_ONLY
    for call in (
        lambda: view.decide("coffee", "keep"),
        lambda: view.undo(1),
        lambda: view.decide_all("above", "keep", 3),
    ):
        with pytest.raises(lm.LightmeterError, match="--allow-review"):
            call()
    assert not (out / "reviews.sqlite").exists()


def test_a_run_without_ratings_says_so(out):
    """A run whose back ends rated nothing gets a sentence, and nothing to decide."""
    with replace_table(Dataset(out), "nsfw", schema("nsfw")) as writer:
        writer.write(schema("nsfw").empty_table())
    view = opened(out)
    assert view.note == NO_RATINGS
    assert view.choose({})["pairs"] == []
    assert view.window(0, 9)["items"] == []


class Decisions(RuleBasedStateMachine):
    """Two pages decide, undo and are closed or replaced, in any order; a list of all decisions is the model."""

    run: lm.Run

    @initialize()
    def start(self):
        self.temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.folder = copy_of(self.run, Path(self.temporary.name) / "out")
        self.decisions: dict[int, tuple[list[str], str]] = {}
        self.pages = [opened(self.folder), opened(self.folder)]
        self.queues = [QUEUE, QUEUE]

    def valid(self):
        return {item: decision for _, (items, decision) in sorted(self.decisions.items()) for item in items}

    @rule(
        page=st.integers(0, 1),
        item=st.sampled_from(sorted(SEVERITIES)),
        decision=st.sampled_from(["keep", "reject", "unsure"]),
    )
    def decide(self, page, item, decision):
        self.decisions[self.pages[page].decide(item, decision)] = ([item], decision)

    @rule(page=st.integers(0, 1), which=st.integers(0, 9))
    def undo(self, page, which):
        if self.decisions:
            batch = sorted(self.decisions)[which % len(self.decisions)]
            assert sorted(self.pages[page].undo(batch)) == sorted(self.decisions.pop(batch)[0])

    @rule(page=st.integers(0, 1), show=st.sampled_from(["all", "flagged"]))
    def choose(self, page, show):
        self.pages[page].choose({"red": 0.5, "green": 0.5}, show)
        self.queues[page] = QUEUE if show == "flagged" else [*SEVERITIES]

    @rule(page=st.integers(0, 1))
    def replace_page(self, page):
        self.pages[page], self.queues[page] = opened(self.folder), QUEUE

    @rule()
    def export(self):
        export_reviews(self.folder)
        if (self.folder / "reviews.sqlite").exists():
            rows = Dataset(self.folder).read("reviews").to_pylist()
            assert {row["item_id"]: row["decision"] for row in rows} == self.valid()

    @invariant()
    def pages_show_the_valid_decisions(self):
        if not hasattr(self, "folder"):
            return
        valid = self.valid()
        assert {name: one.decision for name, one in read_reviews(self.folder, SEVERITIES).items()} == valid
        for page, queue in zip(self.pages, self.queues, strict=True):
            page.refresh()
            for decision in ("keep", "reject", "unsure"):
                assert page.progress[decision] == sum(valid.get(item) == decision for item in queue)

    def teardown(self):
        if hasattr(self, "temporary"):
            for page in self.pages:
                page.close_view()
            self.temporary.cleanup()


@pytest.mark.parametrize("examples", [3, sweep(60)])
def test_no_order_of_actions_loses_a_decision(run, examples):
    """Whatever two pages do, the valid decisions are the newest that were not withdrawn, in file, table and pages."""
    machine = type("DecisionsOfRun", (Decisions,), {"run": run})
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=12, deadline=None))


def test_triage_by_keyboard(out, serve_views, page):
    """Decisions, undo, a note, unblurring and moving need only the keyboard, and end in the table."""
    page.goto(serve_views({"review": WebView("Review", lambda: ReviewView(out))}))
    expect(page.get_by_text("0 of 3 decided")).to_be_visible(timeout=30_000)
    expect(page.locator(".lm-stage")).to_be_focused()
    large, caption = page.locator(".lm-large img"), page.locator(".lm-said")
    expect(large).to_have_attribute("alt", "chelsea.jpg, blurred")
    page.keyboard.press("b")
    expect(large).to_have_attribute("alt", "chelsea.jpg")
    page.keyboard.press("k")
    expect(large).to_have_attribute("alt", "coffee.jpg, blurred")
    page.keyboard.press("r")
    expect(page.get_by_text("2 of 3 decided")).to_be_visible()
    page.keyboard.press("z")
    expect(page.get_by_text("1 of 3 decided")).to_be_visible()
    expect(large).to_have_attribute("alt", "coffee.jpg, blurred")
    expect(caption).to_have_text("Undecided")
    page.keyboard.press("n")
    page.keyboard.type("kitchen")
    page.keyboard.press("Escape")
    page.keyboard.press("u")
    page.keyboard.press("ArrowLeft")
    expect(caption).to_contain_text("unsure")
    expect(page.get_by_role("textbox", name="Note")).to_have_value("kitchen")
    deadline = time.monotonic() + 30
    while len(rows := Dataset(out).read("reviews").to_pylist()) < 2 or rows[1]["note"] is None:
        assert time.monotonic() < deadline
        page.wait_for_timeout(100)
    assert {row["item_id"]: (row["decision"], row["note"]) for row in rows} == {
        "chelsea": ("keep", None),
        "coffee": ("unsure", "kitchen"),
    }


def test_bulk_confirmation_names_the_number(out, serve_views, page):
    """Deciding about all items at once needs a button that names their number."""
    page.goto(serve_views({"review": WebView("Review", lambda: ReviewView(out))}))
    page.get_by_role("combobox", name="Undecided items").select_option("above")
    page.get_by_role("button", name="Decide all").click()
    page.get_by_role("button", name="Keep 3 items").click()
    expect(page.get_by_text("3 of 3 decided")).to_be_visible(timeout=30_000)
    expect(page.get_by_text("All items of this queue are decided.")).to_be_visible()
    expect(page.locator(".lm-stage")).to_be_focused()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("0 of 3 decided")).to_be_visible()
    expect(page.locator(".lm-stage")).to_be_focused()


def test_thresholds_count_at_once(out, serve_views, page):
    """A slider changes the count of its back end and the queue."""
    page.goto(serve_views({"review": WebView("Review", lambda: ReviewView(out))}))
    red = page.get_by_role("slider", name="Threshold of red")
    red.focus()
    red.press("End")
    expect(page.get_by_text("0 at or above")).to_be_visible()
    expect(page.get_by_text("0 of 2 decided")).to_be_visible()


def test_read_only_page_locks_its_controls(out, serve_views, page):
    """A page that may not write says how to start one that may, and its controls are disabled."""
    page.goto(serve_views({"review": WebView("Review", lambda: ReviewView(out, may_write=False))}))
    expect(page.get_by_text("--allow-review")).to_be_visible(timeout=30_000)
    for name in ("Keep", "Reject", "Unsure", "Undo", "Decide all"):
        expect(page.get_by_role("button", name=name)).to_be_disabled()


def test_agreement_is_shown_on_the_page(out, serve_views, page):
    """The page lists what dropping each back end saves and loses."""
    page.goto(serve_views({"review": WebView("Review", lambda: ReviewView(out))}))
    page.get_by_text("Which back end can be dropped?").click()
    expect(page.get_by_role("row", name="nsfw green red 3")).to_be_visible(timeout=30_000)
    expect(page.get_by_role("row", name="palette colors")).to_be_visible()


@pytest.mark.parametrize("width_px", [320, 1200])
def test_a_long_name_of_a_back_end_fits_the_page(run, tmp_path, serve_views, page, width_px):
    """The name of a back end covers no score of it, and no width of the page needs to be scrolled sideways."""
    folder = copy_of(run, tmp_path / "out", "-of-a-model-with-a-very-long-name" * 3)
    page.set_viewport_size({"width": width_px, "height": 900})
    page.goto(serve_views({"review": WebView("Review", lambda: ReviewView(folder))}))
    gauges = page.locator(".lm-ratings .lm-gauge")
    expect(gauges).to_have_count(2, timeout=30_000)
    for gauge in gauges.all():
        name, scale = gauge.locator(".lm-source"), gauge.locator(".lm-scale")
        assert name.evaluate("e => e.scrollWidth <= e.clientWidth")
        assert name.evaluate("e => e.getBoundingClientRect().right") <= scale.bounding_box()["x"]
    assert page.evaluate("document.documentElement.scrollWidth") == width_px
