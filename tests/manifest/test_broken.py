"""Invalid rows and invalid manifests."""

from __future__ import annotations

import gzip
import io
from itertools import product

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.errors import ManifestError
from lightmeter.manifest.readers import ManifestReader
from lightmeter.manifest.row_parser import ReadOptions

URLS = ["https://example.com/a.jpg", "https://example.com/b.mp4"]
CSV = "url,note\n" + "".join(f"{url},x\n" for url in URLS)


BAD_CSV_ROWS = {
    ",image": "neither a URL nor a path",
    "   ,": "neither a URL nor a path",
    "a.jpg,": "not a URL: it has no scheme",
    "photos/a.jpg,image": "; local files need a table with the column `path`, such as CSV with the header `path`",
    "ftp://example.com/a.jpg,": "not a URL: its scheme is 'ftp'",
    "https://example.com/a b.jpg,": "percent-encoded",
    "https://example.com/a.gif,animation": "its kind is 'animation'",
    "https://example.com/a.gif": "has 1 fields, and the header 2",
    "https://example.com/a.gif,image,x": "has 3 fields, and the header 2",
}


@pytest.mark.parametrize(("row", "problem"), BAD_CSV_ROWS.items())
def test_a_bad_row_is_an_item_with_a_problem(tmp_path, row, problem):
    """An invalid row has a problem, and the rows after it are read normally."""
    path = tmp_path / "m.csv"
    path.write_text(f"url,kind\n{row}\nhttps://example.com/ok.jpg,image\n", encoding="utf-8")
    bad, good = ManifestReader(path)
    assert problem in bad.problem
    assert good.problem is None
    assert good.seq == 1
    assert bad.item_id != good.item_id


BAD_JSON_ROWS = {
    "{": "line 1 is broken JSON",
    "[1]": "line 1 is no JSON object",
    '"https://example.com/"': "line 1 is no JSON object",
    '{"link": "https://example.com/"}': "neither a URL nor a path",
    '{"url": 5}': "its url is 5, which is no text",
    '{"url": "https://example.com/", "kind": 1}': "its kind is 1",
    '{"path": "s3://bucket/a.jpg"}': "no path of a local file",
    '{"path": "a\\u0000b"}': "no path of a local file",
    "[" * 3000: "line 1 is broken JSON",
}


@pytest.mark.parametrize(("row", "problem"), BAD_JSON_ROWS.items())
def test_a_bad_json_line_is_an_item_with_a_problem(tmp_path, row, problem):
    """A broken line of JSON, or one that is no object, is one row with a problem."""
    path = tmp_path / "m.jsonl"
    path.write_text(f'{row}\n{{"url": "{URLS[0]}"}}\n', encoding="utf-8")
    bad, good = ManifestReader(path)
    assert problem in bad.problem
    assert good.problem is None


def test_a_bad_element_of_a_json_array_is_an_item_with_a_problem(tmp_path):
    """An element of another type is a row with a problem."""
    path = tmp_path / "m.json"
    path.write_text(f'[5, ["x"], {{"link": 1}}, null, "{URLS[0]}"]')
    *bad, good = ManifestReader(path)
    assert [item.problem for item in bad] == [
        "element 0 of the array is neither an object nor a text",
        "element 1 of the array is neither an object nor a text",
        "neither a URL nor a path",
        "element 3 of the array is neither an object nor a text",
    ]
    assert (good.url, good.problem) == (URLS[0], None)


UNREADABLE = {
    "broken.json": (b'[\n"https://example.com/a.jpg" 5\n]', ":2: this is broken JSON"),
    "cut.json": (b'[{"url": "https://example.com/', ":1: this is broken JSON"),
    "lines.json": (b'{"url": "x"}\n{"url": "y"}\n', ":2: this is broken JSON"),
    "object.json": (b'{"url": "x"}', "this is no JSON array"),
    "empty.json": (b"", ":1: this is broken JSON"),
    "cut.json.gz": (gzip.compress(b"[]")[:-4], "the gzip is broken"),
    "missing.csv": (None, "no such file"),
    "empty.csv": (b"", ":1: it is empty"),
    "other.csv": (b"link,id\nhttps://example.com/,1\n", ":1: the header names no column"),
    "headerless.csv": (b"https://example.com/a.jpg,cat\n", ":1: the header names no column"),
    "twice.csv": (b"url,note,note\n", ":1: the column 'note' occurs twice"),
    "open.csv": (
        f'url,note\n{URLS[0]},"open\nx\n'.encode(),
        ":2: a quote is opened here, and the file ends",
    ),
    "utf32.csv": ("url\n".encode("utf-32-be"), ":1: the header names no column"),
    "cut.csv.gz": (gzip.compress(CSV.encode())[:-12], "the gzip is broken"),
    "not.csv.gz": (CSV.encode(), "the gzip is broken"),
    "trailing.csv.gz": (gzip.compress(CSV.encode()) + b"garbage", "the gzip is broken"),
    "fake.parquet": (b"PAR1 no", "cannot be read as Parquet"),
    "short.parquet": (b"", "cannot be read as Parquet"),
    "what.xlsx": (b"", "does not say what format"),
    "packed.parquet.gz": (b"", "does not say what format"),
    "noname": (b"", "does not say what format"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_unreadable_manifest_is_one_error_with_its_place(tmp_path, name):
    """A manifest that cannot be read raises ManifestError with the file and, if known, the line."""
    content, message = UNREADABLE[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ManifestError) as raised:
        list(ManifestReader(tmp_path / name))
    assert str(raised.value).startswith(str(tmp_path / name))
    assert message in str(raised.value)


def test_a_plan_file_is_no_manifest_and_says_so(tmp_path):
    """A plan file in place of a manifest is an error that names the command for plans."""
    (tmp_path / "plan.json").write_text('{"plan_version": 2}')
    with pytest.raises(ManifestError, match="no JSON array") as raised:
        list(ManifestReader(tmp_path / "plan.json"))
    assert "run --plan" in raised.value.hint


def test_an_empty_folder_is_no_manifest(tmp_path):
    """A folder named like a manifest is an error that says what to do instead."""
    (tmp_path / "m.csv").mkdir()
    with pytest.raises(ManifestError, match="folder") as raised:
        list(ManifestReader(tmp_path / "m.csv"))
    assert raised.value.hint


def test_parquet_without_the_column_names_what_it_has(tmp_path):
    """A Parquet file without url and path says which columns it has."""
    pq.write_table(pa.table({"link": ["x"]}), tmp_path / "m.parquet")
    with pytest.raises(ManifestError, match="no column is named") as raised:
        list(ManifestReader(tmp_path / "m.parquet"))
    assert "link" in raised.value.hint


@given(content=st.binary(max_size=300))
def test_no_bytes_at_all_raise_anything_but_a_manifest_error(content):
    """Any bytes are rows, good or bad, or one ManifestError."""
    heads = (b"", b"url,id\n", b"{", b"[", b"\x1f\x8b\x08\x00")
    for head, lenient in product(heads, (False, True)):
        try:
            items = list(ManifestReader("-", stdin=io.BytesIO(head + content), options=ReadOptions(lenient=lenient)))
        except ManifestError:
            continue
        assert [item.seq for item in items] == list(range(len(items)))
