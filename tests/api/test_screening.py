"""Local back ends see all rows first; only matching rows, and a random sample of the others, are paid for."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest

import lightmeter as lm
from lightmeter.api.screening import make_screen
from lightmeter.cli.commands.demo import serve_folder
from lightmeter.confidence_intervals import estimate_share
from lightmeter.errors import SettingsError, UsageError
from lightmeter.html_report.page import report
from lightmeter.media.image import encode_jpeg
from lightmeter.options import make_options
from lightmeter.planning.build import load_plan
from lightmeter.settings import Settings
from lightmeter.testing import tiny_picture
from tests.engine.hostile import Hostile, listening

RULE = "colors.red >= 128"
PAID = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "screen": "palette", "screen_rule": RULE}


def picture(seed: int, *, bright: bool) -> bytes:
    """A picture whose colors all match the rule, or none of them."""
    return encode_jpeg(tiny_picture(seed) // 3 + (170 if bright else 0), quality=90)


@pytest.fixture
def folder(tmp_path):
    """Four bright pictures, twelve dark ones, and a file that is no picture."""
    media = tmp_path / "media"
    media.mkdir()
    for number in range(4):
        (media / f"bright{number}.jpg").write_bytes(picture(number, bright=True))
    for number in range(12):
        (media / f"dark{number:02}.jpg").write_bytes(picture(number, bright=False))
    (media / "broken.jpg").write_bytes(b"no picture")
    return media


@pytest.fixture
def served(folder, monkeypatch, charges_at_once, tmp_path):
    """A paid service in the user's settings, and the URLs of the files in `folder`."""
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))

    @asynccontextmanager
    async def serve():
        hostile = Hostile(lambda *_: "answer")
        with serve_folder(folder) as base:
            async with listening(hostile) as base_url:
                monkeypatch.setenv("LIGHTMETER_BASE_URL", base_url)
                yield hostile, [f"{base}/{path.name}" for path in sorted(folder.iterdir())]

    return serve


def names(urls) -> list[str]:
    return sorted(url.rpartition("/")[2] for url in urls)


async def test_only_matching_and_sampled_rows_are_paid_for(served, tmp_path):
    """The others and their duplicates are skipped; a row that nobody could decode is paid for."""
    async with served() as (hostile, urls):
        urls.append(next(url for url in urls if "dark03" in url))
        plan = await lm.aio.plan(urls, **PAID, screen_audit=0.25)
        assert hostile.charged == []
        assert (plan.screen.passed, plan.screen.rejected, plan.screen.audited, plan.screen.undecided) == (4, 12, 3, 1)
        assert (plan.counts["pending"], plan.saved_by_screen.high) == (8, 9)
        assert "4 of 17 rows match" in str(plan)
        run = await lm.aio.run(plan, tmp_path / "out")
    paid = names(hostile.charged)
    assert len(paid) == 8
    assert {"broken.jpg", *(f"bright{number}.jpg" for number in range(4))} <= set(paid)
    skipped = {row.reason: (row.rows, row.example) for row in run.reasons()}
    assert skipped["screened"][0] == 10 - any("dark03" in name for name in paid)
    assert RULE in skipped["screened"][1]
    kinds = run.sql("SELECT finding, severity, count(*) AS n FROM prechecks GROUP BY ALL ORDER BY ALL")
    assert kinds.to_numpy().tolist() == [["screened", "info", 3], ["screened", "warning", 1]]


async def test_what_the_screen_missed_is_estimated(served, tmp_path):
    """The sample's positive answers give a share with an interval, in Python, statement, summary and page."""
    async with served() as (_, urls):
        plan = await lm.aio.plan(urls, **PAID, screen_audit=0.25, screen_positive="tags.name = 'thing'")
        run = await lm.aio.run(plan, tmp_path / "out")
    estimate = run.summary().screen
    assert (estimate.answered, estimate.positives, estimate.share) == (3, 3, estimate_share(3, 3, 12))
    assert estimate.rows.low == pytest.approx(12 * estimate.share.low)
    assert run.screen_estimate("tags.score < .5").share == estimate_share(0, 3, 12)
    assert "does not request colors" in run.screen_estimate(RULE).problem
    assert run.summary().to_dict()["screen"]["rejected"] == 12
    shares = run.shares("tags")
    assert "none of the whole manifest" in shares.note
    assert all((row.low, row.high) == (None, None) for row in shares.rows)
    statement = run.statement()
    assert statement.saved.screen.high == 9
    assert "3 of 3 answered rows of the audit match" in "\n".join(statement.lines())
    page = (await report(run)).read_text()
    assert 'id="screen"' in page
    assert "do not match the rule, and are paid for as a random sample" in page
    with pytest.raises(SettingsError, match="screen-positive"):
        run.screen_estimate("tags.nam = 'thing'")


async def test_a_saved_plan_is_not_screened_again(served, tmp_path):
    """A plan file holds the decisions, so that a run of it pays for the same rows."""
    async with served() as (hostile, urls):
        (tmp_path / "m.csv").write_text("\n".join(["url", *urls]))
        plan = await lm.aio.plan(tmp_path / "m.csv", **PAID)
        loaded = load_plan(plan.save(tmp_path / "plan.json"))
        assert (loaded.screen, loaded.counts, loaded.saved_by_screen) == (
            plan.screen,
            plan.counts,
            plan.saved_by_screen,
        )
        run = await lm.aio.run(loaded, tmp_path / "out")
        assert len(hostile.charged) == 6
        assert run.summary().screen.outcome == plan.screen
        with pytest.raises(UsageError, match="which rows a screen passes"):
            plan.with_options(screen_rule="colors.red < 128")


