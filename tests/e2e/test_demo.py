"""`lightmeter demo`: the main job, through flow, service and models, on real photographs and videos."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lightmeter as lm

pytestmark = pytest.mark.slow

README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.fixture(scope="module")
def demo(command, tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "out"
    return command("demo", "--out", out, "--json", timeout=300), out


def test_the_demo_analyses_every_sample(demo, sample_rows):
    """Every sample row is ok, videos among them, and the accounting adds up."""
    ended, out = demo
    assert ended.code == 0, ended.err
    summary = ended.json
    assert summary["rows"] == summary["ok"] == len(sample_rows) >= 14
    assert summary["credits"]["paid"] == summary["credits"]["balance_before"] - summary["credits"]["balance_after"] > 0
    assert summary["credits"]["held"] == 0
    videos = lm.open(out).sql("SELECT count(*) AS n FROM assets WHERE kind = 'video' AND status = 'ok'")
    assert videos["n"][0] >= 2


def test_the_demo_fills_the_tables(demo):
    """Tags, colors and NSFW are there for each asset, with rows for single frames of videos."""
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


def test_the_manifest_s_own_columns_travel(demo, sample_rows):
    """What the manifest says beside url, id and kind stands in the assets table, unchanged."""
    subjects = lm.open(demo[1]).sql("SELECT item_id, subject, licence FROM assets")
    told = dict(zip(subjects["item_id"], subjects["subject"], strict=True))
    assert told == {row["id"]: row["subject"] for row in sample_rows}


def test_credits_of_items_sum_to_what_was_paid(demo):
    """Each item's share is exact: together they are what the account paid."""
    run = lm.open(demo[1])
    assert run.sql("SELECT sum(credits) AS paid FROM assets")["paid"][0] == run.summary().paid


def test_the_demo_costs_what_was_forecast(demo):
    """What was paid lies in the predicted range, and what was learned on the way leaves no doubt about the next one."""
    stated = lm.open(demo[1]).statement()
    assert stated.paid in stated.predicted
    assert stated.price_per_picture.low == stated.price_per_picture.high
    assert stated.to_dict()["unexplained"] == 0


def test_the_readme_shows_what_the_models_say(demo):
    """The README's list of top tags is what the demo finds; of tags with the same score it may name any."""
    found = lm.open(demo[1]).sql(
        "SELECT a.item_id AS id, t.name AS tag FROM assets a "
        "LEFT JOIN tags t ON t.item_id = a.item_id AND t.frame IS NULL "
        "QUALIFY t.score IS NOT DISTINCT FROM max(t.score) OVER (PARTITION BY a.item_id)"
    )
    section = README.read_text(encoding="utf-8").split("<!-- top-tags:start -->")[1].split("<!-- top-tags:end -->")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*?) \|", section, re.MULTILINE))
    best: dict[str, set[str]] = {}
    for item_id, tag in zip(found["id"], found["tag"], strict=True):
        best.setdefault(item_id, set()).add(tag if isinstance(tag, str) else "none above 0.9")
    assert {item_id: shown.get(item_id) in tags for item_id, tags in best.items()} == dict.fromkeys(shown, True)


@pytest.mark.parametrize(
    "question", re.findall(r"^```sql\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
)
def test_the_readme_s_questions_are_answered(demo, question):
    """Each question of the README, pasted as it stands, has an answer on the demo's tables."""
    answer = lm.open(demo[1]).sql(question)
    assert len(answer) > 0
    assert answer.notna().any(axis=None)


def test_the_readme_asks_ten_questions():
    """They are numbered, and each has its SQL."""
    asked = re.findall(r"^\*\*(\d+)\. .*?\?\*\*.*?\n\n```sql\n", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert asked == [str(number) for number in range(1, 11)]


def test_the_demo_says_what_it_did(command, demo):
    """A person reads where the tables are and what to try next; a folder that is not the demo's is left alone."""
    _, out = demo
    (out / ".lightmeter-demo").unlink()
    refused = command("demo", "--out", out)
    assert refused.code == 2
    assert "was not created by the demo" in refused.err
    (out / ".lightmeter-demo").touch()
    said = command("status", out)
    assert said.code == 0
    assert str(out / "tables") in said.out.replace("\n", "")
