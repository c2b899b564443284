"""Each failure prints a clear message, ends with the documented exit code, and loses nothing."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lightmeter.background_loop import BackgroundLoop
from lightmeter.service.app import ServiceConfig, start_service
from tests.sweeps import sweep


@pytest.fixture(scope="module")
def service(tmp_path_factory, cache):
    """A real service with accounts: one with many credits, two with two credits each, one with none."""
    portal = BackgroundLoop("test-service")
    database = f"sqlite:///{tmp_path_factory.mktemp('service') / 'service.db'}"
    accounts = {"rich": 1000, "poor": 2, "poor2": 2, "empty": 0}
    config = ServiceConfig(database=database, accounts=accounts, allow_private=True, backends=("palette",))
    running = portal.run(start_service(config))
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


def test_a_wrong_key_exits_with_4_before_any_row_is_read(command, manifest, remote, service, tmp_path):
    """Access denied stops `plan` and `run` before they fetch anything or create a journal."""
    for verb in (("run", manifest, "--out", tmp_path / "out", *remote), ("plan", manifest, "--base-url", service)):
        denied = command(*verb, LIGHTMETER_API_KEY="wrong")
        assert denied.code == 4
        assert "Access denied." in denied.err
        assert "LIGHTMETER_API_KEY" in denied.err
        assert "planning" not in denied.err
        assert "Traceback" not in denied.err
    assert not (tmp_path / "out" / "journal.sqlite").exists()


def test_a_revoked_key_exits_with_4_and_rows_stay_pending(command, manifest, remote, tmp_path):
    """A run with a revoked key keeps its rows, and continues with a valid key."""
    begun = command("run", manifest, "--out", tmp_path / "out", *remote, "--budget", 0, LIGHTMETER_API_KEY="rich")
    assert (begun.code, begun.json["over_budget"]) == (3, 4)
    denied = command("resume", tmp_path / "out", "--budget", 9, "--json", LIGHTMETER_API_KEY="wrong")
    assert denied.code == 4
    assert "Access denied." in denied.err
    assert denied.json["over_budget"] == 4
    resumed = command("resume", tmp_path / "out", "--json", LIGHTMETER_API_KEY="rich")
    assert (resumed.code, resumed.json["ok"]) == (0, 4)


def test_no_key_exits_with_2(command, manifest, remote, tmp_path):
    """A named service needs a key, and the message names the environment variable."""
    missing = command("run", manifest, "--out", tmp_path / "out", *remote)
    assert missing.code == 2
    assert "LIGHTMETER_API_KEY" in missing.err
    assert "planning" not in missing.err
    assert not (tmp_path / "out" / "journal.sqlite").exists()


@pytest.fixture
def on_terminal(environment):
    """Return a function that runs `lightmeter` on a terminal, answers one question, and returns (exit code, output)."""

    def run(answer, *arguments, **more):
        ours, its = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "lightmeter", *map(str, arguments)],
            env={**environment, **more, "COLUMNS": "200", "TERM": "dumb"},
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
        )
        os.close(its)
        output = b""
        while True:
            try:
                read = os.read(ours, 4096)
            except OSError:  # Linux: the other side is closed
                break
            if not read:  # macOS says the same so
                break
            has_answered = b"[y/N]" in output
            output += read
            if b"[y/N]" in output and not has_answered:
                os.write(ours, answer.encode() + b"\n")
        os.close(ours)
        return process.wait(timeout=60), output.decode()

    return run


@pytest.mark.parametrize(
    ("key", "messages"),
    [
        ("rich", ("credits: enough for all 4 rows to send", "Spend up to 4 credits?")),
        sweep("poor2", ("balance 2 credits: pays for 2 of 4 rows", "Spend up to 2 credits?")),
        ("empty", ("balance 0 credits: pays for 0 of 4 rows", "The account has no credits")),
    ],
)
def test_a_user_sees_the_balance_before_the_question(on_terminal, manifest, remote, tmp_path, key, messages):
    """On a terminal `run` shows what the balance pays for, then asks; after a no there is no journal."""
    options = (*remote[:4], "--features", "colors")
    code, output = on_terminal("n", "run", manifest, "--out", tmp_path / "out", *options, LIGHTMETER_API_KEY=key)
    assert code == 130
    assert output.index(messages[0]) < output.index(messages[1]) < output.index("nothing was spent")
    assert not (tmp_path / "out" / "journal.sqlite").exists()


def test_an_account_without_credits_exits_with_3(command, manifest, remote, tmp_path):
    """Without credits the plan says so, and the run stops before any row is paid for."""
    broke = command("run", manifest, "--out", tmp_path / "out", *remote, LIGHTMETER_API_KEY="empty")
    assert broke.code == 3
    assert "balance 0 credits: pays for 0 of 4 rows" in broke.err
    assert (broke.json["over_budget"], broke.json["credits"]["paid"]) == (4, 0)


def test_a_saved_plan_needs_a_key_that_is_accepted(command, manifest, remote, tmp_path):
    """`run --plan` checks the key again; without an accepted key it creates no journal."""
    saved = tmp_path / "plan.json"
    assert command("plan", manifest, *remote[:4], "--save", saved).code == 0  # made without a key
    denied = command("run", "--plan", saved, "--out", tmp_path / "out", "--yes", LIGHTMETER_API_KEY="wrong")
    assert denied.code == 4
    assert command("run", "--plan", saved, "--out", tmp_path / "out", "--yes").code == 2
    assert not (tmp_path / "out" / "journal.sqlite").exists()
    done = command("run", "--plan", saved, "--out", tmp_path / "out", "--yes", LIGHTMETER_API_KEY="rich")
    assert done.code == 0, done.err
    assert "enough for all 4 rows" in done.out


def test_a_plan_without_a_key_says_what_is_unknown(command, manifest, service):
    """`plan` without a key prices the rows, and says that it does not know the balance and the back ends."""
    planned = command("plan", manifest, "--base-url", service, "--backends", "palette", "--json")
    assert planned.code == 0, planned.err
    assert "No key is set" in planned.err
    assert planned.json["balance"] is None
    assert planned.json["counts"]["pending"] == 4


def test_a_plan_says_what_the_balance_pays_for(command, manifest, service):
    """A plan states as text and as JSON how many rows the balance and the budget pay for."""
    options = ("--base-url", service, "--backends", "palette", "--features", "colors", "--budget", 1)
    planned = command("plan", manifest, *options, LIGHTMETER_API_KEY="poor2")
    assert planned.code == 0, planned.err
    assert "balance 2 credits: pays for 2 of 4 rows" in planned.out
    assert "budget 1 credit: pays for 1 of 4 rows" in planned.out
    plan_json = command("plan", manifest, *options, "--json", LIGHTMETER_API_KEY="poor2")
    assert plan_json.json["balance"] == 2
    assert plan_json.json["affordable_rows"]["balance"] == {"low": 2, "high": 2}


def test_an_unreachable_service_exits_with_2_before_any_row_is_read(command, manifest, remote, tmp_path):
    """Without a reachable service `run` does not plan; `plan` does, and says so."""
    away = ("--base-url", "http://127.0.0.1:9", *remote[2:4])
    unreachable = command("run", manifest, "--out", tmp_path / "out", *away, "--yes", LIGHTMETER_API_KEY="rich")
    assert unreachable.code == 2
    assert "cannot be reached" in unreachable.err
    assert "planning" not in unreachable.err
    assert not (tmp_path / "out" / "journal.sqlite").exists()
    planned = command("plan", manifest, *away, LIGHTMETER_API_KEY="rich")
    assert planned.code == 0, planned.err
    assert "cannot be reached" in planned.out
    assert command("credits", "--base-url", "http://127.0.0.1:9", LIGHTMETER_API_KEY="rich").code == 2


def test_a_lost_service_exits_with_2_and_rows_stay_pending(command, manifest, remote, service, tmp_path):
    """If the service is gone, nothing is sent or lost, and the run continues with the right address."""
    begun = command("run", manifest, "--out", tmp_path / "out", *remote, "--budget", 0, LIGHTMETER_API_KEY="rich")
    assert begun.code == 3
    away = ("--base-url", "http://127.0.0.1:9", "--budget", 9, "--json")
    unreachable = command("resume", tmp_path / "out", *away, LIGHTMETER_API_KEY="rich")
    assert unreachable.code == 2
    assert "cannot be reached" in unreachable.err
    assert unreachable.json["over_budget"] == 4
    resumed = command("resume", tmp_path / "out", "--base-url", service, "--json", LIGHTMETER_API_KEY="rich")
    assert (resumed.code, resumed.json["ok"]) == (0, 4)


def test_an_empty_account_exits_with_3(command, manifest, remote, tmp_path):
    """Rows that the account cannot pay for are over budget, and the run can be resumed."""
    poor = command("run", manifest, "--out", tmp_path / "out", *remote, LIGHTMETER_API_KEY="poor")
    assert poor.code == 3
    assert (poor.json["ok"], poor.json["over_budget"]) == (2, 2)
    assert poor.json["credits"]["balance_after"] == 0
    assert "credits" in poor.err


def test_hidden_defaults_need_consent(command, manifest, service, tmp_path):
    """Without a named back end the price is unknown, so `run` needs --yes."""
    refused = command(
        "run", manifest, "--out", tmp_path / "out", "--base-url", service, "--budget", 9, LIGHTMETER_API_KEY="rich"
    )
    assert refused.code == 2
    assert "No back end is named" in refused.err
    assert "planning" not in refused.err
    assert not (tmp_path / "out" / "journal.sqlite").exists()


def test_a_run_without_a_terminal_needs_yes_or_a_budget(command, manifest, tmp_path):
    """Without a terminal `run` cannot ask, so it needs --yes or --budget."""
    refused = command("run", manifest, "--out", tmp_path / "out")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert "--budget" in refused.err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.csv", None, "missing.csv"),
        ("no_column.csv", b"picture\nhttp://x/a.jpg,b\n", "url"),
        sweep("broken.csv.gz", b"\x1f\x8b nothing", "broken.csv.gz"),
        sweep("picture.xyz", b"\x00\x01", "picture.xyz"),
    ],
)
def test_an_unreadable_manifest_exits_with_2(command, tmp_path, name, content, message):
    """An unreadable manifest gives a clear message and creates no folder."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    unreadable = command("run", tmp_path / name, "--out", tmp_path / "out", "--yes")
    assert unreadable.code == 2
    assert unreadable.err.startswith("error: ")
    assert message in unreadable.err
    assert "Traceback" not in unreadable.err
    assert not (tmp_path / "out" / "journal.sqlite").exists()


