"""Readers of all formats and locations."""

from __future__ import annotations

import gzip
import io
import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.errors import ManifestError
from lightmeter.manifest.canonical_url import canonical_url
from lightmeter.manifest.item import stable_id
from lightmeter.manifest.readers import ManifestReader, rereadable
from lightmeter.manifest.text_formats import MAX_JSON_CHARS

URLS = ["https://example.com/a.jpg", "https://example.com/b.mp4"]
CSV = "URL,id,Kind,note\nhttps://example.com/a.jpg,one,image,first\nhttps://example.com/b.mp4,,VIDEO,\n"
JSONL = (
    '{"url": "https://example.com/a.jpg", "id": "one", "kind": "image", "note": "first"}\n\n'
    '{"note": "", "kind": "video", "url": "https://example.com/b.mp4"}\n'
)
FORMATS = {
    "m.csv": CSV,
    "m.tsv": CSV.replace(",", "\t"),
    "semicolons.csv": CSV.replace(",", ";"),
    "crlf.csv": CSV.replace("\n", "\r\n"),
    "bom.csv": "\ufeff" + CSV,
    "m.json": json.dumps([json.loads(line) for line in JSONL.splitlines() if line], indent=1),
    "flat.json": "\ufeff" + json.dumps([json.loads(line) for line in JSONL.splitlines() if line]),
    "m.jsonl": JSONL,
    "m.ndjson": "\ufeff" + JSONL,
}


def write(path: Path, text: str) -> Path:
    content = text.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("name", FORMATS)
def test_each_format_gives_the_same_items(tmp_path, name, packed):
    """A row means the same in every format, packed or not: URL, own id, kind, and the other columns."""
    path = write(tmp_path / (name + packed), FORMATS[name])
    reader = ManifestReader(path)
    first, second = reader
    assert (first.seq, first.item_id, first.url, first.kind, first.has_own_id) == (0, "one", URLS[0], "image", True)
    assert (second.seq, second.url, second.kind, second.has_own_id) == (1, URLS[1], "video", False)
    assert second.item_id == stable_id(URLS[1])
    assert [first.extra, second.extra] == [{"note": "first"}, {"note": ""}]
    assert [first.problem, second.problem, first.path] == [None, None, None]
    assert reader.extra_types == {"note": "string"}
    assert reader.sha256 == sha256(path.read_bytes()).hexdigest()
    assert reader.name == str(path)


@pytest.mark.parametrize("name", ["urls.txt", "urls.txt.gz", "urls.csv"])
def test_text_is_one_url_a_line(tmp_path, name):
    """Text has one URL on each line; blank lines and comments are no rows; a CSV without a header is text."""
    path = write(tmp_path / name, f"{URLS[0]}\n\n# a comment\n  {URLS[1]}  \n")
    items = list(ManifestReader(str(path)))
    assert [item.url for item in items] == URLS
    assert [item.seq for item in items] == [0, 1]


def test_parquet_keeps_values_and_types(tmp_path):
    """Columns of a Parquet manifest come as JSON values, and their types are remembered by name."""
    moment = datetime(2024, 5, 6, 7, 8, 9, 123456)  # noqa: DTZ001 (a column without a zone is the case)
    table = pa.table(
        {
            "Url": URLS,
            "count": pa.array([1, None], pa.int32()),
            "big": pa.array([2**64 - 1, 0], pa.uint64()),
            "share": pa.array([0.5, 1.5], pa.float32()),
            "good": [True, None],
            "day": [date(2024, 5, 6), None],
            "at": pa.array([moment, None], pa.timestamp("ns")),
            "at_utc": pa.array([moment.replace(tzinfo=UTC), None], pa.timestamp("ms", "Europe/Paris")),
            "list": [[1, 2], None],
            "fields": [{"a": date(2024, 1, 1)}, None],
            "price": [Decimal("1.50"), None],
            "shop": pa.array(["x", "y"]).dictionary_encode(),
            "bytes": [b"\xff", None],
        }
    )
    pq.write_table(table, tmp_path / "m.parquet", row_group_size=1)
    reader = ManifestReader(tmp_path / "m.parquet")
    first, second = reader
    assert first.extra == {
        "count": 1,
        "big": 2**64 - 1,
        "share": 0.5,
        "good": True,
        "day": "2024-05-06",
        "at": "2024-05-06T07:08:09.123456",
        "at_utc": "2024-05-06T07:08:09.123000+00:00",
        "list": [1, 2],
        "fields": {"a": "2024-01-01"},
        "price": "1.50",
        "shop": "x",
        "bytes": "/w==",
    }
    assert {value for name, value in second.extra.items() if name not in {"big", "share", "shop"}} == {None}
    assert reader.extra_types == {
        "count": "int64",
        "big": "uint64",
        "share": "double",
        "good": "bool",
        "day": "date",
        "at": "timestamp",
        "at_utc": "timestamp_utc",
        "list": "json",
        "fields": "json",
        "price": "string",
        "shop": "string",
        "bytes": "string",
    }
    assert reader.sha256 == sha256((tmp_path / "m.parquet").read_bytes()).hexdigest()


