"""Key, balance and back ends are requested before the first row is read."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

import lightmeter as lm
from lightmeter.api.prepared_run import prepare_run, prepare_run_from_plan
from lightmeter.client.transport import Timeouts
from lightmeter.errors import AccessDenied, PlanChanged, SettingsError, Unreachable, UsageError
from lightmeter.options import make_options
from lightmeter.planning.affordable_rows import RowRange
from lightmeter.planning.preflight import ServiceInfo, preflight
from lightmeter.settings import read_settings
from lightmeter.testing import tiny_jpeg
from lightmeter.wire.response import BackendOffer
from tests.engine.hostile import served

OFFERS = {
    "backends": [
        {"name": "quick", "features": {"tags": 0.25, "nsfw": 1}, "default": True, "local": True, "available": True},
        {"name": "Slow", "features": {"descriptions": 3}, "default": False, "local": False, "available": True},
        {"name": "gone", "features": {"faces": 1}, "available": False, "reason": "no licence key is set"},
    ]
}


@dataclass
class Counterpart:
    """A service and a site with pictures. `backends`: None for no such endpoint, a text for an HTML answer."""

    balance: int = 1000
    backends: Any = None
    credits_answer: tuple[int, str] | None = None
    base_url: str = ""
    picture_paths: list[str] = field(default_factory=list)
    fetched: int = 0

    def denied(self, request):
        """Whether the key is wrong."""
        return request.headers.get("X-API-Key") != "Token right"

    async def credits(self, request):
        """Answer GET /api/credits."""
        if self.credits_answer is not None:
            status, body = self.credits_answer
            return web.Response(status=status, text=body, content_type="text/html")
        if self.denied(request):
            return web.json_response({"error": "Access denied."}, status=401)
        return web.json_response({"credits": self.balance})

    async def offers(self, _):
        """Answer GET /api/backends."""
        if self.backends is None:
            return web.json_response({"error": "Not found."}, status=404)
        if isinstance(self.backends, str):
            return web.Response(text=self.backends, content_type="text/html")
        return web.json_response(self.backends)

    async def fetch(self, request):
        """Answer POST /api/fetch; each picture costs one credit."""
        body = await request.json()
        urls = [body["url"]] if isinstance(body["url"], str) else body["url"]
        self.fetched += len(urls)
        if self.balance < len(urls):
            return web.json_response({"error": "No credits."}, status=402)
        self.balance -= len(urls)
        assets = [{"name": url, "tags": {"thing": [{"name": "thing", "score": 0.95}]}} for url in urls]
        return web.json_response(
            {"credits_paid": len(urls), "credits": self.balance, "all": {"assets": assets, "errors": []}}
        )

    async def picture(self, request):
        """Answer with a picture, for the pre-checks."""
        self.picture_paths.append(request.path)
        return web.Response(body=tiny_jpeg(int(request.match_info["number"])))

    def urls(self, rows):
        """Return URLs of pictures on this site."""
        return [f"{self.base_url}/pictures/{number}" for number in range(rows)]


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch, tmp_path, cache):
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
    monkeypatch.setenv("LIGHTMETER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("LIGHTMETER_API_KEY", "right")
    monkeypatch.delenv("LIGHTMETER_BASE_URL", raising=False)


@pytest.fixture
def serving():
    """Return a context manager that runs the service of a new counterpart."""

    @asynccontextmanager
    async def begin_serving(**how):
        one = Counterpart(**how)
        app = web.Application()
        app.router.add_get("/api/credits", one.credits)
        app.router.add_get("/api/backends", one.offers)
        app.router.add_post("/api/fetch", one.fetch)
        app.router.add_get("/pictures/{number}", one.picture)
        async with served(app) as one.base_url:
            yield one

    return begin_serving


async def planned(service, rows=3, **options):
    """Return a plan for pictures of the counterpart."""
    given = {"features": ["tags"], "backends": ["clarifai"], "base_url": service.base_url, **options}
    return await lm.aio.plan(service.urls(rows), **given)


async def test_a_wrong_key_fails_before_a_row_is_read(serving, monkeypatch):
    """A plan with a key that the service does not accept fails before it fetches a picture."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "wrong")
    async with serving() as service:
        with pytest.raises(AccessDenied, match=r"Access denied\.") as caught:
            await planned(service)
        assert "LIGHTMETER_API_KEY" in caught.value.hint
        assert service.picture_paths == []