def test_bad_rows_are_rows_with_reasons(command, remote, tmp_path, data_server):
    """Invalid or dead URLs are counted and explained and cost nothing; good rows are analyzed."""
    manifest = tmp_path / "mixed.csv"
    good = f"{data_server}/media/coffee.jpg"
    manifest.write_text(f"id,url\na,{good}\nb,not a url\nc,{data_server}/nothing.jpg\nd,{good}#again\ne,\n")
    mixed = command("run", manifest, "--out", tmp_path / "out", *remote, LIGHTMETER_API_KEY="rich")
    assert mixed.code == 0, mixed.err
    assert (mixed.json["ok"], mixed.json["skipped"], mixed.json["duplicate"]) == (1, 3, 1)
    assert mixed.json["credits"]["paid"] == 1
    assert "not a URL" in mixed.err
    query = command("sql", tmp_path / "out", "SELECT item_id, status, reason, error FROM assets ORDER BY item_id")
    assert 'b,skipped,bad_row,"not a URL' in query.out
    assert "c,skipped,reach" in query.out
    colors = command("sql", tmp_path / "out", "SELECT item_id, count(*) FROM colors GROUP BY 1 ORDER BY 1")
    first, second = colors.out.splitlines()[1:]
    assert first.split(",")[1] == second.split(",")[1]  # the duplicate has its original's facts


