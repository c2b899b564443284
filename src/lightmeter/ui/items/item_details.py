"""Reads the details of one item (image or video) from a run's tables and journal, as JSON for the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

from lightmeter.engine.url_uploads import LONGEST_SIDE_PX
from lightmeter.errors import UsageError
from lightmeter.html_report.model import REVIEW_FROM, Row, short_name
from lightmeter.html_report.thumbnails import ThumbnailSource
from lightmeter.journal.header import archived_runs, read_run_header
from lightmeter.journal.queries.frame_rows import SentFrame, sent_frames
from lightmeter.journal.queries.items import ItemFile, item_files, item_paths
from lightmeter.journal.store import open_read_only
from lightmeter.journal.thumbnails import read_thumbnails
from lightmeter.media.video.sampling import frame_count
from lightmeter.options import Options
from lightmeter.tables.arrow.answer_schema import ANSWERS_PREFIX
from lightmeter.tables.arrow.schema import schema
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.query.duckdb_query import QuerySession, sql

MAX_ROWS: Final = 200
"""Maximum number of rows of each table in the details of an item or frame."""

MAX_FRAMES: Final = 2_000
"""Maximum number of frames that the details of a video list."""

BOX_KINDS: Final[Mapping[str, str]] = {"faces": "face", "texts": "text", "brands": "brand"}
"""Name of a table whose rows describe parts of the picture → `kind` of the boxes around these parts."""

_COLUMNS: Final[Mapping[str, str]] = {
    "tags": "name, score, source",
    "nsfw": "source, label, score, likelihood, severity",
    "colors": "source, hex, pixel_fraction, score, css_name",
    "descriptions": "source, description, role, language",
    "faces": 'source, face, gender, gender_score, age_low, age_high, emotions, "left", top, width, height',
    "texts": "source, text, score, is_full_text, polygon",
    "brands": "source, name, score, polygon",
    "errors": "backend, message, request_id",
    "prechecks": "finding, severity, message, value",
}
"""Name of a table with rows about items → SQL list of the columns that the details show."""

_PLACE_COLUMNS: Final = frozenset({"left", "top", "width", "height", "polygon"})
"""Columns with coordinates. The page gets them as boxes, not as columns of a table."""

_ANY_FRAME: Final = ("errors", "prechecks")
"""Tables whose rows are about the whole item. The details of every frame show them."""

_ITEM: Final = "FROM assets WHERE item_id = ?"
_SEVERITY: Final = "SELECT max(severity) AS highest FROM nsfw WHERE item_id = ?"
_URL: Final = "SELECT url FROM assets WHERE item_id = ?"

_FRAMES: Final = " UNION ".join(
    f"SELECT frame FROM {table} WHERE item_id = $item AND frame IS NOT NULL"  # noqa: S608 (constant names)
    for table in (*_COLUMNS, "embeddings")
    if table not in _ANY_FRAME
)

_SOURCES: Final = "SELECT item_id, url, content_sha256, kind FROM assets WHERE item_id IN (SELECT unnest($ids))"

_FACTS: Final[Sequence[tuple[str, str]]] = (
    *(("item_id", "id"), ("url", "location"), ("kind", "kind"), ("name", "name in the answer")),
    *(("width", "width in pixels"), ("height", "height in pixels"), ("duration_s", "length in seconds")),
    *(("size_bytes", "size in bytes"), ("content_bytes", "size in bytes, as its server says")),
    *(("content_sha256", "SHA-256"), ("perceptual_hash", "perceptual hash")),
    *(("duplicate_distance", "differing bits of the perceptual hash"), ("features", "features asked for")),
    *(("backends", "back ends asked for"), ("credits", "credits"), ("request_id", "request")),
    *(("answered_at", "answered"), ("run_id", "run")),
)
"""Pairs of a column of the table `assets` and its label, in the order in which the details list them."""

_LARGEST_EXACT: Final = 2**53 - 1
"""The largest integer up to which a number of JavaScript is exact."""


def read_thumbnail_sources(folder: Path, item_ids: Sequence[str]) -> dict[str, ThumbnailSource]:
    """Return item id → where to get the item's thumbnail. Leave out items that the run does not have.

    `folder` is the folder of the run.
    """
    return {item_id: source for item_id, (source, _) in _read_sources(folder, item_ids).items()}


def read_picture_source(folder: Path, item_id: str) -> tuple[ThumbnailSource, str | None]:
    """Return where to get the picture of an item, and the item's kind: `image`, `video`, or None if unknown.

    `folder` is the folder of the run.

    Raises:
        UsageError: The run has no such item.
    """
    sources = _read_sources(folder, [item_id])
    if item_id not in sources:
        raise _no_such_item(item_id)
    return sources[item_id]


def _read_sources(folder: Path, item_ids: Sequence[str]) -> dict[str, tuple[ThumbnailSource, str | None]]:
    rows: list[Row] = sql(folder, _SOURCES, {"ids": list(item_ids)}).to_pylist()
    files = _find_files(folder, [row["item_id"] for row in rows])
    hashes = {row["item_id"]: row["content_sha256"] for row in rows}
    hashes |= {item: file.content_sha256 for item, file in files.items() if file.content_sha256}
    kept = read_thumbnails(folder, {content for content in hashes.values() if content})
    return {
        (item_id := row["item_id"]): (
            ThumbnailSource(
                row["url"], files[item_id].path if item_id in files else None, kept.get(hashes[item_id] or "")
            ),
            row["kind"],
        )
        for row in rows
    }


def _find_files(folder: Path, item_ids: Sequence[str]) -> dict[str, ItemFile]:
    """Return item id → the item's file, from the newest journal that has the item.

    Search the journal of the run first, then the journals of the earlier runs in its folder, newest first.
    """
    found: dict[str, ItemFile] = {}
    for place in _run_folders(folder):
        missing = [item for item in item_ids if item not in found]
        if not missing:
            break
        with open_read_only(place) as db:
            found |= {file.item_id: file for file in item_files(db, missing)}
    return found


def _run_folders(folder: Path) -> Iterator[Path]:
    yield folder
    yield from reversed(archived_runs(folder))


def read_details(folder: Path, item_id: str, frame: int | None = None) -> dict[str, Any]:
    """Return everything that the tables and the journal of a run say about an item, as a JSON-compatible object.

    The keys `item_id`, `url`, `kind`, `status`, `reason`, `error` and `credits` have the item's values in the table
    `assets`. The other keys are

    - `name`: the file name; `path`: the path of a local file, else None; `href`: the URL, None for a local file;
    - `blurred`: whether the page blurs the picture, because it is likely unsafe;
    - `size`: width and height of the picture to which coordinates in pixels refer, or None if they are unknown;
    - `frame`: the argument; `frames`: `frame` and `time_s` of the first `MAX_FRAMES` captured frames of a video;
      `more_frames`: the number of further frames;
    - `facts` and `own_columns`: pairs (label, value) from `assets`, and from the manifest's additional columns;
    - `duplicate_of`: `item_id` and `url` of the earlier item that this item repeats, or None;
    - `requests`: the rows of the table `requests` for the request with the item or frame;
    - `tags` and `boxes`: what the functions `compare_tags` and `boxes` return; a whole video has no boxes;
    - `tables`: name of a table → dict with `rows` about the whole item or about the frame (at most `MAX_ROWS`), and
      `more`, whether there are further rows.

    Args:
        folder: The folder of the run.
        item_id: The item.
        frame: Number of a captured frame of the video, from 0; None for an image or a whole video.

    Raises:
        UsageError: The run has no such item.
    """
    options = read_run_header(folder).options
    with open_read_only(folder) as db:
        path = item_paths(db, [item_id]).get(item_id)
        sent = sent_frames(db, item_id)
    with QuerySession(folder) as session:
        item = _item(session, item_id)
        severity: float | None = session.ask(_SEVERITY, [item_id]).to_pylist()[0]["highest"]
        duplicate_of = _duplicate_of(session, item)
        tables = _read_tables(session, folder, item_id, frame)
        answered: list[Row] = session.ask(_FRAMES, {"item": item_id}).to_pylist()
        request_id = next((one.request_id for one in sent if one.frame == frame), None) or item["request_id"]
        requests: list[Row] = session.ask("FROM requests WHERE request_id = ?", [request_id]).to_pylist()
    frames = _frame_times(item, sent, {row["frame"] for row in answered}, options) if item["kind"] == "video" else []
    has_boxes = item["kind"] != "video" or frame is not None
    return {
        **{name: item[name] for name in ("item_id", "url", "kind", "status", "reason", "error", "credits")},
        "name": short_name(item["url"]),
        "href": item["url"] if item["url"].lower().startswith(("http://", "https://")) else None,
        "path": path,
        "blurred": (severity or 0.0) >= REVIEW_FROM,
        "size": _coordinate_size(item, is_scaled=bool(sent) or (options.upload == "always" and path is None)),
        "frame": frame,
        "frames": frames[:MAX_FRAMES],
        "more_frames": max(0, len(frames) - MAX_FRAMES),
        "facts": _facts(item, severity),
        "own_columns": _own_columns(item),
        "duplicate_of": duplicate_of,
        "requests": [_request(row) for row in requests],
        "tags": compare_tags(tables["tags"]["rows"]),
        "boxes": boxes({name: tables[name]["rows"] for name in BOX_KINDS}) if has_boxes else [],
        "tables": {name: _without_places(table) for name, table in tables.items() if table["rows"]},
    }


def compare_tags(rows: Iterable[Row]) -> dict[str, Any]:
    """Return the tags of several back ends side by side.

    The result has `sources`, the names of the back ends, and `rows`, one for each tag. A row has `name`, the tag, and
    `scores`, a dict from back end to its highest score for the tag. The score is None if the back end gave the tag
    without a score. Tags that differ only in case count as one tag. Tags from more back ends come first. Tags from
    equally many back ends are sorted by their highest score, highest first.
    """
    tags: dict[str, dict[str, Any]] = {}
    sources: dict[str, None] = {}
    for row in rows:
        if row["name"] is None:
            continue
        source = row["source"] or ""
        sources.setdefault(source)
        scores = tags.setdefault(row["name"].casefold(), {"name": row["name"], "scores": {}})["scores"]
        known = scores.get(source)
        scores[source] = row["score"] if known is None else max(known, row["score"] or 0.0)
    compared = sorted(
        tags.values(),
        key=lambda tag: (-len(tag["scores"]), -max(score or 0.0 for score in tag["scores"].values()), tag["name"]),
    )
    return {"sources": list(sources), "rows": compared}


def boxes(tables: Mapping[str, Iterable[Row]]) -> list[dict[str, Any]]:
    """Return the boxes around faces, texts and brands, in the order of the tables' rows.

    Each box has `kind`, `label`, `source` (back end), `corners` (pairs of x and y) and `unit`. The unit is `share` if
    no coordinate is above 1: coordinates are then shares (0 to 1) of the width and height. Else it is `pixel`. A row
    without coordinates has no box. A row with the full text of a picture has no box either, because the box would cover
    the boxes of the parts of the text.

    Args:
        tables: Table (`faces`, `texts`, `brands`) → its rows about one picture.
    """
    found = []
    for table, kind in BOX_KINDS.items():
        for row in tables.get(table, ()):
            corners = _face_corners(row) if table == "faces" else _polygon_corners(row)
            if corners:
                unit = "share" if max(max(corner) for corner in corners) <= 1 else "pixel"
                box = {"kind": kind, "label": _box_label(table, row), "source": row["source"] or ""}
                found.append({**box, "corners": corners, "unit": unit})
    return found


def _item(session: QuerySession, item_id: str) -> Row:
    """Return an item's row of the table `assets`."""
    rows: list[Row] = session.ask(_ITEM, [item_id]).to_pylist()
    if not rows:
        raise _no_such_item(item_id)
    return rows[0]


