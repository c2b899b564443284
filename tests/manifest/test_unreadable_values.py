"""A value that JSON or a table cannot hold is null or has a `?`, and refuses neither its row nor the file."""

from __future__ import annotations

import datetime as dt
import io
import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lightmeter as lm
from lightmeter.manifest.json_values import MAX_NESTING
from lightmeter.manifest.readers import ManifestReader
from tests.manifest.test_tars import make_tar

URL = "https://example.com/a.jpg"


def read_json(text, form):
    """Return the items and notes of JSON objects, one a line in `text`, as JSON lines or as an array."""
    content = text if form == "jsonl" else f"[{text.strip().replace(chr(10), ',')}]"
    reader = ManifestReader("-", stdin=io.BytesIO(content.encode("utf-8", "surrogateescape")))
    return list(reader), reader.notes


VALUES = {
    "NaN": (None, "NaN or infinite"),
    "-Infinity": (None, "NaN or infinite"),
    "1e999": (None, "NaN or infinite"),
    "[1, NaN, [Infinity]]": ([1, None, [None]], "NaN or infinite"),
    '"\\ud800x"': ("?x", "not valid Unicode"),
    '{"\\udc00": ["\\udfff"]}': ({"?": ["?"]}, "not valid Unicode"),
    '"caf\udce9"': ("caf?", "not valid Unicode"),
    "[" * 5000 + "]" * 5000: (None, f"nested deeper than {MAX_NESTING} levels"),
    '"a\tb"': ("a\tb", None),
    '{"a": 1, "a": 2}': ({"a": 2}, None),
    "1" * 5000: ("1" * 5000, None),
}


@pytest.mark.parametrize("form", ["jsonl", "json"])
@pytest.mark.parametrize("value", VALUES, ids=lambda value: value[:20])
def test_an_odd_value_of_json_changes_that_cell_alone(value, form):
    """What strict JSON lacks is null or has a `?`, with a note; the row and the other rows are as they are."""
    expected, note = VALUES[value]
    text = f'{{"id": "1", "url": "{URL}", "v": {value}, "w": [0.5]}}\n{{"id": "2", "url": "{URL}", "w": "é"}}\n'
    (odd, plain), notes = read_json(text, form)
    assert (odd.item_id, odd.url, odd.problem, odd.extra) == ("1", URL, None, {"v": expected, "w": [0.5]})
    assert (plain.item_id, plain.problem, plain.extra) == ("2", None, {"w": "é"})
    assert [f"values of 'v' that are {note}" in one for one in notes] == ([] if note is None else [True])


@pytest.mark.parametrize("form", ["jsonl", "json"])
def test_an_address_with_a_replaced_character_is_not_sent(form):
    """A `?` in an address would be another address: such a row is a bad row, wherever it was read."""
    address = "https://example.com/\\ud800.jpg"
    items, _ = read_json(f'{{"url": "{address}"}}\n{{"path": "caf\udce9.jpg"}}\n{{"url": NaN}}\n', form)
    assert [item.problem for item in items] == [
        "its url is not valid Unicode, read with `?`",
        "its path is not valid Unicode, read with `?`",
        "its url is NaN or infinite, read as null",
    ]
    lone = json.loads(f'"{address}"')
    for source in ([lone], [{"url": lone}], iter([lone])):
        (item,) = ManifestReader(source)
        assert item.problem == "its url is not valid Unicode, read with `?`"


def test_bytes_that_are_no_utf8_change_their_cell_alone():
    """In CSV and in text, bytes of another encoding are `?`; an address with such bytes is a bad row."""
    content = f"url,note\n{URL}?1,café\nhttps://example.com/é.jpg,x\n{URL}?2,é\n".encode("latin-1")
    reader = ManifestReader("-", stdin=io.BytesIO(content))
    one, bad, two = reader
    assert (one.extra["note"], one.problem, two.extra["note"], two.problem) == ("caf?", None, "?", None)
    assert (bad.url, bad.problem) == ("https://example.com/?.jpg", "its url is not valid Unicode, read with `?`")
    assert "values of 'note' that are not valid Unicode, read with `?`: 2, such as row 1" in reader.notes
    bad, good = ManifestReader("-", stdin=io.BytesIO(f"https://example.com/é.jpg\n{URL}\n".encode("latin-1")))
    assert (bad.problem, good.problem) == ("its url is not valid Unicode, read with `?`", None)


