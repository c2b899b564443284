"""What goes wrong is said clearly, with the contract's exit code, and nothing is lost."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lightmeter.portal import Portal
from lightmeter.service.app import ServiceConfig, start


@pytest.fixture(scope="module")
def service(tmp_path_factory, cache):
    """A real service with two accounts: one rich, one with two credits."""
    portal = Portal("test-service")
    database = f"sqlite:///{tmp_path_factory.mktemp('service') / 'service.db'}"
    accounts = {"rich": 1000, "poor": 2}
    config = ServiceConfig(database=database, accounts=accounts, allow_private=True, backends=("palette",))
    running = portal.run(start(config))
    yield running.base_url
    portal.run(running.close())
    portal.close()


@pytest.fixture
def remote(service):
    """Options of a run against the service."""
    return ("--base-url", service, "--backends", "palette", "--yes", "--json")


@pytest.fixture
def manifest(tmp_path, data_server):
    path = tmp_path / "manifest.jsonl"
    names = ("coffee", "chelsea", "rocket", "flower")
    path.write_text("".join(json.dumps({"url": f"{data_server}/media/{name}.jpg"}) + "\n" for name in names))
    return path


def test_a_wrong_key_is_4_and_the_rows_wait(command, manifest, remote, tmp_path):
    """Access denied stops before anything is sent; with the right key the same run goes on."""
    denied = command("run", manifest, "--out", tmp_path / "out", *remote, LIGHTMETER_API_KEY="wrong")
    assert denied.code == 4
    assert "Access denied." in denied.err
    assert "LIGHTMETER_API_KEY" in denied.err
    assert denied.json["pending"] == 4
    resumed = command("resume", tmp_path / "out", "--json", LIGHTMETER_API_KEY="rich")
    assert (resumed.code, resumed.json["ok"]) == (0, 4)


def test_no_key_is_2(command, manifest, remote, tmp_path):
    """A named service needs a key, and the message names the variable."""
    missing = command("run", manifest, "--out", tmp_path / "out", *remote)
    assert missing.code == 2
    assert "LIGHTMETER_API_KEY" in missing.err


def test_an_unreachable_service_is_2_and_the_rows_wait(command, manifest, remote, service, tmp_path):
    """Nothing was sent and nothing is lost: the run goes on when the address is right."""
    away = ("--base-url", "http://127.0.0.1:9", *remote[2:])
    unreachable = command("run", manifest, "--out", tmp_path / "out", *away, LIGHTMETER_API_KEY="rich")
    assert unreachable.code == 2
    assert "cannot be reached" in unreachable.err
    assert unreachable.json["pending"] == 4
    resumed = command("resume", tmp_path / "out", "--base-url", service, "--json", LIGHTMETER_API_KEY="rich")
    assert (resumed.code, resumed.json["ok"]) == (0, 4)


def test_an_empty_account_is_3(command, manifest, remote, tmp_path):
    """What the account cannot pay for is over budget, and the run can go on later."""
    poor = command("run", manifest, "--out", tmp_path / "out", *remote, LIGHTMETER_API_KEY="poor")
    assert poor.code == 3
    assert (poor.json["ok"], poor.json["over_budget"]) == (2, 2)
    assert poor.json["credits"]["balance_after"] == 0
    assert "credits" in poor.err


def test_hidden_defaults_need_consent(command, manifest, service, tmp_path):
    """Without a back end named, the price is the account's secret: refused unless a person says yes."""
    refused = command(
        "run", manifest, "--out", tmp_path / "out", "--base-url", service, "--budget", 9, LIGHTMETER_API_KEY="rich"
    )
    assert refused.code == 2
    assert "No back end is named" in refused.err
    assert not (tmp_path / "out" / "journal.sqlite").exists()


