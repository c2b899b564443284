"""A feature or a frame that fails does not discard what else was found, and only what was found is charged."""

from __future__ import annotations

from datetime import date

import orjson
import pytest

from lightmeter.errors import BackendError
from lightmeter.pricing.rates import RateTable, Rounding
from lightmeter.service.analysis.analyzer import Analyzer
from lightmeter.service.analysis.job import AnalysisJob
from lightmeter.service.backends.base import PartialEntries
from lightmeter.service.ingest.fetch import Fetcher
from lightmeter.service.store.credits import Tariff
from lightmeter.testing import tiny_png, tiny_video
from lightmeter.wire.request import AnalyzeRequest
from lightmeter.wire.response import Description, Entries, Face, Tag

FEATURES = frozenset({"descriptions", "faces", "tags"})
RATES = RateTable(date(2026, 1, 1), {"provider": {"descriptions": 3000, "faces": 2000, "tags": 500}}, ("provider",))


class FlakyProvider:
    """A back end with three features. In the pictures `bad`, counted from 0, those in `failures` fail.

    Without `failures`, these pictures fail as a whole.
    """

    name = "provider"
    features = FEATURES

    def __init__(self, bad=(), failures=None):
        self.bad, self.failures, self.seen = bad, failures, 0

    def warm(self):
        """Do nothing: there is no model."""

    def analyze(self, pictures, features, options):
        """Return the features of one picture."""
        number, self.seen = self.seen, self.seen + 1
        found = {
            "descriptions": [Description(description=f"picture {number}", source=self.name)],
            "faces": [Face(source=self.name)],
            "tags": {"thing": [Tag(name="thing", score=1.0, source=self.name)]},
        }
        if number not in self.bad:
            return [Entries(**found)]
        if self.failures is None:
            raise BackendError("it is dark")
        left = {feature: entries for feature, entries in found.items() if feature not in self.failures}
        return [PartialEntries(**left, failures=self.failures)]


@pytest.fixture
def analyze():
    """Return a function that analyzes uploads once or several times; it returns the results and the charges."""

    async def hold(pictures):
        """Reserve nothing: there is no account."""

    async def do(backend, uploads, rounding=Rounding.IMAGE, times=1, features=FEATURES):
        done = []
        async with Fetcher(allow_private=False) as fetcher:
            worker = Analyzer({"provider": backend}, fetcher, Tariff(RATES, rounding), 1)
            try:
                for _ in range(times):
                    request = AnalyzeRequest(backend=["provider"], feature=sorted(features))
                    names = tuple(f"{number}.bin" for number in range(len(uploads)))
                    job = AnalysisJob(request, tuple(uploads), names, requested_features=features)
                    done.append(await worker.run(job, hold))
            finally:
                worker.close()
        return [(orjson.loads(each.results_json), each.charge) for each in done]

    return do


async def test_the_other_features_of_a_picture_are_kept_and_charged(analyze):
    """A picture with a failed feature has the others, an error that names it, and the price of the others."""
    ((results, charge),) = await analyze(FlakyProvider({0}, {"faces": "too many calls"}), [tiny_png()])
    (asset,) = results["assets"]
    assert (asset["faces"], [*asset["tags"]], len(asset["descriptions"])) == ([], ["thing"], 1)
    assert results["errors"] == ["provider: faces: too many calls (0.bin)"]
    assert charge == 4  # 3.5, rounded up


async def test_a_failed_feature_is_not_cached(analyze):
    """The next request for the same picture calls the back end again, and gets all features."""
    backend = FlakyProvider({0}, {"faces": "too many calls"})
    _, (results, charge), _ = await analyze(backend, [tiny_png()], times=3)
    assert (len(results["assets"][0]["faces"]), results["errors"], charge) == (1, [], 6)
    assert backend.seen == 2


async def test_a_feature_that_was_not_requested_is_no_error(analyze):
    """The failure of a feature that the request does not name is neither answered nor charged."""
    backend = FlakyProvider({0}, {"faces": "too many calls"})
    ((results, charge),) = await analyze(backend, [tiny_png()], features=frozenset({"tags"}))
    assert (results["errors"], charge) == ([], 1)


async def test_a_picture_without_any_requested_feature_costs_nothing(analyze):
    """If all requested features of a picture failed, it is an error alone, although others were found in it."""
    backend = FlakyProvider({0}, {"faces": "too many calls"})
    ((results, charge),) = await analyze(backend, [tiny_png()], features=frozenset({"faces"}))
    assert (results["assets"], charge) == ([], 0)
    assert results["errors"] == ["provider: faces: too many calls (0.bin)"]


@pytest.mark.parametrize(("rounding", "paid"), [(Rounding.IMAGE, 12), (Rounding.REQUEST, 11)])
async def test_the_other_frames_of_a_video_are_kept_and_charged(analyze, tmp_path, rounding, paid):
    """A frame that fails has no entries and no price; the error says of how many frames it is true."""
    video = tiny_video(tmp_path / "a.avi", frames=25).read_bytes()
    ((results, charge),) = await analyze(FlakyProvider({1}), [video], rounding)
    (asset,) = results["assets"]
    assert [len(frame["descriptions"]) for frame in asset["frames"]] == [1, 0, 1]
    assert [entry["description"] for entry in asset["descriptions"]] == ["picture 0", "picture 2"]
    assert results["errors"] == ["provider: it is dark (0.bin, 1 of 3 frames)"]
    assert charge == paid


async def test_a_video_that_failed_in_all_frames_is_not_listed(analyze, tmp_path):
    """A video of which no frame was analyzed is an error alone, and costs nothing."""
    video = tiny_video(tmp_path / "a.avi", frames=25).read_bytes()
    ((results, charge),) = await analyze(FlakyProvider({0, 1, 2}), [video])
    assert (results["assets"], charge) == ([], 0)
    assert results["errors"] == ["provider: it is dark (0.bin)"]


async def test_the_other_pictures_of_a_batch_are_kept_and_charged(analyze):
    """A picture that fails does not affect the others of its request."""
    ((results, charge),) = await analyze(FlakyProvider({1}), [tiny_png(seed) for seed in range(3)])
    assert (len(results["assets"]), len(results["errors"]), charge) == (2, 1, 12)