def test_an_odd_value_in_a_tar_changes_that_cell_alone(tmp_path):
    """The texts of a sample may have any value and any bytes."""
    make_tar(tmp_path / "m.tar", {"a.jpg": b"x", "a.json": b'{"n": [NaN]}', "a.txt": b"caf\xe9"})
    reader = ManifestReader(tmp_path / "m.tar")
    (item,) = reader
    assert (item.extra, item.problem, len(reader.notes)) == ({"json": {"n": [None]}, "txt": "caf?"}, None, 2)


def test_notes_are_shown_by_check_and_plan(tmp_path):
    """Plans, also streamed and saved ones, and checks say how many values were not read."""
    (tmp_path / "m.jsonl").write_text(f'{{"url": "{URL}", "v": NaN}}\n{{"url": "{URL}", "v": NaN}}\n')
    note = "values of 'v' that are NaN or infinite, read as null: 2, such as row 1"
    plan = lm.plan(tmp_path / "m.jsonl", features=["tags"], precheck=False, budget=0)
    assert plan.to_dict()["manifest_notes"] == [note]
    assert f"note: {note}" in str(plan)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"x")
    (tmp_path / "photos" / "a.txt").touch()
    report = lm.check(tmp_path / "photos")
    assert report.to_dict()["notes"] == ["files of other types, which are not read: 1, such as a.txt"]
    assert "note: files of other types" in str(report)


@pytest.fixture
def cells(tmp_path):
    """Return a function that writes columns to Parquet, and returns the cells of `v`, the type of `v` and the notes."""

    def read(values, **options):
        urls = [f"{URL}?{n}" for n in range(len(values))]
        pq.write_table(pa.table({"url": urls, "v": values}), tmp_path / "m.parquet", **options)
        reader = ManifestReader(tmp_path / "m.parquet")
        items = list(reader)
        assert [(item.url, item.problem) for item in items] == [(url, None) for url in urls]
        return [item.extra["v"] for item in items], reader.extra_types["v"], reader.notes

    return read


FAR = ["9999-12-31T23:59:59.999999", "0001-01-01T00:00:00", "2262-04-12T00:00:00", None]


