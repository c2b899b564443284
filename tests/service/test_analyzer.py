"""A back end that fails does not affect the others, and is not charged."""

from __future__ import annotations

import asyncio
from datetime import date

import orjson
import pytest

from lightmeter.errors import BackendError
from lightmeter.pricing.rates import RateTable, Rounding
from lightmeter.service.analysis.analyzer import Analyzer
from lightmeter.service.analysis.analyzer_limits import AnalyzerLimits
from lightmeter.service.analysis.backpressure import ServiceOverloaded
from lightmeter.service.analysis.job import AnalysisJob
from lightmeter.service.backends.local.palette import PaletteBackend
from lightmeter.service.ingest.fetch import Fetcher
from lightmeter.service.store.credits import Tariff
from lightmeter.testing import tiny_png
from lightmeter.wire.request import AnalyzeRequest
from lightmeter.wire.response import Description, Entries

RATES = RateTable(date(2026, 1, 1), {"palette": {"colors": 1000}, "teller": {"descriptions": 5000}}, ("palette",))


class Teller:
    """A back end that describes pictures, or fails as configured."""

    name = "teller"
    features = frozenset({"descriptions"})

    def __init__(self, trouble=None, entries=1):
        self.trouble = trouble
        self.entries = entries

    def warm(self):
        """Do nothing: there is no model."""

    def analyze(self, pictures, features, options):
        """Return one description for each picture, or raise."""
        if self.trouble is not None:
            raise self.trouble
        entries = Entries(descriptions=[Description(description=f"{len(pictures)} seen", source=self.name)])
        return [entries] * (len(pictures) * self.entries)


async def no_more(pictures: int) -> None:
    """Fail: images never need more pictures."""
    raise AssertionError(pictures)


@pytest.fixture
async def doing():
    """Run a job with two back ends, and return `all` and the charge."""
    workers = []

    async def do(teller, pictures=2, backends=("palette", "teller")):
        async with Fetcher(allow_private=True) as fetcher:
            worker = Analyzer(
                {"palette": PaletteBackend(), "teller": teller},
                fetcher,
                Tariff(RATES, Rounding.IMAGE),
                max_videos_per_account=2,
            )
            workers.append(worker)
            request = AnalyzeRequest(backend=list(backends), feature=["colors", "descriptions"])
            uploads = tuple(tiny_png(seed) for seed in range(pictures))
            names = tuple(f"{seed}.png" for seed in range(pictures))
            order = AnalysisJob(request, uploads, names)
            done = await worker.run(order, no_more)
            return orjson.loads(done.results_json), done.charge

    yield do
    for worker in workers:
        worker.close()


async def test_all_back_ends_are_merged_and_charged(doing):
    """Each asset has the entries of every back end."""
    results, paid = await doing(Teller())
    assert (paid, results["errors"]) == (12, [])
    for asset in results["assets"]:
        assert asset["colors"]
        assert asset["descriptions"] == [{"description": "1 seen", "source": "teller"}]


@pytest.mark.parametrize(
    "teller",
    [Teller(BackendError("it is dark")), Teller(ValueError("odd")), Teller(entries=0), Teller(entries=2)],
    ids=["its own error", "a foreign error", "no entries", "too many entries"],
)
async def test_a_failing_back_end_fails_alone(doing, teller):
    """The message names asset and back end; the other entries are there; the failed one is not charged."""
    results, paid = await doing(teller)
    assert paid == 2
    assert all(asset["colors"] and not asset["descriptions"] for asset in results["assets"])
    assert len(results["errors"]) == 2
    for name in ("0.png", "1.png"):
        assert any(name in error and "teller" in error for error in results["errors"])


async def test_the_message_of_a_back_end_reaches_the_client(doing):
    """The message of the back end is in `all.errors`."""
    results, _ = await doing(Teller(BackendError("it is dark")))
    assert all("it is dark" in error for error in results["errors"])


async def test_back_ends_are_called_from_one_thread_at_a_time(doing):
    """By default no two calls of a back end overlap."""

    class Touchy(Teller):
        """Counts concurrent calls."""

        inside = 0
        most = 0

        def analyze(self, pictures, features, options):
            """Wait a moment, then analyze."""
            self.inside += 1
            self.most = max(self.most, self.inside)
            asyncio.run(asyncio.sleep(0.005))
            self.inside -= 1
            return super().analyze(pictures, features, options)

    touchy = Touchy()
    await doing(touchy, pictures=12)
    assert touchy.most == 1


async def test_an_asset_that_every_back_end_failed_is_not_listed(doing):
    """An asset that every back end failed is not listed and not charged."""
    results, paid = await doing(Teller(BackendError("it is dark")), backends=["teller"])
    assert (results["assets"], paid, len(results["errors"])) == ([], 0, 2)


async def test_an_overloaded_analyzer_refuses_with_retry_after():
    """An overloaded analyzer refuses with Retry-After, and accepts again when there is capacity."""
    async with Fetcher(allow_private=True) as fetcher:
        tariff = Tariff(RATES, Rounding.IMAGE)
        worker = Analyzer(
            {"palette": PaletteBackend()},
            fetcher,
            tariff,
            max_videos_per_account=2,
            limits=AnalyzerLimits(max_pending_pictures=3),
        )
        with worker.admit(1, 3), pytest.raises(ServiceOverloaded) as busy:
            worker.admit(1, 1)
        assert busy.value.retry_after_s >= 1
        worker.admit(1, 1)
        worker.close()