def test_nobody_to_ask_needs_yes_or_a_budget(command, manifest, tmp_path):
    """Without a terminal nothing is asked, so one of the two must be said."""
    refused = command("run", manifest, "--out", tmp_path / "out")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert "--budget" in refused.err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("missing.csv", None, "missing.csv"),
        ("no_column.csv", b"picture\nhttp://x/a.jpg,b\n", "url"),
        ("latin.csv", b"url\nhttp://x/\xe9.jpg\n", "UTF-8"),
        ("broken.csv.gz", b"\x1f\x8b nothing", "broken.csv.gz"),
        ("picture.xyz", b"\x00\x01", "picture.xyz"),
    ],
)
def test_an_unreadable_manifest_is_2(command, tmp_path, name, content, said):
    """A manifest that cannot be read at all is one clear sentence, and no folder is made."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    unreadable = command("run", tmp_path / name, "--out", tmp_path / "out", "--yes")
    assert unreadable.code == 2
    assert unreadable.err.startswith("error: ")
    assert said in unreadable.err
    assert "Traceback" not in unreadable.err
    assert not (tmp_path / "out" / "journal.sqlite").exists()


def test_bad_rows_are_rows_with_reasons(command, remote, tmp_path, data_server):
    """Rows that are no URL, or lead nowhere, are counted, explained, and cost nothing; good ones are analysed."""
    manifest = tmp_path / "mixed.csv"
    good = f"{data_server}/media/coffee.jpg"
    manifest.write_text(f"id,url\na,{good}\nb,not a url\nc,{data_server}/nothing.jpg\nd,{good}#again\ne,\n")
    mixed = command("run", manifest, "--out", tmp_path / "out", *remote, LIGHTMETER_API_KEY="rich")
    assert mixed.code == 0, mixed.err
    assert (mixed.json["ok"], mixed.json["skipped"], mixed.json["duplicate"]) == (1, 3, 1)
    assert mixed.json["credits"]["paid"] == 1
    assert "not a URL" in mixed.err
    asked = command("sql", tmp_path / "out", "SELECT item_id, status, reason, error FROM assets ORDER BY item_id")
    assert 'b,skipped,bad_row,"not a URL' in asked.out
    assert "c,skipped,reach" in asked.out
    colors = command("sql", tmp_path / "out", "SELECT item_id, count(*) FROM colors GROUP BY 1 ORDER BY 1")
    first, second = colors.out.splitlines()[1:]
    assert first.split(",")[1] == second.split(",")[1]  # the duplicate has its original's facts


def test_a_saved_plan_is_done_exactly_or_not_at_all(command, tmp_path, data_server):
    """`run --plan` does what was planned, and refuses a manifest that changed since."""
    manifest = tmp_path / "manifest.txt"
    manifest.write_text(f"{data_server}/media/coffee.jpg\n")
    planned = command("plan", manifest, "--features", "colors", "--budget", 5, "--save", tmp_path / "plan.json")
    assert planned.code == 0, planned.err
    assert "1 credit" in planned.out
    done = command("run", "--plan", tmp_path / "plan.json", "--out", tmp_path / "out", "--json")
    assert (done.code, done.json["ok"], done.json["credits"]["budget"]) == (0, 1, 5)
    assert len(command("sql", tmp_path / "out", "SELECT * FROM tags").out.splitlines()) == 1
    manifest.write_text(f"{data_server}/media/chelsea.jpg\n")
    changed = command("run", "--plan", tmp_path / "plan.json", "--out", tmp_path / "other", "--yes")
    assert changed.code == 2
    assert "changed since it was planned" in changed.err


def test_tables_can_be_rebuilt_from_the_journal(command, tmp_path, data_server):
    """Without its tables a run is still whole: `rebuild` writes them again, equal, and sends nothing."""
    manifest = tmp_path / "manifest.txt"
    manifest.write_text(f"{data_server}/media/coffee.jpg\n")
    assert command("run", manifest, "--out", tmp_path / "out", "--features", "colors", "--yes").code == 0
    question = "SELECT * FROM colors ORDER BY hex"
    before = command("sql", tmp_path / "out", question).out
    shutil.rmtree(tmp_path / "out" / "tables")
    assert command("rebuild", tmp_path / "out").code == 0
    assert command("sql", tmp_path / "out", question).out == before
    assert len(before.splitlines()) > 1


def test_a_wrong_query_is_2(command, tmp_path):
    """DuckDB's own message reaches the user."""
    part = tmp_path / "tables" / "tags" / "part-00000.parquet"
    part.parent.mkdir(parents=True)
    pq.write_table(pa.table({"name": ["cat"]}), part)
    wrong = command("sql", tmp_path, "SELECT nonsense FROM tags")
    assert wrong.code == 2
    assert "nonsense" in wrong.err


def test_a_folder_without_a_run_is_2(command, tmp_path):
    """Verbs that need a run say that there is none."""
    for verb in ("status", "resume", "rebuild"):
        ended = command(verb, tmp_path / "nothing")
        assert ended.code == 2
        assert "holds no run" in ended.err