def test_json_lines_types_widen_as_rows_come(tmp_path):
    """A column of JSON lines has the narrowest type that holds all its values unchanged."""
    rows = [
        {"i": 1, "d": 1, "s": 1, "j": 1, "b": True, "n": None, "big": 2**63},
        {"i": None, "d": 1.5, "s": "x", "j": [1], "b": False, "late": 1, "big": 1},
    ]
    path = write(tmp_path / "m.jsonl", "".join(json.dumps({"url": URLS[0], **row}) + "\n" for row in rows))
    reader = ManifestReader(path)
    assert [item.extra for item in reader] == rows
    assert reader.extra_types == {
        "i": "int64",
        "d": "double",
        "s": "string",
        "j": "json",
        "b": "bool",
        "n": "string",
        "big": "string",
        "late": "int64",
    }


def test_paths_are_relative_to_the_manifest(tmp_path):
    """A path row becomes an absolute path beside the manifest; the URL wins where both are given."""
    path = write(
        tmp_path / "m.csv", f"path,url,note\nmedia/a.jpg,,x\n./media/a.jpg,,y\nb.jpg,{URLS[0]},z\n/abs/c.png,,w\n"
    )
    first, same, both, absolute = ManifestReader(path)
    assert (first.url, first.path) == ("media/a.jpg", str(tmp_path / "media/a.jpg"))
    assert same.item_id == first.item_id == stable_id("media/a.jpg")
    assert (both.url, both.path, both.extra) == (URLS[0], None, {"note": "z"})
    assert absolute.path == "/abs/c.png"


def test_ids_are_equal_for_equivalent_urls_and_otherwise_stable():
    """Two spellings of one URL share their id; that makes duplicates visible."""
    one, two = ManifestReader(["HTTPS://Example.com:443/a#x", "https://example.com/a"])
    assert one.item_id == two.item_id == stable_id(canonical_url(one.url))


def test_quoted_cells_may_hold_delimiters_and_lines(tmp_path):
    """A quoted field is one cell."""
    (item,) = ManifestReader(write(tmp_path / "m.csv", f'note,url\n"a, ""b""\nc",{URLS[0]}\n'))
    assert item.extra == {"note": 'a, "b"\nc'}


@pytest.mark.parametrize("name", ["m.csv", "m.jsonl.gz", "m.parquet"])
def test_other_file_systems_are_read_through_arrow(tmp_path, name):
    """A URI is read like a local file and hashed as stored, packed or not."""
    path = tmp_path / name
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"url": URLS}), path)
    else:
        write(path, FORMATS[name.removesuffix(".gz")])
    reader = ManifestReader(path.as_uri())
    assert [item.url for item in reader] == URLS
    assert reader.sha256 == sha256(path.read_bytes()).hexdigest()


def test_relative_paths_in_a_manifest_elsewhere_are_problems(tmp_path):
    """Relative paths in a remote manifest are problems."""
    path = write(tmp_path / "m.csv", "path\na.jpg\n/abs/a.jpg\n")
    relative, absolute = ManifestReader(path.as_uri())
    assert "not on this machine" in relative.problem
    assert (absolute.problem, absolute.path) == (None, "/abs/a.jpg")


@pytest.mark.parametrize("uri", ["https://example.com/m.csv", "nosuch://bucket/m.csv", "file:///nowhere/at/all.csv"])
def test_places_that_cannot_be_opened_are_manifest_errors(uri):
    """A URI of no known file system, or of nothing, is a ManifestError."""
    with pytest.raises(ManifestError, match=uri):
        list(ManifestReader(uri))


