"""Columns that the user names, in every format."""

from __future__ import annotations

import io
import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lightmeter.errors import ManifestError
from lightmeter.manifest.readers import ManifestReader
from lightmeter.manifest.row_parser import ReadOptions

NAMED = ReadOptions(url_column="image", id_column="sku", kind_column="type")
ROWS = [
    {"image": "https://example.com/a.jpg", "sku": "7", "type": "video", "url": "shop/1", "id": "x"},
    {"image": "media/b.png", "sku": "8", "type": "image", "url": "shop/2", "id": "y"},
]


def csv_of(rows, mark=","):
    return "\n".join(mark.join(line) for line in [list(rows[0]), *(row.values() for row in rows)]) + "\n"


def write(path):
    """Write the rows in the format that the suffix says."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, ROWS)))
    elif path.suffix == ".json":
        path.write_text(json.dumps(ROWS))
    else:
        path.write_text(csv_of(ROWS, {".csv": ",", ".tsv": "\t", ".txt": ";"}[path.suffix]))
    return path


FORMATS = ("m.csv", "m.tsv", "m.jsonl", "m.json", "m.parquet")


def check(items, folder):
    first, second = items
    assert (first.url, first.path, first.item_id, first.kind) == (ROWS[0]["image"], None, "7", "video")
    assert (second.url, second.path, second.item_id) == ("media/b.png", str(folder / "media/b.png"), "8")
    assert first.extra == {"url": "shop/1", "id": "x"}
    assert [first.problem, second.problem] == [None, None]


@pytest.mark.parametrize("name", FORMATS)
def test_named_columns_mean_what_they_are_named_for(tmp_path, name):
    """In a named column, a value with a scheme is a URL and others are paths; columns `url` and `id` are then extra."""
    reader = ManifestReader(write(tmp_path / name), options=NAMED)
    check(list(reader), tmp_path)
    assert set(reader.extra_types) == {"url", "id"}


def test_named_columns_of_what_is_in_memory_and_of_standard_input(tmp_path, monkeypatch):
    """DataFrames, lists of dicts and a pipe are read by the same names."""
    monkeypatch.chdir(tmp_path)
    check(list(ManifestReader(ROWS, options=NAMED)), tmp_path)
    check(list(ManifestReader(pd.DataFrame(ROWS), options=NAMED)), tmp_path)
    check(list(ManifestReader("-", stdin=io.BytesIO(csv_of(ROWS, ";").encode()), options=NAMED)), tmp_path)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("wanted", ["url_column", "id_column", "kind_column"])
def test_a_named_column_that_is_missing_is_an_error_with_all_columns(tmp_path, name, wanted):
    """The error says which columns there are, whatever the format."""
    options = ReadOptions(**{"url_column": "image", wanted: "picture"})
    with pytest.raises(ManifestError, match="no column is named `picture`") as raised:
        list(ManifestReader(write(tmp_path / name), options=options))
    assert "its columns are image, sku, type, url, id" in str(raised.value)


@pytest.mark.parametrize("text", ["https://example.com/a.jpg\n", "a\nb\n"])
def test_text_has_no_columns_to_name(tmp_path, text):
    """Plain text has no columns, so a named column is an error."""
    (tmp_path / "m.txt").write_text(text)
    with pytest.raises(ManifestError, match="no column is named `image`; it has no columns"):
        list(ManifestReader(tmp_path / "m.txt", options=NAMED))
    with pytest.raises(ManifestError, match="no column is named `image`"):
        list(ManifestReader(["https://example.com/a.jpg"], options=NAMED))


def test_rows_of_json_may_lack_what_some_have():
    """A named column must be in one of the first thousand rows of JSON, not in each."""
    rows = [{"sku": "1"}, {"image": "https://example.com/a.jpg", "sku": 2}]
    bad, good = ManifestReader(rows, options=ReadOptions(url_column="image", id_column="sku"))
    assert (bad.problem, bad.item_id) == ("neither a URL nor a path", "1")
    assert (good.problem, good.item_id) == (None, "2")
    endless = ({"url": "https://example.com/a.jpg"} for _ in iter(int, 1))
    with pytest.raises(ManifestError, match="its columns are url"):
        list(ManifestReader(endless, options=ReadOptions(id_column="sku")))


def test_a_missing_named_column_of_json_is_reported_before_the_first_row():
    """No row of JSON is read with a named column that the manifest lacks, however short or long it is."""
    row = {"url": "https://example.com/a.jpg"}
    for rows in ([row], [row] * 2000, [row] * 1000 + [{"sku": 1}]):
        with pytest.raises(ManifestError, match="no column is named `sku`"):
            next(iter(ManifestReader(rows, options=ReadOptions(id_column="sku"))))
    items = list(ManifestReader([row] * 999 + [{**row, "sku": 1}, row], options=ReadOptions(id_column="sku")))
    assert [item.seq for item in items] == list(range(1001))


def test_names_match_exactly_before_they_match_in_another_case():
    """The name `image` finds the column `Image` only if there is no column `image`."""
    row = {"IMAGE": "https://example.com/1.jpg", "image": "https://example.com/2.jpg"}
    assert [item.url for item in ManifestReader([row], options=ReadOptions(url_column="image"))] == [row["image"]]
    del row["image"]
    assert [item.url for item in ManifestReader([row], options=ReadOptions(url_column="image"))] == [row["IMAGE"]]


def test_one_column_may_be_the_address_and_the_id():
    """One column may have two roles."""
    (item,) = ManifestReader([{"path": "a.jpg"}], options=ReadOptions(url_column="path", id_column="path"))
    assert (item.item_id, item.url, item.extra, item.problem) == ("a.jpg", "a.jpg", {}, None)
