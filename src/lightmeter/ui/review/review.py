"""`ReviewView`: the Python object behind the page for the review of a run's NSFW ratings."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Sequence
from pathlib import Path
from threading import RLock
from typing import Annotated, Any, Final, Literal

import pyarrow as pa
import traitlets
from pydantic import Field

from lightmeter.api.run_result import Run, output_folder
from lightmeter.errors import LightmeterError, UsageError
from lightmeter.export.review_table import export_reviews
from lightmeter.html_report.load import thumbnail_sources
from lightmeter.html_report.model import GalleryItem
from lightmeter.html_report.thumbnails import ThumbnailSource
from lightmeter.journal.queries.items import item_paths
from lightmeter.journal.reviews import (
    Decision,
    ReviewMark,
    add_reviews,
    items_since,
    read_reviews,
    review_mark,
    valid_decisions,
    withdraw_reviews,
)
from lightmeter.journal.store import open_read_only
from lightmeter.statistics.agreement import read_agreement
from lightmeter.tables.query.duckdb_query import QuerySession, sql
from lightmeter.ui.items.item_view_model import ItemViewModel, items_loop
from lightmeter.ui.review.review_queue import Choice, DecisionFilter, Order, ReviewQueue, Show, read_queue
from lightmeter.ui.view_model import error_text, request

EXPORT_DELAY_S: Final = 1.0
"""Seconds between a decision and the writing of the table `reviews`, so that further decisions are written with it."""

MAX_WINDOW: Final = 60
"""Maximum number of items that the page can ask for in one call of `ReviewView.window`."""

_MANY: Final = 10_000
"""If this number of decisions or more have changed, all decisions are read again, not only the changed decisions."""

READ_ONLY: Final = "Decisions cannot be written on this page. Start it as: lightmeter ui DIR --allow-review"
NO_RATINGS: Final = (
    "No back end rated the pictures of this run. Ask for the feature nsfw: lightmeter plan --features nsfw"
)

_ITEMS: Final = "SELECT item_id, url, kind, content_sha256 FROM assets WHERE item_id IN (SELECT unnest($ids))"

Threshold = Annotated[float, Field(ge=0, le=1)]
Which = Literal["above", "below"]


class ReviewView(ItemViewModel):
    """Review of a run: a queue of items with NSFW ratings, about which a person decides keep, reject or unsure.

    Decisions are written to `reviews.sqlite` at once, and to the table `reviews` a second later. Several pages may
    be open for one run; each of them sees the decisions of the others.

    Attributes:
        is_loading: Whether the ratings are still being read.
        may_write: Whether this page may write decisions.
        note: Why there is nothing to decide, or why nothing may be written; empty otherwise.
        user: Name of the person who decides.
        sources: A dict for each back end with ratings: `name`, and `histogram`, a list with the number of items at each
            per cent of severity, 0 to 100.
        progress: Numbers of items in the queue: `items` (all), `decided` and `undecided`, and by decision: `keep`,
            `reject` and `unsure`.
    """

    is_loading = traitlets.Bool(True).tag(sync=True)  # noqa: FBT003 (the value of a trait)
    may_write = traitlets.Bool(True).tag(sync=True)  # noqa: FBT003 (likewise)
    note = traitlets.Unicode("").tag(sync=True)
    user = traitlets.Unicode("").tag(sync=True, page_writes=True)
    sources = traitlets.List(traitlets.Dict()).tag(sync=True)
    progress = traitlets.Dict().tag(sync=True)

    def __init__(self, run: Run | Path | str, *, may_write: bool = True) -> None:
        """Create the review of a run. The ratings are read in the background.

        Args:
            run: The run, or its folder.
            may_write: Whether this page may write decisions.

        Raises:
            JournalError: The folder holds no run.
        """
        super().__init__()
        self._review_lock = RLock()
        self._is_export_due = False  # `close_view` reads it even if there is no run
        of = run if isinstance(run, Run) else Run(output_folder(run))
        self._folder, self._run_id = of.folder, of.header.run_id
        self.may_write = may_write
        self.user = _user_name()
        self._queue: ReviewQueue | None = None
        self._choice = Choice({})
        self._mark = ReviewMark()
        self._items: dict[str, GalleryItem] = {}
        self._loaded = items_loop().start(self._load_queue())

    def run_folder(self) -> Path:
        """Return the folder of the run."""
        return self._folder

    def wait(self, timeout_s: float = 60.0) -> None:
        """Block until the ratings are read.

        Raises:
            TimeoutError: They are not read within `timeout_s` seconds.
        """
        self._loaded.result(timeout_s)

    def thumbnail_sources(self, item_ids: Sequence[str]) -> dict[str, ThumbnailSource]:  # noqa: D102 (inherited)
        items = list(self._read_items(item_ids).values())
        with open_read_only(self._folder) as db:
            paths = item_paths(db, [item.item_id for item in items])
        return thumbnail_sources(self._folder, items, paths)

    @request
    def choose(
        self,
        thresholds: dict[str, Threshold],
        show: Show = "flagged",
        order: Order = "severity",
        state: DecisionFilter = "all",
    ) -> dict[str, Any]:
        """Fill the queue again: select and sort its items by these arguments.

        A back end flags an item if it rated the item at or above the back end's threshold. The returned dict has the
        keys

        - `first`: index (from 0) of the first undecided item in the queue; 0 if no item is undecided;
        - `empty`: a sentence that says why the queue has no items; an empty text if it has items;
        - `flagged`: number of items that at least one back end flags;
        - `disputed`: number of items that at least one back end flags, and another rated but does not flag;
        - `pairs`: agreement of each pair of back ends, as in `ReviewQueue.totals`.

        Args:
            thresholds: Back end → threshold, a severity from 0 to 1. A missing back end has the threshold 0.5.
            show: Items in the queue: `flagged`, `disputed`, `below` (no back end flags them) or `all`.
            order: `severity` (highest first) or `disagreement` (largest difference between back ends first).
            state: Items in the queue: only `decided` items, only `undecided` items, or `all`.
        """
        with self._review_lock:
            queue = self._read_decisions()
            self._choice = Choice(thresholds, show, order, state)
            queue.choose(self._choice)
            self.progress = queue.progress()
            return {"first": queue.first_undecided(), "empty": queue.why_empty(), **queue.totals()}

    @request
    def window(self, start: Annotated[int, Field(ge=0)], count: Annotated[int, Field(le=MAX_WINDOW)]) -> dict[str, Any]:
        """Return a part of the queue: at most `count` items, from the item with the index `start` (from 0).

        The result has the keys `start` and `items`. An item is a dict with `item_id`, `severities` (back end → 0 to 1),
        `name`, `kind`, and `review`: a dict with the fields of `ReviewDecision`, or None if the item is undecided.
        """
        with self._review_lock:
            queue = self._read_decisions()
            self.progress = queue.progress()
            items = queue.window(start, count)
            if any(item["item_id"] not in self._items for item in items):
                around = queue.window(start - MAX_WINDOW, 3 * MAX_WINDOW)  # one query for many steps
                self._items = self._read_items([item["item_id"] for item in around])
        reviews = read_reviews(self._folder, [item["item_id"] for item in items])
        for item in items:
            shown, review = self._items.get(item["item_id"]), reviews.get(item["item_id"])
            item["name"], item["kind"] = (item["item_id"], None) if shown is None else (shown.name, shown.kind)
            item["review"] = None if review is None else review._asdict()
        return {"start": start, "items": items}

    @request
    def decide(self, item_id: str, decision: Decision, note: str = "") -> int:
        """Store a decision about one item, with the remark `note`.

        Return a number. `undo` called with this number withdraws the decision.
        """
        self._must_write()
        items = [(item.item_id, item.url) for item in self._read_items([item_id]).values()]
        return self._add(items, decision, note)

    @request
    def undo(self, batch: int) -> list[str]:
        """Withdraw all decisions of one call of `decide` or `decide_all`, the call that gave the number `batch`.

        Return the ids of the items concerned, but at most 100 ids.
        """
        self._must_write()
        items = withdraw_reviews(self._folder, batch, self.user)
        self._decisions_changed()
        return items[:100]

    @request
    def count_undecided(self, which: Which) -> int:
        """Return the number of undecided items of one kind.

        `which` is `above` for items that at least one back end flags, and `below` for items that no back end flags.
        """
        with self._review_lock:
            return len(self._read_decisions().undecided(which))

    @request
    def decide_all(self, which: Which, decision: Decision, expected: int) -> None:
        """Store the same decision about all undecided items that back ends flag, or about all that no back end flags.

        This is done in the background. At the end, the page gets the event `decided_all`. Its value has `batch`, the
        number to pass to `undo`, and `items`, the number of items decided.

        Args:
            which: `above`: items that at least one back end flags. `below`: items that no back end flags.
            decision: The decision about all these items.
            expected: The number of items that the user has confirmed.

        Raises:
            UsageError: The number of these items is 0, or is no longer `expected`. Nothing was decided.
        """
        self._must_write()
        with self._review_lock:
            ids = self._read_decisions().undecided(which)
        if len(ids) != expected or not expected:
            raise UsageError(f"There are now {len(ids):,} such items, not {expected:,}: nothing was decided.")
        items_loop().start(self._decide_in_background(ids, decision))

    @request
    def refresh(self) -> None:
        """Count the items of `progress` again, with the decisions that other pages have stored meanwhile."""
        with self._review_lock:
            self.progress = self._read_decisions().progress()

    @request
    def compare(self) -> None:
        """Start to compare the answers of the back ends, with the present NSFW thresholds, in the background.

        At the end, the page gets the event `agreement`. Its value is what
        `lightmeter.statistics.agreement.Agreement.to_dict` returns, or None if the comparison failed; the attribute
        `error` then says why.
        """
        items_loop().start(self._compare(dict(self._choice.thresholds)))

    def close_view(self) -> None:
        """Write the table `reviews` if it lacks a decision. This is called when the page is closed."""
        super().close_view()
        with self._review_lock:
            is_due = self._is_export_due
        if is_due:
            self._export()

    async def _load_queue(self) -> None:
        try:
            await asyncio.to_thread(self._read_queue)
        except Exception as error:  # noqa: BLE001 (the page must show any error)
            self.error = error_text(error)
        self.is_loading = False

    def _read_queue(self) -> None:
        if self.may_write:
            self._export()  # decisions of a page that was killed
        queue = read_queue(self._folder)
        with self._review_lock:
            self._queue = queue
            queue = self._read_decisions()
            queue.choose(self._choice)
            self.progress = queue.progress()
        self.sources = [{"name": name, "histogram": counts} for name, counts in queue.histograms().items()]
        self.note = (NO_RATINGS if not len(queue) else "") or ("" if self.may_write else READ_ONLY)

    def _read_decisions(self) -> ReviewQueue:
        """Add the decisions that pages have stored meanwhile to the queue, and return the queue.

        The caller must hold `_review_lock`.
        """
        if self._queue is None:
            raise UsageError("The ratings of this run are not read yet.", hint="Try again in a moment.")
        mark = review_mark(self._folder)
        if mark != self._mark:
            changed = items_since(self._folder, self._mark)
            if len(changed) < _MANY:
                reviews = read_reviews(self._folder, changed)
                self._queue.set_decisions(changed, {item_id: one.decision for item_id, one in reviews.items()})
            else:
                self._queue.set_decisions(None, valid_decisions(self._folder))
            self._mark = mark
        return self._queue

    def _must_write(self) -> None:
        if not self.may_write:
            raise UsageError(READ_ONLY)

    def _read_items(self, item_ids: Sequence[str]) -> dict[str, GalleryItem]:
        """Return item id → item, from memory if all items are in memory. Leave out ids that the run does not have."""
        known = self._items
        if all(item_id in known for item_id in item_ids):
            return {item_id: known[item_id] for item_id in item_ids}
        rows = sql(self._folder, _ITEMS, {"ids": list(item_ids)}).to_pylist()
        return {row["item_id"]: GalleryItem(**row) for row in rows}

    def _add(self, items: Sequence[tuple[str, str]], decision: Decision, note: str = "") -> int:
        if not items:
            raise UsageError("The run has no such item.")
        batch = add_reviews(self._folder, self._run_id, items, decision, self.user, note)
        self._decisions_changed()
        return batch

    def _decisions_changed(self) -> None:
        with self._review_lock:
            self.progress = self._read_decisions().progress()
            if self._is_export_due:
                return
            self._is_export_due = True
        items_loop().start(self._export_later())

    async def _export_later(self) -> None:
        await asyncio.sleep(EXPORT_DELAY_S)
        await asyncio.to_thread(self._export)

    def _export(self) -> None:
        with self._review_lock:
            self._is_export_due = False  # a decision from now on is exported by a later call
        try:
            export_reviews(self._folder)
        except LightmeterError as error:
            self.error = error_text(error)

    async def _decide_in_background(self, ids: pa.Array[Any], decision: Decision) -> None:
        try:
            batch = await asyncio.to_thread(lambda: self._add(_urls(self._folder, ids), decision))
        except Exception as error:  # noqa: BLE001 (the page must show any error)
            self.error = error_text(error)
        else:
            self.emit("decided_all", {"batch": batch, "items": len(ids)})

    async def _compare(self, thresholds: dict[str, float]) -> None:
        try:
            found = await asyncio.to_thread(read_agreement, self._folder, thresholds=thresholds)
        except Exception as error:  # noqa: BLE001 (the page must show any error)
            self.error = error_text(error)
            self.emit("agreement", None)
        else:
            self.emit("agreement", found.to_dict())


def _urls(folder: Path, item_ids: pa.Array[Any]) -> list[tuple[str, str]]:
    """Return a pair (item id, URL) for each of `item_ids` that the run in `folder` has, in no particular order."""
    with QuerySession(folder) as session:
        session.register("chosen", pa.table({"item_id": item_ids}))
        found = session.ask("SELECT item_id, url FROM assets JOIN chosen USING (item_id)")
    columns: list[list[Any]] = [found.column(name).to_pylist() for name in ("item_id", "url")]
    return list(zip(*columns, strict=True))


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a user database
        return ""