async def test_a_plan_without_a_key_has_a_note(serving, monkeypatch):
    """Without a key, a plan checks and prices its rows, and notes that balance and back ends are unknown."""
    monkeypatch.delenv("LIGHTMETER_API_KEY")
    async with serving() as service:
        plan = await planned(service)
        assert set(service.picture_paths) == {"/pictures/0", "/pictures/1", "/pictures/2"}
    assert plan.balance is None
    assert plan.affordable_rows is None
    assert "No key is set" in str(plan)
    assert "No key is set" in plan.to_dict()["service"]["note"]


@pytest.mark.parametrize("key", [None, "wrong"])
async def test_a_flow_without_a_valid_key_fails_before_it_plans(serving, monkeypatch, tmp_path, key):
    """Without an accepted key, a run reads no row and creates no journal."""
    monkeypatch.delenv("LIGHTMETER_API_KEY")
    if key is not None:
        monkeypatch.setenv("LIGHTMETER_API_KEY", key)
    async with serving() as service:
        with pytest.raises(SettingsError if key is None else AccessDenied):
            await prepare_run(service.urls(2), tmp_path / "out", backends="clarifai", base_url=service.base_url)
        assert service.picture_paths == []
    assert not (tmp_path / "out" / "journal.sqlite").exists()


async def test_hidden_defaults_are_refused_before_a_row_is_read(serving, tmp_path):
    """A run that names no back end is refused before planning, not after hours of it."""
    async with serving() as service:
        with pytest.raises(UsageError, match="No back end is named"):
            await prepare_run(service.urls(2), tmp_path / "out", features="tags", base_url=service.base_url)
        assert service.picture_paths == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, "<!doctype html><title>Welcome</title>"), "No balance came from"),
        ((404, "<h1>Not here</h1>"), "HTTP 404"),
    ],
)
async def test_a_wrong_base_url_is_a_note_in_a_plan_and_an_error_in_a_run(serving, tmp_path, answer, message):
    """If the base URL is a web page, a plan has a note, and a run fails with exit code 2 before spending."""
    async with serving(credits_answer=answer) as service:
        plan = await planned(service)
        assert message in plan.service.note
        with pytest.raises(SettingsError, match=message) as caught:
            await prepare_run(service.urls(2), tmp_path / "out", backends="clarifai", base_url=service.base_url)
        assert "base URL" in caught.value.hint
        assert caught.value.exit_code == 2


async def test_a_broken_service_is_unreachable_for_a_run(serving, tmp_path):
    """A maintenance page does not count as a wrong base URL, because the same command works later."""
    async with serving(credits_answer=(503, "<h1>Maintenance</h1>")) as service:
        with pytest.raises(Unreachable) as caught:
            await prepare_run(service.urls(2), tmp_path / "out", backends="clarifai", base_url=service.base_url)
        assert "later" in caught.value.hint


async def test_a_service_that_hangs_is_not_waited_for():
    """A plan waits only briefly for a service, and the message says which answer is missing."""
    writers = []

    async def hang(reader, writer):
        writers.append(writer)
        await reader.read()  # until the client gives up

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    options, little = make_options(base_url=base_url), Timeouts(3.0, 3.0, 3.0)
    try:
        with pytest.raises(Unreachable, match="/api/credits") as caught:
            await preflight(options, read_settings(), required=True, timeouts=little)
        assert "charged" not in caught.value.hint
        info = await preflight(options, read_settings(), required=False, timeouts=little)
        assert "Balance and back ends are not known." in info.note
    finally:
        server.close()
        for writer in writers:
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize("required", [True, False])
async def test_a_service_that_asks_to_slow_down_is_not_waited_for(serving, required):
    """If the service refuses requests as too fast, a plan or a run continues without its balance."""
    async with serving(credits_answer=(429, "{}")) as service:
        options, little = make_options(base_url=service.base_url), Timeouts(3.0, 3.0, 3.0)
        info = await preflight(options, read_settings(), required=required, timeouts=little)
    assert info.balance is None
    assert "asks to slow down" in info.note