def _duplicate_of(session: QuerySession, item: Row) -> dict[str, Any] | None:
    """Return `item_id` and `url` of the earlier item of which an item is a duplicate; None if it is no duplicate."""
    if item["duplicate_of"] is None:
        return None
    found: list[Row] = session.ask(_URL, [item["duplicate_of"]]).to_pylist()
    return {"item_id": item["duplicate_of"], "url": found[0]["url"] if found else None}


def _no_such_item(item_id: str) -> UsageError:
    return UsageError(f"The run has no item {item_id!r}.", hint="The column item_id of the table assets lists them.")


def _read_tables(session: QuerySession, folder: Path, item_id: str, frame: int | None) -> dict[str, dict[str, Any]]:
    """Return name of a table → dict with its rows about an item.

    The dict has `rows`, the first `MAX_ROWS` rows, and `more`, whether there are further rows.

    Args:
        session: Queries the tables of the run.
        folder: The folder of the run.
        item_id: The item.
        frame: Number of a captured frame of the video, from 0; None for an image or a whole video.
    """
    answers = [name for name in Dataset(folder).tables() if name.startswith(ANSWERS_PREFIX)]
    found = {}
    for table, columns in {**_COLUMNS, **dict.fromkeys(answers, "* EXCLUDE (item_id, url, frame, run_id)")}.items():
        of_frame = "" if table in _ANY_FRAME else "AND frame IS NOT DISTINCT FROM $frame"
        query = f'SELECT {columns} FROM "{table}" WHERE item_id = $item {of_frame} LIMIT {MAX_ROWS + 1}'  # noqa: S608 (constant names)
        parameters = {"item": item_id} | ({"frame": frame} if of_frame else {})
        rows: list[Row] = session.ask(query, parameters).to_pylist()
        found[table] = {"rows": [_exact(row) for row in rows[:MAX_ROWS]], "more": len(rows) > MAX_ROWS}
    return found