@pytest.mark.parametrize("in_a_folder", [False, True])
def test_int96_of_any_year_is_right(tmp_path, in_a_folder):
    """Timestamps of the type INT96 before 1678 and after 2262 are read as they stand."""
    moments = [moment and dt.datetime.fromisoformat(moment) for moment in FAR]
    table = pa.table({"url": [URL] * 4, "v": pa.array(moments, pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "m.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
    items = ManifestReader(tmp_path if in_a_folder else tmp_path / "m.parquet")
    assert [item.extra["v"] for item in items] == FAR


UNREADABLE = {
    "timestamp": (pa.array([253402300800000000, 0], pa.timestamp("us")), "1970-01-01T00:00:00"),
    "with a zone": (pa.array([-(2**62), 0], pa.timestamp("us", "+02:00")), "1970-01-01T00:00:00+00:00"),
    "date": (pa.array([4_000_000, 0], pa.date32()), "1970-01-01"),
    "nested": (pa.array([[253402300800000000], [0]], pa.list_(pa.timestamp("us"))), ["1970-01-01T00:00:00"]),
    "dictionary": (pa.array([253402300800000000, 0], pa.timestamp("us")).dictionary_encode(), "1970-01-01T00:00:00"),
    "duration": (pa.array([2**62, 1], pa.duration("s")), "0:00:01"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_moment_that_python_lacks_is_null_with_a_note(cells, name):
    """A date, time or duration out of range is null, alone or inside a list; the next value is read."""
    values, good = UNREADABLE[name]
    read, _, (note,) = cells(values)
    assert read == [None, good]
    assert note.startswith("values of 'v' that are not readable as ")
    assert note.endswith("read as null: 1, such as row 1")


def test_nan_and_invalid_texts_of_parquet_have_a_note(cells):
    """NaN and infinite numbers are null; a text that is not UTF-8 has a `?`."""
    read, kind, notes = cells(pa.array([math.nan, math.inf, 1.5, None]))
    assert (read, kind) == ([None, None, 1.5, None], "double")
    assert notes == ["values of 'v' that are NaN or infinite, read as null: 2, such as row 1"]
    texts = pa.Array.from_buffers(pa.string(), 2, pa.array([b"caf\xe9", b"ok"], pa.binary()).buffers())
    read, kind, notes = cells(texts)
    assert (read, kind) == (["caf?", "ok"], "string")
    assert "not valid Unicode" in notes[0]


TEXTS = {
    "large": pa.large_string(),
    "view": pa.string_view(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "large dictionary": pa.dictionary(pa.int64(), pa.large_string()),
}


@pytest.mark.parametrize("kind", [*TEXTS, "run ends"])
def test_every_kind_of_text_is_text(kind):
    """Text of any encoding of Arrow is text, in an extra column and as an address or id."""
    values = [URL, URL, None, "https://example.com/b.jpg"]
    if kind == "run ends":
        column = pa.RunEndEncodedArray.from_arrays([2, 3, 4], [URL, None, values[3]])
    else:
        column = pa.array(values).cast(TEXTS[kind]) if "dict" not in kind else pa.array(values, TEXTS[kind])
    reader = ManifestReader(pa.table({"url": column, "id": column, "v": column}))
    assert [item.extra["v"] for item in reader] == values
    assert [item.url for item in reader] == [value or "" for value in values]
    assert [item.item_id for item in reader][::3] == values[::3]
    assert reader.extra_types == {"v": "string"}


def test_unmarked_bytes_are_the_texts_that_they_are(tmp_path):
    """If addresses are bytes, the file marks no text: bytes are UTF-8, and base64 where they are not."""
    table = pa.table(
        {"id": [b"007", b"\xff"], "url": [URL.encode(), b"https://e.org/\xe9.jpg"], "v": [b"caf\xc3\xa9", b"\xff"]}
    )
    pq.write_table(table, tmp_path / "m.parquet")
    reader = ManifestReader(tmp_path / "m.parquet")
    good, bad = reader
    assert (good.item_id, good.url, good.problem, good.extra) == ("007", URL, None, {"v": "café"})
    assert (bad.problem, bad.extra) == ("its url is not UTF-8, read as base64", {"v": "/w=="})
    marked = pa.table({"id": [b"7"], "url": [URL], "v": [b"text"]})
    (item,) = ManifestReader(marked)
    assert (item.item_id, item.extra) == ("7", {"v": "dGV4dA=="})
    listed, framed = ManifestReader([{"url": URL.encode()}, {"url": URL, "v": b"\xff"}])
    assert (listed.url, listed.problem, framed.extra) == (URL, None, {"v": "/w=="})


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(st.characters(), max_size=4)
)


@given(values=st.lists(st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=5), min_size=1))
def test_json_of_python_reads_as_python_wrote_it(values):
    """What Python's json module writes comes back, but for numbers that JSON lacks and lone surrogates."""

    def expected(value):
        if isinstance(value, list):
            return [expected(one) for one in value]
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            return str(value)
        return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value

    lines = "".join(json.dumps({"url": URL, "v": value}) + "\n" for value in values)
    for form in ("jsonl", "json"):
        items, _ = read_json(lines, form)
        assert [(item.url, item.problem, item.extra["v"]) for item in items] == [
            (URL, None, expected(v)) for v in values
        ]
