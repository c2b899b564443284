"""Results are cached by content, and cached answers are identical to computed ones."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from datetime import date

import pytest

from lightmeter.errors import BackendError
from lightmeter.pricing.rates import RateTable, Rounding
from lightmeter.service.analysis.analyzer import Analyzer
from lightmeter.service.analysis.analyzer_limits import AnalyzerLimits
from lightmeter.service.analysis.inference_queue import InferenceParams
from lightmeter.service.analysis.job import AnalysisJob
from lightmeter.service.analysis.result_cache import ContentKey, ResultCache
from lightmeter.service.backends.base import AnalysisOptions
from lightmeter.service.backends.local.palette import PaletteBackend
from lightmeter.service.ingest.decode import AssetMetadata
from lightmeter.service.ingest.fetch import Fetcher
from lightmeter.service.store.credits import Tariff
from lightmeter.testing import tiny_png, tiny_video
from lightmeter.wire.request import AnalyzeRequest
from lightmeter.wire.response import Entries, Tag

TAGS = InferenceParams(frozenset({"tags"}), AnalysisOptions())
SHAPE = AssetMetadata("image", 64, 48, None, None)
RATES = RateTable(date(2026, 1, 1), {"palette": {"colors": 1000}}, ("palette",))


def content(number):
    return ContentKey(number.to_bytes(32, "big"))


def tagged(name, count=1):
    return [Entries(tags={name: [Tag(name=name, score=0.1 + 0.2, source="x")]}, faces=[], odd={"a": 1})] * count


def test_what_is_kept_is_found_as_it_was():
    """Cached entries equal the originals, with unknown fields, and None differs from empty."""
    cache = ResultCache()
    cache.put_entries(content(1), "x", TAGS, tagged("cat"))
    assert cache.get_entries(content(1), "x", TAGS) == tagged("cat")
    assert cache.get_entries(content(1), "x", TAGS)[0].texts is None


@pytest.mark.parametrize(
    "key",
    [
        (content(2), "x", TAGS),
        (ContentKey(content(1).digest, 1, 3), "x", TAGS),
        (content(1), "y", TAGS),
        (content(1), "x", InferenceParams(frozenset({"nsfw"}), AnalysisOptions())),
        (content(1), "x", InferenceParams(frozenset({"tags"}), AnalysisOptions(role="critic"))),
        (content(1), "x", InferenceParams(frozenset({"tags"}), AnalysisOptions(prompt="why"))),
    ],
    ids=["content", "sampling", "back end", "features", "role", "prompt"],
)
def test_another_question_is_another_answer(key):
    """The key has everything that could change a result."""
    cache = ResultCache()
    cache.put_entries(content(1), "x", TAGS, tagged("cat"))
    assert cache.get_entries(*key) is None


def test_nobody_can_change_what_the_next_one_gets():
    """A change to a cached result does not affect the next one."""
    cache = ResultCache()
    cache.put_entries(content(1), "x", TAGS, tagged("cat"))
    cache.get_entries(content(1), "x", TAGS)[0].tags.clear()
    assert cache.get_entries(content(1), "x", TAGS) == tagged("cat")


def test_the_least_recently_used_item_is_evicted():
    """The cache has a size limit, and evicts the least recently used item."""
    cache = ResultCache(max_bytes=2000)
    cache.put_entries(content(0), "x", TAGS, tagged("cat"))
    for number in range(1, 50):
        cache.put_entries(content(number), "x", TAGS, tagged("cat"))
        cache.put_metadata(content(number), SHAPE)
        assert cache.get_entries(content(0), "x", TAGS) is not None
        assert 0 < cache.size_bytes <= 2000
    assert cache.get_entries(content(1), "x", TAGS) is None
    assert len(cache) < 10


def test_long_prompts_take_no_memory():
    """The limit of the cache holds however long the prompts of the requests are."""
    cache = ResultCache(100_000)
    tracemalloc.start()
    try:
        for number in range(100):
            options = AnalysisOptions(prompt=str(number) * 100_000, language="x" * 100_000)
            cache.put_entries(content(number), "x", InferenceParams(frozenset({"tags"}), options), tagged("cat"))
        del options
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(cache) == 100
    assert kept < 200_000


def test_a_value_larger_than_the_cache_is_not_cached():
    """A value larger than the cache is not cached."""
    cache = ResultCache(max_bytes=2000)
    cache.put_entries(content(0), "x", TAGS, tagged("cat"))
    cache.put_entries(content(1), "x", TAGS, tagged("dog", count=100))
    assert cache.get_entries(content(1), "x", TAGS) is None
    assert cache.get_entries(content(0), "x", TAGS) is not None


def test_replacing_a_value_counts_its_size_once():
    """Replacing a value does not count its size twice."""
    cache = ResultCache()
    cache.put_entries(content(1), "x", TAGS, tagged("cat"))
    once = cache.size_bytes
    cache.put_entries(content(1), "x", TAGS, tagged("cat"))
    assert cache.size_bytes == once


class Counting(PaletteBackend):
    """The palette back end, which counts pictures and can be made to fail."""

    picture_count = 0
    fails = 0

    def analyze(self, pictures, features, options):
        """Count the pictures, then analyze them."""
        self.picture_count += len(pictures)
        if self.fails:
            self.fails -= 1
            raise BackendError("it is dark")
        return super().analyze(pictures, features, options)


@pytest.fixture
async def working():
    """Create an analyzer with a counting palette and a cache, and return a function that runs jobs."""
    analyzers = []
    async with Fetcher(allow_private=True) as fetcher:

        async def begin(cache_bytes, fails=0):
            backend = Counting()
            backend.fails = fails
            tariff = Tariff(RATES, Rounding.IMAGE)
            worker = Analyzer({"palette": backend}, fetcher, tariff, 2, limits=AnalyzerLimits(cache_bytes=cache_bytes))
            analyzers.append(worker)

            async def do(*uploads, held=None, **parameters):
                request = AnalyzeRequest(backend=["palette"], feature=["colors"], **parameters)
                names = tuple(f"{number}" for number in range(len(uploads)))
                order = AnalysisJob(request, uploads, names)

                async def hold(pictures):
                    if held is not None:
                        held.append(pictures)

                done = await worker.run(order, hold)
                return done.results_json, done.charge

            return backend, do

        yield begin
    for worker in analyzers:
        worker.close()


@pytest.fixture
def assets(tmp_path):
    """Return two pictures and a video of three captures."""
    return tiny_png(1), tiny_png(2), tiny_video(tmp_path / "tiny.avi", frames=25).read_bytes()


async def test_results_and_charges_are_the_same_with_and_without(working, assets):
    """Results and charges are identical with and without the cache."""
    (plain, do), (spared, do_cached) = await working(0), await working(1 << 20)
    expected = [await do(*assets) for _ in range(3)]
    assert [await do_cached(*assets) for _ in range(3)] == expected
    assert expected[0][1] == 1 + 1 + 3
    assert (plain.picture_count, spared.picture_count) == (15, 5)


async def test_the_same_credits_are_held_for_a_video_that_is_remembered(working, assets):
    """A cached video holds as many credits as the first time."""
    _, do = await working(1 << 20)
    held = []
    first, again = [await do(assets[2], held=held) for _ in range(2)]
    assert first == again
    assert held == [3, 3]


async def test_another_sampling_of_a_video_is_looked_at_anew(working, assets):
    """Another sampling of a video is not answered from the cache."""
    backend, do = await working(1 << 20)
    await do(assets[2])
    await do(assets[2], capture_interval=2)
    assert backend.picture_count == 3 + 2


async def test_an_error_is_not_cached(working, assets):
    """An error is not cached."""
    _, do = await working(1 << 20, fails=1)
    failed, charged = await do(assets[0])
    assert (b"it is dark" in failed, charged) == (True, 0)
    found, charged = await do(assets[0])
    assert (b"it is dark" in found, charged) == (False, 1)


async def test_concurrent_requests_for_one_content_agree(working, assets):
    """Concurrent requests for the same content get the same answer."""
    _, do = await working(1 << 20)
    cache = await asyncio.gather(*(do(assets[0]) for _ in range(20)))
    assert len(set(cache)) == 1