STREAMS = {
    "csv": CSV.encode(),
    "semicolons": CSV.replace(",", ";").encode(),
    "jsonl": b"\n" + JSONL.encode(),
    "text": "\n".join(["# c", *URLS]).encode(),
    "packed": gzip.compress(CSV.encode()),
    "array": b" \n[" + json.dumps(URLS[0]).encode() + b',\n{"url": "' + URLS[1].encode() + b'"}]',
    "packed array": gzip.compress(json.dumps(URLS).encode()),
}


@pytest.mark.parametrize("form", STREAMS)
def test_standard_input_is_recognised_by_its_first_bytes(form):
    """The format of standard input is recognized by its first bytes, also in gzip."""
    reader = ManifestReader("-", stdin=io.BytesIO(STREAMS[form]))
    assert [item.url for item in reader] == URLS
    assert reader.sha256 == sha256(STREAMS[form]).hexdigest()


def test_parquet_on_standard_input_is_refused_with_a_way_out():
    """Parquet is read from its end, which a stream does not have."""
    with pytest.raises(ManifestError, match="Parquet"):
        list(ManifestReader("-", stdin=io.BytesIO(b"PAR1\x00\xff")))


def test_paths_on_standard_input_are_relative_to_the_working_folder():
    """Paths from standard input are relative to the working folder."""
    (item,) = ManifestReader("-", stdin=io.BytesIO(b"path\na.jpg\n"))
    assert item.path == str(Path.cwd() / "a.jpg")


