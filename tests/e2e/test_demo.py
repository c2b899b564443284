"""`lightmeter demo`: flow, service and models on real photographs and videos."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import lightmeter as lm
from lightmeter.cli.commands import demo as module
from tests.e2e.kills.processes import CommandResult
from tests.sweeps import sweep

pytestmark = pytest.mark.slow

README = Path(__file__).resolve().parents[2] / "README.md"


async def analyze_here(manifest, out, options, *, shard_rows, report, return_state):
    """What the flow `analyze` does with the demo's arguments, without Prefect."""
    await lm.aio.run(await lm.aio.plan(manifest, **options), out)
    return SimpleNamespace(name="Completed")


@pytest.fixture(scope="module", params=["without Prefect", sweep("whole")])
def demo(request, command, environment, tmp_path_factory):
    """The demo's result and folder. Each day it runs without Prefect's server; test_flow.py runs the flow itself."""
    out = tmp_path_factory.mktemp("demo") / "out"
    if request.param == "whole":
        return command("demo", "--out", out, "--json", timeout=300), out
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LIGHTMETER_CACHE_DIR", "LIGHTMETER_SETTINGS"):
            patch.setenv(name, environment[name])
        patch.setenv("LIGHTMETER_BASE_URL", "http://127.0.0.1:9")  # a configured service is not used
        patch.setenv("LIGHTMETER_API_KEY", "key")
        patch.setattr(module, "_load_flow", lambda: analyze_here)
        ended = CliRunner().invoke(
            module.demo_command, ["--out", str(out), "--json"], standalone_mode=False, catch_exceptions=False
        )
    return CommandResult(ended.return_value, ended.stdout, ended.stderr), out


def test_the_demo_analyses_every_sample(demo, sample_rows):
    """Every sample row is ok, videos included, and the credits add up."""
    ended, out = demo
    assert ended.code == 0, ended.err
    summary = ended.json
    assert summary["rows"] == summary["ok"] == len(sample_rows) >= 14
    assert summary["credits"]["paid"] == summary["credits"]["balance_before"] - summary["credits"]["balance_after"] > 0
    assert summary["credits"]["held"] == 0
    videos = lm.open(out).sql("SELECT count(*) AS n FROM assets WHERE kind = 'video' AND status = 'ok'")
    assert videos["n"][0] >= 2


def test_the_demo_fills_the_tables(demo):
    """Every asset has tags, colors and NSFW ratings, with rows for single frames of videos."""
    run = lm.open(demo[1])
    assert {"assets", "tags", "colors", "nsfw", "requests", "prechecks"} <= {
        name for name in ("assets", "tags", "colors", "nsfw", "requests", "prechecks") if len(run.table(name))
    }
    counted = run.sql(
        "SELECT count(DISTINCT c.item_id) AS colored, count(DISTINCT n.item_id) AS rated "
        "FROM assets a LEFT JOIN colors c USING (item_id) LEFT JOIN nsfw n USING (item_id)"
    )
    assert counted["colored"][0] == counted["rated"][0] == run.summary().rows
    frames = run.sql("SELECT item_id, count(DISTINCT frame) AS n FROM nsfw WHERE frame IS NOT NULL GROUP BY 1")
    assert len(frames) >= 2
    assert min(frames["n"]) >= 2


def test_manifest_columns_are_copied(demo, sample_rows):
    """Additional columns of the manifest are copied unchanged to the assets table."""
    subjects = lm.open(demo[1]).sql("SELECT item_id, subject, licence FROM assets")
    copied = dict(zip(subjects["item_id"], subjects["subject"], strict=True))
    assert copied == {row["id"]: row["subject"] for row in sample_rows}


def test_credits_of_items_sum_to_the_paid_credits(demo):
    """The credits of the items add up exactly to the credits paid."""
    run = lm.open(demo[1])
    assert run.sql("SELECT sum(credits) AS paid FROM assets")["paid"][0] == run.summary().paid


def test_the_demo_costs_what_was_predicted(demo):
    """The credits paid are in the predicted range, and afterwards the price of a picture is exact."""
    statement = lm.open(demo[1]).statement()
    assert statement.paid in statement.predicted
    assert statement.price_per_picture.low == statement.price_per_picture.high
    assert statement.to_dict()["unexplained"] == 0


def test_the_readme_shows_the_top_tags(demo):
    """The README's list of top tags is that of the demo; among equal scores any tag is correct."""
    found = lm.open(demo[1]).sql(
        "SELECT a.item_id AS id, t.name AS tag FROM assets a "
        "LEFT JOIN tags t ON t.item_id = a.item_id AND t.frame IS NULL "
        "QUALIFY t.score IS NOT DISTINCT FROM max(t.score) OVER (PARTITION BY a.item_id)"
    )
    section = README.read_text(encoding="utf-8").split("<!-- top-tags:start -->")[1].split("<!-- top-tags:end -->")[0]
    documented = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*?) \|", section, re.MULTILINE))
    best: dict[str, set[str]] = {}
    for item_id, tag in zip(found["id"], found["tag"], strict=True):
        best.setdefault(item_id, set()).add(tag if isinstance(tag, str) else "none above 0.9")
    assert {item_id: documented.get(item_id) in tags for item_id, tags in best.items()} == dict.fromkeys(
        documented, True
    )


@pytest.mark.parametrize(
    "question", re.findall(r"^```sql\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
)
def test_the_queries_of_the_readme_have_results(demo, question):
    """Each SQL query of the README has a result on the demo's tables."""
    answer = lm.open(demo[1]).sql(question)
    if "FROM reviews" in question:  # the demo holds no decisions
        return
    assert len(answer) > 0
    assert answer.notna().any(axis=None)


def test_the_readme_has_ten_queries():
    """The ten questions of the README are numbered, and each has its SQL."""
    numbers = re.findall(r"^\*\*(\d+)\. .*?\?\*\*.*?\n\n```sql\n", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert numbers == [str(number) for number in range(1, 11)]


def test_the_demo_keeps_other_folders(command, demo):
    """The demo refuses a folder that it did not create; status prints where the tables are."""
    _, out = demo
    (out / ".lightmeter-demo").unlink()
    refused = command("demo", "--out", out)
    assert refused.code == 2
    assert "was not created by the demo" in refused.err
    (out / ".lightmeter-demo").touch()
    status = command("status", out)
    assert status.code == 0
    assert str(out / "tables") in status.out.replace("\n", "")