def _frame_times(item: Row, sent: Sequence[SentFrame], answered: set[int], options: Options) -> list[dict[str, Any]]:
    """Return the captured frames of a video, in order: `frame` (number from 0) and `time_s` (time in seconds) of each.

    The captured frames are the frames in `sent`; if `sent` is empty, they are the frames that `options` selects. The
    frames in `answered` are included in both cases.

    Args:
        item: The video's row of the table `assets`.
        sent: Frames that the run sent in place of the video; empty if it sent the video.
        answered: Numbers of the frames for which the tables have results.
        options: Options of the run.
    """
    if sent:
        times = {one.frame: one.time_s for one in sent}
    else:
        captured = frame_count(item["duration_s"], options.capture_interval, options.max_frames)
        known = captured if item["duration_s"] is not None and item["status"] in {"ok", "duplicate"} else 0
        times = {frame: float(frame * options.capture_interval) for frame in range(min(known, 10 * MAX_FRAMES))}
    times |= {frame: float(frame * options.capture_interval) for frame in answered - times.keys()}
    return [{"frame": frame, "time_s": times[frame]} for frame in sorted(times)]


def _coordinate_size(item: Row, *, is_scaled: bool) -> list[float] | None:
    """Return the width and height in pixels of the picture to which coordinates in answers refer; None if unknown.

    `item` is the item's row of the table `assets`. `is_scaled` says that the run did not send the original, but a copy
    whose longer side has at most `LONGEST_SIDE_PX` pixels.
    """
    width, height = item["width"], item["height"]
    if not width or not height:
        return None
    factor = min(1.0, LONGEST_SIDE_PX / max(width, height)) if is_scaled else 1.0
    return [width * factor, height * factor]


