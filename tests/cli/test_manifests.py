"""Manifests on the command line: accepted forms, column options and errors."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from lightmeter.api.run_result import summarize
from lightmeter.testing import tiny_jpeg

PLAN = ("--no-precheck", "--features", "tags")


@pytest.fixture
def broken_csv(tmp_path):
    """A CSV file of 300 rows with an unclosed quote in row 11."""
    rows = [f"https://example.org/{n}.jpg,{n},{chr(34) if n == 11 else ''}a cat" for n in range(1, 301)]
    path = tmp_path / "broken_csv.csv"
    path.write_text("\n".join(["url,id,caption", *rows]) + "\n")
    return path


def test_an_unclosed_quote_is_exit_code_2(command, broken_csv):
    """A CSV file with an unclosed quote is rejected, with file and line."""
    result = command("plan", broken_csv, *PLAN)
    assert result.code == 2
    assert f"{broken_csv}:12: a quote is opened here, and the file ends before the quote that closes it" in result.err
    assert "--lenient" in result.err


def test_lenient_makes_an_unclosed_quote_one_bad_row(command, broken_csv, tmp_path):
    """With --lenient the rows before the quote are planned, and all counts include the bad row of the rest."""
    saved = tmp_path / "plan.json"
    result = command("plan", broken_csv, *PLAN, "--lenient", "--save", saved, "--json")
    assert result.code == 0, result.err
    assert f"{broken_csv}: 11 rows read, 10 to send" in result.err
    assert (result.json["rows"], result.json["manifest"]["rows_read"]) == (11, 11)
    assert result.json["counts"]["skipped"] == 1
    assert json.loads(saved.read_text())["manifest"]["rows_read"] == 11


def test_a_line_inside_quotes_is_never_paid_for(command, tmp_path):
    """A valid record of two lines is one row with and without --lenient, and a note says what its text looks like."""
    listed = tmp_path / "list.csv"
    listed.write_text('path,note\ncoffee.jpg,"line\nphoto.jpg,x"\n')
    for name in ("coffee.jpg", "photo.jpg"):
        (tmp_path / name).write_bytes(b"x")
    for options in ((), ("--lenient",)):
        result = command("plan", listed, *PLAN, *options, "--json")
        assert (result.code, result.json["rows"], result.json["counts"]["pending"]) == (0, 1, 1)
        assert "looks like a row but stands inside quotes" in result.json["manifest_notes"][0]
        assert "note values of 'note'" in result.err


def test_a_manifest_of_bad_rows_alone_is_named_as_such(command, tmp_path):
    """The plan and the end of the run say that no row can be analyzed; the reason says where local paths belong."""
    listed = tmp_path / "list.txt"
    listed.write_text("photos/a.jpg\nphotos/b.jpg\n")
    run = command("run", listed, "--out", tmp_path / "out", "--features", "tags", "--yes")
    assert "warning: no row can be analyzed: each row of the manifest is a bad row" in run.out
    assert "local files need a table with the column `path`, such as CSV with the header `path`" in run.out
    assert "next: no row can be analyzed" in run.out
    assert "nothing is left to do" not in run.out
    listed.rename(named := tmp_path / "list.csv")
    named.write_text("path\n" + named.read_text())
    assert "no row can be analyzed" not in command("plan", named, *PLAN).out


@pytest.fixture
def photos(tmp_path):
    """Two pictures, with the output folder of a run beside them."""
    for seed, name in enumerate(("photos/a.jpg", "photos/b/c.jpg", "photos/out/tables/x.jpg")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(tiny_jpeg(seed))
    (tmp_path / "photos/out/journal.sqlite").touch()
    return tmp_path / "photos"


@pytest.mark.parametrize(("written", "rows"), [("{}", 2), ("{}/**/*.jpg", 2), ("{}/*.jpg", 1), ("{}/b/c.jpg", 1)])
def test_folders_globs_and_single_files_are_manifests(command, photos, written, rows):
    """A folder, a glob and a single file can be planned; lightmeter expands the glob."""
    result = command("plan", written.format(photos), "--features", "tags", "--json")
    assert result.code == 0, result.err
    assert (result.json["rows"], result.json["counts"]["pending"]) == (rows, rows)


def test_a_changed_manifest_on_standard_input_is_planned_into_a_used_folder(environment, photos, tmp_path):
    """A second `producer | lightmeter run -` into a folder sends its new rows; the same rows again send nothing."""
    (photos / "d.jpg").write_bytes(tiny_jpeg(5))
    arguments = ("run", "-", "--out", tmp_path / "out", "--features", "colors", "--yes", "--json")

    def run(*names):
        rows = "\n".join(["path", *(str(photos / name) for name in names), ""])
        process = [sys.executable, "-m", "lightmeter", *map(str, arguments)]
        ended = subprocess.run(process, input=rows, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout.splitlines()[-1])

    def spent(summary):
        return summary["credits"]["balance_before"] - summary["credits"]["balance_after"]

    for names, credits_ in ((("a.jpg", "b/c.jpg"), 2), (("a.jpg", "b/c.jpg", "d.jpg"), 1)):
        for _ in range(2):
            summary = run(*names)
            assert (summary["rows"], summary["ok"], spent(summary)) == (len(names), len(names), credits_)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_for_standard_input(environment, number):
    """Ctrl-C and SIGTERM end a command with 130 although the producer of its manifest has not ended."""
    process = [sys.executable, "-m", "lightmeter", "plan", "-", *PLAN]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(process, env=environment, **pipes) as running:
        try:
            running.stdin.write(b"path\n" + (b"a" * 100 + b".jpg\n") * 12_000)
            running.stdin.flush()
            assert b"rows" in running.stderr.readline()  # the first rows are read
            running.send_signal(number)
            assert running.wait(timeout=60) == 130
        finally:
            running.kill()


def test_an_empty_glob_or_folder_is_exit_code_2(command, tmp_path):
    """A pattern without a match and a folder without media are rejected with a message."""
    (tmp_path / "m.csv").write_text("image,sku\nhttps://example.org/a.jpg,1\n")
    for manifest, message in (("*.jpg", "no file matches"), ("", "no picture, no video")):
        result = command("plan", tmp_path / manifest, *PLAN)
        assert (result.code, message in result.err) == (2, True)
    result = command("plan", tmp_path / "m.csv", *PLAN, "--url-column", "picture")
    assert (result.code, "no column is named `picture`; its columns are image, sku" in result.err) == (2, True)


def test_columns_are_named_on_the_command_line(command, tmp_path):
    """--url-column and --id-column select the columns, and the saved plan keeps them."""
    (tmp_path / "m.csv").write_text("image,sku\nhttps://example.org/a.jpg,1\n")
    named = ("--url-column", "image", "--id-column", "sku", "--save", tmp_path / "plan.json")
    result = command("plan", tmp_path / "m.csv", *PLAN, *named, "--json")
    assert result.code == 0, result.err
    saved = json.loads((tmp_path / "plan.json").read_text())
    assert (saved["options"]["url_column"], saved["listed"][0]["id"]) == ("image", "1")


def test_a_price_file_is_an_option(command, tmp_path):
    """--prices adds a price for an unlisted back end; a broken file is exit code 2, with file and position."""
    (tmp_path / "m.txt").write_text("https://example.org/a.jpg\n")
    (tmp_path / "p.json").write_text('{"backends": {"mine": {"prices": {"tags": 2500}}}}')
    arguments = (*PLAN, "--backends", "mine", "--base-url", "https://api.example.com")
    result = command("plan", tmp_path / "m.txt", *arguments, "--prices", tmp_path / "p.json", "--json")
    assert result.code == 0, result.err
    assert result.json["price_per_image_millicredits"] == 2500
    assert command("plan", tmp_path / "m.txt", *arguments).code == 2
    (tmp_path / "p.json").write_text('{"backends": {\n"mine": 5}}')
    result = command("plan", tmp_path / "m.txt", *arguments, LIGHTMETER_PRICES=str(tmp_path / "p.json"))
    assert result.code == 2
    assert f"{tmp_path / 'p.json'} is not a price table: backends.mine is not a mapping" in result.err


@pytest.mark.parametrize("named", [["photos"], ["photos", "--stream"], ["-"]])
def test_a_run_with_a_budget_needs_no_standard_input(photos, tmp_path, named):
    """With --budget, `run` starts without a question also where standard input is closed; a manifest on it is empty."""
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-m", "lightmeter"]
    words = ["run", *named, "--out", "out", "--features", "colors", "--backends", "palette", "--budget", "5"]
    ended = subprocess.run([*closed, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr
    assert summarize(tmp_path / "out").counts["ok"] == (0 if "-" in named else 2)