def test_a_saved_plan_is_executed_exactly_or_refused(command, tmp_path, data_server):
    """`run --plan` executes the plan, and refuses a manifest that changed since."""
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
    """`rebuild` writes equal tables again without a request after they were deleted."""
    manifest = tmp_path / "manifest.txt"
    manifest.write_text(f"{data_server}/media/coffee.jpg\n")
    assert command("run", manifest, "--out", tmp_path / "out", "--features", "colors", "--yes").code == 0
    question = "SELECT * FROM colors ORDER BY hex"
    before = command("sql", tmp_path / "out", question).out
    shutil.rmtree(tmp_path / "out" / "tables")
    assert command("rebuild", tmp_path / "out").code == 0
    assert command("sql", tmp_path / "out", question).out == before
    assert len(before.splitlines()) > 1


def test_an_invalid_query_exits_with_2(command, tmp_path):
    """An invalid query shows DuckDB's message."""
    part = tmp_path / "tables" / "tags" / "part-00000.parquet"
    part.parent.mkdir(parents=True)
    pq.write_table(pa.table({"name": ["cat"]}), part)
    wrong = command("sql", tmp_path, "SELECT nonsense FROM tags")
    assert wrong.code == 2
    assert "nonsense" in wrong.err


def test_a_folder_without_a_run_exits_with_2(command, tmp_path):
    """Commands that need a run say that the folder has none."""
    for verb in ("status", "resume", "rebuild"):
        ended = command(verb, tmp_path / "nothing")
        assert ended.code == 2
        assert "holds no run" in ended.err