async def test_an_unreachable_service_is_a_note_in_a_plan(serving):
    """A plan can be made while the service is unreachable; it notes that balance and back ends are unknown."""
    async with serving() as service:
        options = {"features": "tags", "backends": "clarifai", "base_url": "http://127.0.0.1:9"}
        plan = await lm.aio.plan(service.urls(2), **options)
    assert plan.counts["pending"] == 2
    assert "cannot be reached" in plan.service.note


async def test_the_plan_says_what_the_balance_and_the_budget_pay_for(serving):
    """At one credit a picture, 2 credits pay for 2 of 5 rows; at 0.15 they may pay for all."""
    async with serving(balance=2) as service:
        plan = await planned(service, rows=5, backends=["clarifai", "imagga"], features=["tags", "nsfw"], budget=1)
    assert (plan.balance, plan.affordable_rows, plan.budget_rows) == (2, RowRange(2, 3), RowRange(1, 1))
    assert plan.affordability_sentences == (
        "balance 2 credits: pays for 2 to 3 of 5 rows",
        "budget 1 credit: pays for 1 of 5 rows",
    )
    assert plan.affordability_sentences[0] in str(plan)
    assert plan.affordability_sentences[1] in plan._repr_html_()
    plan_json = json.loads(json.dumps(plan.to_dict()))
    assert plan_json["balance"] == 2
    assert plan_json["affordable_rows"] == {"balance": {"low": 2, "high": 3}, "budget": {"low": 1, "high": 1}}
    assert plan.with_options(budget=10).budget_rows == RowRange(5, 5)


async def test_a_sufficient_balance_is_one_short_line(serving):
    """If the balance pays for all rows, one line says so, without a count."""
    async with serving() as service:
        plan = await planned(service)
    assert plan.affordability_sentences == ("balance 1000 credits: enough for all 3 rows to send",)


async def test_a_plan_says_that_the_account_is_empty(serving):
    """A balance of 0 pays for no row, but the plan is still made."""
    async with serving(balance=0) as service:
        plan = await planned(service)
    assert plan.affordability_sentences == ("balance 0 credits: pays for 0 of 3 rows",)


@pytest.mark.parametrize("name", ["rekognition", "gone"])
async def test_a_back_end_that_the_service_lacks_is_an_error(serving, name):
    """A plan with such a back end fails before a row is read; the message says why, and lists the back ends."""
    async with serving(backends=OFFERS) as service:
        with pytest.raises(SettingsError, match=f"'{name}'") as caught:
            await planned(service, backends=["quick", name])
        assert service.picture_paths == []
    assert "quick, slow" in caught.value.hint
    assert name != "gone" or "no licence key is set" in str(caught.value)


async def test_a_plan_without_an_offered_feature_fails(serving):
    """If no chosen back end offers any requested feature, the plan fails, and the hint names back ends that do."""
    async with serving(backends=OFFERS) as service:
        with pytest.raises(SettingsError, match="offers none of: descriptions") as caught:
            await planned(service, backends=["quick"], features=["descriptions"])
        assert service.picture_paths == []
    assert "descriptions: slow." in caught.value.hint


async def test_a_feature_that_nobody_offers_is_advice(serving):
    """If some features are offered and some are not, the plan says which ones return nothing."""
    async with serving(backends=OFFERS) as service:
        plan = await planned(service, backends=["quick"], features=["tags", "descriptions", "faces"])
    sentences = [sentence for sentence in plan.advice if "costs and returns nothing" in sentence]
    assert len(sentences) == 2
    assert not any("rekognition" in sentence or "claude" in sentence for sentence in plan.advice)


