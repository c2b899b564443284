"""Manifests on the command line: what is read, how much of it, and what cannot be."""

from __future__ import annotations

import json

import pytest

from lightmeter.testing import tiny_jpeg

PLAN = ("--no-precheck", "--features", "tags")


@pytest.fixture
def spoiled(tmp_path):
    """A table of 300 rows; the quote in its row 11 is never closed."""
    rows = [f"https://example.org/{n}.jpg,{n},{chr(34) if n == 11 else ''}a cat" for n in range(1, 301)]
    path = tmp_path / "spoiled.csv"
    path.write_text("\n".join(["url,id,caption", *rows]) + "\n")
    return path


def test_a_quote_that_is_not_closed_is_exit_code_2(command, spoiled):
    """Nothing is planned for a manifest of which nobody knows where its rows end; file and line are said."""
    told = command("plan", spoiled, *PLAN)
    assert told.code == 2
    assert f"{spoiled}:12: a quote is opened here and not closed: line 13 looks like a row" in told.err
    assert "--lenient" in told.err


def test_read_leniently_it_is_one_bad_row(command, spoiled, tmp_path):
    """With --lenient the other rows are planned, and all counts say how many rows were read."""
    saved = tmp_path / "plan.json"
    told = command("plan", spoiled, *PLAN, "--lenient", "--save", saved, "--json")
    assert told.code == 0, told.err
    assert f"{spoiled}: 300 rows read, 299 to send" in told.err
    assert (told.json["rows"], told.json["manifest"]["rows_read"]) == (300, 300)
    assert told.json["counts"]["skipped"] == 1
    assert json.loads(saved.read_text())["manifest"]["rows_read"] == 300


@pytest.fixture
def photos(tmp_path):
    """Two pictures, and a run's output folder that lies beside them."""
    for seed, name in enumerate(("photos/a.jpg", "photos/b/c.jpg", "photos/out/tables/x.jpg")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(tiny_jpeg(seed))
    (tmp_path / "photos/out/journal.sqlite").touch()
    return tmp_path / "photos"


@pytest.mark.parametrize(("written", "rows"), [("{}", 2), ("{}/**/*.jpg", 2), ("{}/*.jpg", 1), ("{}/b/c.jpg", 1)])
def test_folders_globs_and_single_files_are_manifests(command, photos, written, rows):
    """What holds the pictures can be planned as it is; patterns are ours to expand."""
    told = command("plan", written.format(photos), "--features", "tags", "--json")
    assert told.code == 0, told.err
    assert (told.json["rows"], told.json["counts"]["pending"]) == (rows, rows)


def test_what_is_no_manifest_is_exit_code_2(command, tmp_path):
    """A pattern without a match and a folder with nothing to read are wrong manifests, and said to be."""
    (tmp_path / "m.csv").write_text("image,sku\nhttps://example.org/a.jpg,1\n")
    for manifest, message in (("*.jpg", "no file matches"), ("", "no picture, no video")):
        told = command("plan", tmp_path / manifest, *PLAN)
        assert (told.code, message in told.err) == (2, True)
    told = command("plan", tmp_path / "m.csv", *PLAN, "--url-column", "picture")
    assert (told.code, "no column is named `picture`; its columns are image, sku" in told.err) == (2, True)


def test_columns_are_named_on_the_command_line(command, tmp_path):
    """--url-column and --id-column say which columns count, and the saved plan keeps them."""
    (tmp_path / "m.csv").write_text("image,sku\nhttps://example.org/a.jpg,1\n")
    named = ("--url-column", "image", "--id-column", "sku", "--save", tmp_path / "plan.json")
    told = command("plan", tmp_path / "m.csv", *PLAN, *named, "--json")
    assert told.code == 0, told.err
    saved = json.loads((tmp_path / "plan.json").read_text())
    assert (saved["options"]["url_column"], saved["listed"][0]["id"]) == ("image", "1")


def test_a_price_file_is_an_option(command, tmp_path):
    """--prices makes a back end priced that nobody listed; a broken file is exit code 2, with file and place."""
    (tmp_path / "m.txt").write_text("https://example.org/a.jpg\n")
    (tmp_path / "p.json").write_text('{"backends": {"mine": {"prices": {"tags": 2500}}}}')
    asked = (*PLAN, "--backends", "mine", "--base-url", "https://api.example.com")
    told = command("plan", tmp_path / "m.txt", *asked, "--prices", tmp_path / "p.json", "--json")
    assert told.code == 0, told.err
    assert told.json["price_per_image_millicredits"] == 2500
    assert command("plan", tmp_path / "m.txt", *asked).code == 2
    (tmp_path / "p.json").write_text('{"backends": {\n"mine": 5}}')
    told = command("plan", tmp_path / "m.txt", *asked, LIGHTMETER_PRICES=str(tmp_path / "p.json"))
    assert told.code == 2
    assert f"{tmp_path / 'p.json'} is no price table: backends.mine is not a mapping" in told.err