def _facts(item: Row, severity: float | None) -> list[list[Any]]:
    facts = [[label, _cell(item[column])] for column, label in _FACTS if item[column] not in (None, [])]
    return [*facts, *([] if severity is None else [["highest NSFW severity", severity]])]


def _own_columns(item: Row) -> list[list[Any]]:
    ours = set(schema("assets").names)
    own = ((name, value) for name, value in item.items() if name not in ours and value is not None)
    return [[name, str(value) if isinstance(value, date) else _exact(value)] for name, value in own]


def _request(row: Row) -> dict[str, Any]:
    return {name: _cell(value) for name, value in row.items() if name not in {"item_id", "url", "frame", "run_id"}}


def _cell(value: Any) -> Any:
    """Return a value of a table's cell as the page shows it.

    A time becomes a text in UTC without fractions of a second. The values of a list are joined by commas. Other values
    stay as they are.
    """
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}{' UTC' if value.tzinfo else ''}"
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def _exact(value: Any) -> Any:
    """Return a value with texts in place of the integers that JavaScript would round."""
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST_EXACT else str(value)
    if isinstance(value, dict):
        return {name: _exact(part) for name, part in value.items()}
    return [_exact(part) for part in value] if isinstance(value, list) else value


def _without_places(table: dict[str, Any]) -> dict[str, Any]:
    rows = [{name: value for name, value in row.items() if name not in _PLACE_COLUMNS} for row in table["rows"]]
    return {**table, "rows": rows}


def _face_corners(row: Row) -> list[tuple[float, float]]:
    left, top, width, height = (row[name] for name in ("left", "top", "width", "height"))
    if None in {left, top, width, height}:
        return []
    right, bottom = left + width, top + height
    if max(left, top, width, height) <= 1:  # in shares; the sum may exceed 1 a little
        right, bottom = min(right, 1.0), min(bottom, 1.0)
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def _polygon_corners(row: Row) -> list[tuple[float, float]]:
    corners = row["polygon"] or []
    if row.get("is_full_text") or any(corner["x"] is None or corner["y"] is None for corner in corners):
        return []
    return [(corner["x"], corner["y"]) for corner in corners]


def _box_label(table: str, row: Row) -> str:
    if table == "faces":
        ages = [f"{age:g}" for age in (row["age_low"], row["age_high"]) if age is not None]
        words = (f"face {row['face']}", row["gender"], "-".join(dict.fromkeys(ages)))
        return " ".join(filter(None, words))
    return str(row["text" if table == "texts" else "name"] or "")