async def test_prices_of_the_service_are_those_of_the_plan(serving, tmp_path):
    """A back end that is not in the shipped table costs what its service lists, also in a loaded plan file."""
    async with serving(backends=OFFERS) as service:
        plan = await planned(service, rows=4, backends=["QUICK"])
        assert plan.price_per_image_milli == 250
        assert (plan.credits.low, plan.credits.high) == (1, 4)
        path = plan.save(tmp_path / "plan.json")
        assert lm.load_plan(path) == plan
        service.backends = {"backends": [{"name": "quick", "features": {"tags": 0.5}}]}
        with pytest.raises(PlanChanged, match="the service now says 500"):
            await lm.aio.run(lm.load_plan(path), tmp_path / "out")
        service.backends = {"backends": [{"name": "other", "features": {"tags": 0.5}}]}
        with pytest.raises(SettingsError, match="no back end 'quick'"):
            await prepare_run_from_plan(path, tmp_path / "out")
        assert service.fetched == 0
        assert not (tmp_path / "out" / "journal.sqlite").exists()
        service.backends = None  # not known any more: what was agreed to stays
        run = await lm.aio.run(lm.load_plan(path), tmp_path / "out")
    assert run.summary().counts["ok"] == 4


@pytest.mark.parametrize(
    "odd",
    [
        "<!doctype html><title>Welcome</title>",
        {"backends": []},
        {"backends": [{"name": "clarifai"}]},
        {"backends": [{"name": "", "features": {}}]},
        {"backends": [{"name": "x", "features": {"tags": -1}}]},
        {"backends": {"clarifai": {}}},
        {"error": "Access denied.", **OFFERS},
        [],
        None,
    ],
)
async def test_without_a_list_of_back_ends_the_shipped_prices_apply(serving, odd):
    """If the service has no readable list of back ends, the plan uses the shipped price table."""
    async with serving(backends=odd) as service:
        plan = await planned(service)
    assert plan.service.backends is None
    assert plan.balance == 1000
    assert plan.counts["pending"] == 3


async def test_a_saved_plan_is_checked_again_before_it_is_run(serving, tmp_path, monkeypatch):
    """A key that was revoked stops a saved plan before a journal is created; the balance is read anew."""
    async with serving(balance=2) as service:
        path = (await planned(service)).save(tmp_path / "plan.json")
        loaded = lm.load_plan(path)
        assert loaded.balance is None
        monkeypatch.setenv("LIGHTMETER_API_KEY", "wrong")
        with pytest.raises(AccessDenied):
            await prepare_run_from_plan(path, tmp_path / "flow")
        with pytest.raises(AccessDenied):
            await lm.aio.run(loaded, tmp_path / "python")
        assert not (tmp_path / "flow" / "journal.sqlite").exists()
        assert not (tmp_path / "python" / "journal.sqlite").exists()


async def test_other_options_for_the_same_rows_are_checked_too(serving):
    """`with_options` refuses a back end that the service lacks, without checking rows again."""
    async with serving(backends=OFFERS) as service:
        plan = await planned(service, backends=["quick"])
        requests_before = len(service.picture_paths)
        with pytest.raises(SettingsError, match="no back end 'clarifai'"):
            plan.with_options(backends=["clarifai"])
        assert plan.with_options(features=["nsfw"]).price_per_image_milli == 1000
        assert len(service.picture_paths) == requests_before


def test_a_plan_file_keeps_the_aliases_of_back_ends():
    """What a plan file holds of a service says which back end answers under another name."""
    offers = (BackendOffer(name="quick", features={"tags": 1.0}, alias_of="imagenet"),)
    saved = ServiceInfo(backends=offers).to_dict()
    assert [offer.alias_of for offer in ServiceInfo.from_dict(saved).backends] == ["imagenet"]


async def test_the_embedded_service_has_its_own_back_ends():
    """A plan for the embedded service with a back end that it lacks fails without a request."""
    with pytest.raises(SettingsError, match="embedded service has no back end 'oracle'") as caught:
        await lm.aio.plan(["http://x.example/a.jpg"], backends=["palette", "oracle"])
    assert "imagenet" in caught.value.hint
    with pytest.raises(
        SettingsError, match="'clarifai' is not available: Its key is not set: set CLARIFAI_PAT"
    ) as caught:
        await lm.aio.plan(["http://x.example/a.jpg"], backends=["palette", "clarifai"])
    assert "imagenet" in caught.value.hint
    assert "--base-url" in caught.value.hint
    with pytest.raises(SettingsError, match="palette of the embedded service offers none of: tags") as caught:
        await lm.aio.plan(["http://x.example/a.jpg"], backends=["palette"], features=["tags"])
    assert "tags: centerface, imagenet" in caught.value.hint