async def test_a_screen_is_kept_between_plans_and_for_the_run(served, tmp_path):
    """Another rule needs no new analysis; a changed picture is the only one that is analyzed again."""
    folder = tmp_path / "media"
    (tmp_path / "m.csv").write_text("\n".join(["path", *map(str, sorted(folder.glob("*.jpg")))]))
    options = {**PAID, "precheck": True, "features": ["colors"], "backends": ["palette"]}
    async with served():
        first = await lm.aio.plan(tmp_path / "m.csv", **options)
        (screen_folder,) = (tmp_path / "cache" / "screens").iterdir()
        requests = lm.open(screen_folder).summary().requests
        second = await lm.aio.plan(tmp_path / "m.csv", **{**options, "screen_rule": "colors.red < 128"})
        assert (first.screen.passed, second.screen.passed) == (4, 12)
        assert lm.open(screen_folder).summary().requests == requests == 16
        (folder / "bright0.jpg").write_bytes(picture(90, bright=False))
        third = await lm.aio.plan(tmp_path / "m.csv", **options)
        assert third.screen.passed == 3
        assert lm.open(screen_folder).summary().requests == 1


async def test_rows_that_an_earlier_run_paid_for_keep_their_answers(served, tmp_path):
    """If the manifest and the rule change, an answered row that the screen now rejects is not lost."""
    async with served() as (hostile, urls):
        bright = [url for url in urls if "bright" in url]
        await lm.aio.run(await lm.aio.plan(bright, **PAID), tmp_path / "out")
        options = {**PAID, "screen_rule": "colors.red < 128", "screen_audit": 0}
        run = await lm.aio.run(await lm.aio.plan(urls, **options), tmp_path / "out")
    assert len(hostile.charged) == 4 + 12 + 1
    assert run.summary().counts["ok"] == len(urls)


async def test_a_plan_that_was_not_screened_cannot_be_run(tmp_path, folder):
    """A run never pays for rows that the screen has not seen."""
    plan = await lm.aio.plan(folder, features=["colors"])
    with pytest.raises(UsageError, match="which rows a screen passes"):
        plan.with_options(screen="palette", screen_rule=RULE)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"screen": "nobody"}, "no back end 'nobody'"),
        ({"screen": "openai"}, "openai is a provider, not free"),
        ({"screen": "logos"}, "logos is not available"),
        ({"screen_rule": "tags.name = 'dog'"}, "reads the table tags, but back end palette fills only colors"),
        ({"screen_rule": "assets.width > 9"}, "reads no table of results"),
        ({"screen_rule": "colors.rot > 9"}, "screen-rule: .*rot"),
        ({"screen_positive": "nsfw.severity > .5"}, "screen-positive: .*the run requests only tags"),
    ],
)
def test_a_wrong_screen_is_refused_before_any_work(options, why):
    """A screen needs local back ends, and a rule about what they fill."""
    with pytest.raises(SettingsError, match=why):
        make_screen(make_options(**{**PAID, **options}), Settings(logos_dir=None))


@pytest.mark.parametrize("option", [{"screen_rule": RULE}, {"screen_positive": RULE}, {"screen": "palette"}])
def test_a_screen_has_a_back_end_and_a_rule(option):
    """Neither stands alone."""
    with pytest.raises(SettingsError, match=r"screen-(rule|positive): "):
        make_options(**option)


@pytest.mark.parametrize("tag_score", [{}, {"tag_score": 0.5}])
def test_a_screen_sees_tags_of_all_scores(tag_score):
    """The least score of the paid tags does not apply to the free run, whose tags the rule compares."""
    options = {**PAID, "screen": "imagenet", "screen_rule": "tags.score < .3", **tag_score}
    assert make_screen(make_options(**options), Settings()).options.tag_score == 0


class _Stuck(BaseHTTPRequestHandler):
    """Serves a picture, but the last one only after the event `free`."""

    free: Event

    def do_GET(self) -> None:
        number = int(self.path.strip("/").partition(".")[0])
        if number == 7:
            self.free.wait()
        body = picture(number, bright=number % 2 == 0)
        self.send_response(200)
        self.send_header("Content-Type", "image/jpeg")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(BrokenPipeError):  # the client was killed
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@pytest.mark.sweep
def test_a_killed_screen_continues(tmp_path, environment):
    """After a kill, the next start of the command analyzes only the rows that are left, and nothing was paid before."""
    free = Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Stuck", (_Stuck,), {"free": free}))
    Thread(target=server.serve_forever, daemon=True).start()
    urls = [f"http://127.0.0.1:{server.server_port}/{number}.jpg" for number in range(8)]
    (tmp_path / "m.csv").write_text("\n".join(["url", *urls]))
    arguments = [*("run", tmp_path / "m.csv", "--out", tmp_path / "out", "--features", "colors", "--yes", "--json")]
    arguments += ["--backends", "palette", "--no-precheck", "--screen", "palette", "--screen-rule", RULE]
    words = [sys.executable, "-m", "lightmeter", *map(str, arguments)]
    running = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    with running:
        for line in running.stderr:
            if "screening: 7/8" in line:
                break
        running.kill()
    assert not (tmp_path / "out" / "journal.sqlite").exists()
    before = lm.open(tmp_path / "out" / "screen").summary()
    free.set()
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    server.shutdown()
    server.server_close()
    summary = json.loads(ended.stdout.splitlines()[-1])
    assert (summary["ok"], summary["skipped"], summary["screen"]["rejected"]) == (5, 3, 4)
    screen = lm.open(tmp_path / "out" / "screen").summary()
    assert (before.counts["ok"], screen.counts["ok"]) == (7, 8)
    assert screen.requests <= 9
