"""`ExplorerView`: the Python object behind the gallery, the page that shows the images and videos of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any, Final, Literal

import pyarrow as pa
import traitlets

from lightmeter.api.run_result import Run, must_have_tables, output_folder
from lightmeter.errors import LightmeterError, UsageError
from lightmeter.html_report.model import short_name
from lightmeter.html_report.thumbnails import ThumbnailSource
from lightmeter.journal.queries.items import item_files
from lightmeter.journal.store import open_read_only
from lightmeter.journal.thumbnails import read_thumbnails
from lightmeter.tables.query.duckdb_query import sql
from lightmeter.tables.query.similar import similar
from lightmeter.ui.gallery.gallery import Gallery
from lightmeter.ui.gallery.gallery_queries import Filters, SimilarItems, Sort, items_sql, selection_sql
from lightmeter.ui.gallery.saved_views import SavedView, delete_view, read_views, save_view
from lightmeter.ui.items.item_view_model import ItemViewModel, items_loop
from lightmeter.ui.view_model import error_text, request

MAX_SIMILAR: Final = 60
"""Maximum number of items that `show_similar` finds. Items of a lower rank are hardly similar."""

MAX_RANGE: Final = 100_000
"""Maximum number of items in a range that the user selects at a time."""

_TEXT_WAIT_S: Final = 10.0
"""Seconds that `str(explorer)` waits at most for the tables to be read. Then it says `loading`."""

_MODELS: Final = "SELECT DISTINCT model FROM embeddings WHERE item_id = ? ORDER BY model"


class ExplorerView(ItemViewModel):
    """The gallery of a run's images and videos (items): filters with counts, cards, a selection, saved views.

    The items are read and filtered in the background, so that a notebook stays usable. `wait` blocks until the items
    are ready.

    Attributes:
        filters: The filters, as a dict with the fields of `lightmeter.ui.gallery.gallery_queries.Filters`.
        sort: The order, as a dict with the fields of `gallery_queries.Sort`: `{"by": "severity", "descending": True}`.
        selection: The ids of the items selected by hand.
        result: What the page shows: `version` (number of this search), `total` (items of the run), `items` (number that
            match the filters), `facets` (values to filter by, from `Gallery.facets`), `has_embeddings`, `sorts`
            (columns to sort by), and the `filters` and `sort` that were applied.
        busy: Whether the items for the present filters and order are still being searched.
        problem: Message for the user, such as why the filters cannot be applied; empty if there is no problem.
        views: Name → saved view, a dict with `filters` and `sort`.
    """

    filters = traitlets.Dict().tag(sync=True, page_writes=True)
    sort = traitlets.Dict().tag(sync=True, page_writes=True)
    selection = traitlets.List(traitlets.Unicode()).tag(sync=True, page_writes=True)
    result = traitlets.Dict().tag(sync=True)
    busy = traitlets.Bool(default_value=False).tag(sync=True)
    problem = traitlets.Unicode("").tag(sync=True)
    views = traitlets.Dict().tag(sync=True)

    def __init__(self, run: Run | Path | str) -> None:
        """Create the gallery of a run. `run` is the run itself or its folder.

        Raises:
            JournalError: The folder holds no run.
        """
        super().__init__()
        self._run = run if isinstance(run, Run) else Run(output_folder(run))
        self._gallery = Gallery(self._run.folder)
        self._gallery_lock = RLock()
        self._changes = 0
        self._job: Future[None] | None = None
        try:
            self._set_views(read_views(self._run.folder))
        except UsageError as error:
            self.problem = error_text(error)
        self.observe(self._start, ["filters", "sort"])
        self._start()

    def run_folder(self) -> Path:
        """Return the folder of the run whose items are shown."""
        return self._run.folder

    def wait(self, timeout_s: float = 120.0) -> None:
        """Block until the items that match the filters are found.

        Raises:
            TimeoutError: They are not found within `timeout_s` seconds.
        """
        if self._job is not None:
            self._job.result(timeout_s)

    def close_view(self) -> None:  # noqa: D102 (inherited)
        super().close_view()
        with self._gallery_lock:
            self._gallery.close()

    @property
    def sql(self) -> str:
        """The SQL query for the items that match the filters, in the order of `sort`.

        It can be passed to `run.sql` and to the command `lightmeter sql`.
        """
        return items_sql(*self._filters_and_sort())

    def rows(self, which: Literal["filtered", "selected"] | None = None) -> pa.Table:
        """Return the rows of the table `assets` for the filtered or the selected items.

        Args:
            which: `filtered` means the items that match the filters. `selected` means the items selected by hand. None
                means `selected` if any item is selected, and `filtered` if no item is selected.

        Raises:
            UsageError: `which` is invalid, or the tables lack a column that a filter names.
            pydantic.ValidationError: `filters` or `sort` has an unknown key or an invalid value.
        """
        if which not in {None, "filtered", "selected"}:
            raise UsageError(f"{which!r} is neither 'filtered' nor 'selected'.")
        is_selection = which == "selected" or (which is None and bool(self.selection))
        return sql(self._run.folder, selection_sql(self.selection) if is_selection else self.sql)

    def _filters_and_sort(self) -> tuple[Filters, Sort]:
        return Filters.model_validate(self.filters), Sort.model_validate(self.sort)

    def _start(self, _: object = None) -> None:
        self._changes += 1
        self.busy = True
        self._job = items_loop().start(asyncio.to_thread(self._show, self._changes))

    def _show(self, change: int) -> None:
        """Find the items for the present filters and order, and set `result` or `problem`.

        Each change of the filters or the order has a number, here `change`. Do nothing if there was a newer change.
        """
        with self._gallery_lock:
            if change != self._changes:
                return
            try:
                filters, sort = self._filters_and_sort()
                self._gallery.show(filters, sort)
                result = {
                    "version": change,
                    "total": self._gallery.item_count,
                    "items": len(self._gallery.shown.order),
                    "facets": self._gallery.facets(),
                    "has_embeddings": self._gallery.columns.has_embeddings,
                    "sorts": list(self._gallery.columns.sort_columns),
                    "filters": filters.model_dump(mode="json"),
                    "sort": sort.model_dump(mode="json"),
                }
            except Exception as error:  # noqa: BLE001 (the page must show any error)
                self.problem = error_text(error)
            else:
                self.problem, self.result = self._why_empty(), result
            if change == self._changes:
                self.busy = False

    def _why_empty(self) -> str:
        """Return a message that the run has no tables, with the command that writes them; empty if it has tables."""
        try:
            if not self._gallery.item_count:
                must_have_tables(self._run.folder)
        except LightmeterError as error:
            return f"{error} {error.hint}"
        return ""

    @request
    def page(self, version: int, offset: int, limit: int) -> dict[str, Any]:
        """Return the cards of at most `limit` items, from the item with the index `offset` (from 0).

        A card is a dict about one item, from `Gallery.page`. The result has the key `cards`, a list, and the key
        `version`, the current version of the attribute `result`. Two cases yield no cards:

        - The argument `version` is not the current version, because the filters or the order have changed since.
        - Changed filters or a changed order are being applied at the moment. Then the returned `version` is None.

        Args:
            version: The version of `result` that the page shows.
            offset: Index of the first item in the order of the gallery, from 0.
            limit: Maximum number of cards.
        """
        if not self._gallery_lock.acquire(timeout=0.2):
            return {"version": None, "cards": []}
        try:
            current = self.result.get("version")
            cards = self._gallery.page(offset, limit) if current == version else []
            return {"version": current, "cards": cards}
        finally:
            self._gallery_lock.release()

    @request
    def item_range(self, first: int, last: int) -> list[str]:
        """Return the ids of the gallery's items from index `first` to index `last`.

        Both of these items are included. Indices count from 0.

        Raises:
            UsageError: The range has more than `MAX_RANGE` items.
        """
        if last - first >= MAX_RANGE:
            raise UsageError(f"At most {MAX_RANGE:,} items can be selected at a time.", hint="Use a filter instead.")
        with self._gallery_lock:
            return self._gallery.item_ids(first, last)

    @request
    def find_tags(self, text: str) -> list[dict[str, Any]]:
        """Return the most frequent tags that contain `text`, each as a dict with `value` and `items`.

        `value` is the tag. `items` is the number of items that have the tag and match all filters other than the filter
        by tags.
        """
        with self._gallery_lock:
            return self._gallery.find_tags(text)

    @request
    def show_similar(self, item_id: str) -> None:
        """Filter the gallery for the items whose embeddings are most similar to the embedding of the item `item_id`.

        Raises:
            UsageError: The item has no embedding.
        """
        models = sql(self._run.folder, _MODELS, [item_id]).column("model").to_pylist()
        found = similar(self._run.folder, item_id, most=MAX_SIMILAR, model=models[0] if models else None)
        with open_read_only(self._run.folder) as db:
            url = next((item.url for item in item_files(db, [item_id])), item_id)
        ids = tuple(map(str, found.column("item_id").to_pylist()))
        similar_items = SimilarItems(item_id=item_id, name=short_name(url), item_ids=ids)
        self.filters = {**self.filters, "similar": similar_items.model_dump(mode="json")}

    @request
    def save_view(self, name: str) -> None:
        """Save the present filters and order under the name `name`, in the folder of the run."""
        filters, sort = self._filters_and_sort()
        self._set_views(save_view(self._run.folder, name, SavedView(filters=filters, sort=sort)))

    @request
    def delete_view(self, name: str) -> None:
        """Delete the saved view with this name."""
        self._set_views(delete_view(self._run.folder, name))

    @request
    def open_view(self, name: str) -> None:
        """Apply the filters and the order of the saved view with this name."""
        view = self.views[name]
        with self.hold_trait_notifications():
            self.filters, self.sort = view["filters"], view["sort"]

    def _set_views(self, views: dict[str, SavedView]) -> None:
        self.views = {name: view.model_dump(mode="json") for name, view in views.items()}

    def thumbnail_sources(self, item_ids: Sequence[str]) -> dict[str, ThumbnailSource]:  # noqa: D102 (inherited)
        with open_read_only(self._run.folder) as db:
            files = item_files(db, item_ids)
        kept = read_thumbnails(self._run.folder, {item.content_sha256 for item in files if item.content_sha256})
        found = {
            item.item_id: ThumbnailSource(item.url, item.path, kept.get(item.content_sha256 or "")) for item in files
        }
        # The items of earlier manifests of this folder are only in the tables.
        missing = [item for item in item_ids if item not in found]
        return found | (super().thumbnail_sources(missing) if missing else {})

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        inherited = getattr(super(), "_repr_mimebundle_", None)
        bundle = None if inherited is None else inherited(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        return {**data, "text/plain": repr(self)}, metadata

    def __str__(self) -> str:
        with suppress(TimeoutError):
            self.wait(_TEXT_WAIT_S)
        return repr(self)

    def __repr__(self) -> str:
        shown = f"{self.result['items']} of {self.result['total']} items" if self.result else "loading"
        return f"Explorer({str(self._run.folder)!r}: {shown})"