@pytest.mark.parametrize("form", STREAMS)
def test_standard_input_can_be_read_again(form, monkeypatch):
    """Each reader of standard input reads it from the start, also if an earlier one stopped in between."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(STREAMS[form])))
    assert next(iter(ManifestReader("-"))).url == URLS[0]
    for _ in range(2):
        reader = ManifestReader("-")
        assert [item.url for item in reader] == URLS
        assert reader.sha256 == sha256(STREAMS[form]).hexdigest()


async def test_an_iterator_can_be_read_again_from_its_copy():
    """The copy of an iterator gives the items, the types and the digest of a list each time, also of bad rows."""
    rows = [URLS[0], Path("a.jpg"), {"URL": URLS[1], "when": date(2024, 1, 2), "tags": [1, None], "n": 2**70}, 5]
    listed = ManifestReader(rows)
    items, source = list(listed), await rereadable(row for row in rows)
    for _ in range(2):
        reader = ManifestReader(source)
        assert list(reader) == items
        assert (reader.name, reader.sha256, reader.extra_types) == ("generator", listed.sha256, listed.extra_types)
    assert await rereadable(rows) is rows


async def test_an_arrow_reader_can_be_read_again_from_its_copy():
    """A reader of Arrow batches gives its rows and the types of its columns each time."""
    table = pa.table({"url": URLS, "when": [date(2024, 1, 2), None]})
    source = await rereadable(table.to_reader())
    for _ in range(2):
        reader = ManifestReader(source)
        assert [item.url for item in reader] == URLS
        assert reader.extra_types == {"when": "date"}


def test_lists_of_urls_paths_and_dicts():
    """A list may hold texts, paths and mappings; what is neither is a row with a problem."""
    rows = [URLS[0], Path("a.jpg"), {"URL": URLS[1], "id": 7, "when": date(2024, 1, 2), "f": float("nan")}, 5]
    reader = ManifestReader(rows)
    first, second, third, fourth = reader
    assert first.url == URLS[0]
    assert second.path == str(Path.cwd() / "a.jpg")
    assert (third.item_id, third.extra) == ("7", {"when": "2024-01-02", "f": None})
    assert "type int" in fourth.problem
    again = ManifestReader(tuple(rows))
    assert list(again) == [first, second, third, fourth]
    assert again.sha256 == reader.sha256


def test_a_data_frame_is_a_manifest():
    """A DataFrame's columns are the manifest's; its row labels are not; missing values are null."""
    frame = pd.DataFrame({"url": URLS, "n": [1.0, None], "when": pd.to_datetime(["2024-01-02", None])}, index=[5, 6])
    reader = ManifestReader(frame)
    assert [item.extra for item in reader] == [{"n": 1.0, "when": "2024-01-02T00:00:00"}, {"n": None, "when": None}]
    assert reader.extra_types == {"n": "double", "when": "timestamp"}
    assert reader.name == "DataFrame"


def test_a_data_frame_of_mixed_types_is_read_row_by_row():
    """A column that mixes Python types is bad rows at worst, not a crash."""
    frame = pd.DataFrame({"url": [URLS[0], 5], "mixed": [1, "x"], "when": pd.to_datetime(["2024-01-02", None])})
    good, bad = ManifestReader(frame)
    assert good.extra == {"mixed": 1, "when": "2024-01-02T00:00:00"}
    assert bad.extra == {"mixed": "x", "when": None}
    assert "no text" in bad.problem


COLUMNS = {
    "pandas": pd.Series,
    "an index": pd.Index,
    "Polars": pl.Series,
    "Arrow": pa.array,
    "chunks": lambda urls: pa.chunked_array([[url] for url in urls]),
    "NumPy": np.array,
    "a generator": iter,
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_urls_is_a_manifest(name):
    """A Series of pandas or Polars, an array, a generator: a row for each URL, whatever is missing in it."""
    assert [item.url for item in ManifestReader(COLUMNS[name](URLS))] == URLS


def test_what_is_missing_in_a_series_is_a_bad_row():
    """A null among URLs is one bad row; a table of Arrow is still a table."""
    _, bad = ManifestReader(pd.Series([URLS[0], None]))
    assert "not a URL" in bad.problem
    (item,) = ManifestReader(pa.table({"url": URLS[:1], "n": [1]}))
    assert item.extra == {"n": 1}


def test_a_data_frame_without_the_column_is_an_error():
    """A table without URLs or paths is one error."""
    with pytest.raises(ManifestError, match="no column is named"):
        list(ManifestReader(pd.DataFrame({"link": URLS})))


def test_the_digest_is_known_at_the_end_only(tmp_path):
    """The digest exists after a full iteration and is the same each time."""
    reader = ManifestReader(write(tmp_path / "m.csv", CSV))
    next(iter(reader))
    with pytest.raises(RuntimeError):
        _ = reader.sha256
    assert list(reader) == list(reader)
    assert len(reader.sha256) == 64


class Endless(io.RawIOBase):
    """Endless stream that records how many bytes were read."""

    def __init__(self, line: bytes) -> None:
        self.line = line
        self.given = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return bytes of the same line, repeated."""
        start = self.given % len(self.line)
        self.given += size
        return (self.line * (size // len(self.line) + 2))[start : start + size]


def test_rows_are_streamed_not_loaded():
    """The first rows of an endless manifest are returned after little more than them is read."""
    endless = Endless(b"https://example.com/a.jpg\n")
    items = iter(ManifestReader("-", stdin=endless))
    for _ in range(1000):
        next(items)
    assert endless.given <= 4 * 1024 * 1024


def test_a_line_without_end_is_an_error_not_a_full_memory():
    """A line without an end is an error after a bounded number of bytes."""
    endless = Endless(b"x" * 4096)
    with pytest.raises(ManifestError, match="longer than"):
        next(iter(ManifestReader("-", stdin=endless)))
    assert endless.given <= 64 * 1024 * 1024


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)


def test_a_json_array_has_a_bound(tmp_path):
    """A JSON array that is too long is an error that says how to stream it."""
    path = tmp_path / "m.json.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b"[")
        for _ in range(MAX_JSON_CHARS // 2**20 + 1):
            file.write(b" " * 2**20)
    with pytest.raises(ManifestError, match="longer than 67108864 characters") as raised:
        list(ManifestReader(path))
    assert "JSON lines" in raised.value.hint


@given(cells=st.lists(st.tuples(CELLS, CELLS), max_size=8))
def test_other_columns_travel_unchanged_through_json_lines(cells):
    """Any text in JSON lines is read unchanged."""
    text = "".join(json.dumps({"url": URLS[0], "a": a, "b": b}) + "\n" for a, b in cells)
    items = list(ManifestReader("-", stdin=io.BytesIO(text.encode())))
    assert [(item.extra["a"], item.extra["b"]) for item in items] == cells
