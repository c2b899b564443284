"""What is reserved for a video, and what counts as unfinished work, is its real number of frames, not `max_frames`."""

from __future__ import annotations

import asyncio
import base64
import threading

import pytest

from lightmeter.service.analysis.analyzer_limits import AnalyzerLimits
from lightmeter.service.backends.base import BackendTraits
from lightmeter.service.backends.catalog import BackendCatalog, CatalogEntry
from lightmeter.wire.response import Entries

FRAMES = 3
"""Frames of the video of the site."""


@pytest.fixture
def video(site):
    """The video of the site as base64."""
    return base64.b64encode(site.video).decode()


def sent(site, video, how):
    """Return the field of a request that sends the video as an upload, or by a URL."""
    return {"file": video} if how == "upload" else {"url": site.url(how)}


@pytest.mark.parametrize("how", ["upload", "video/1.mp4", "video/nameless"])
@pytest.mark.parametrize("most", [1000, 2**31 - 1, 0])
async def test_a_balance_that_pays_the_frames_is_enough(calling, service, site, video, how, most):
    """An account that has the price of the real frames gets them all, whatever max_frames is."""
    caller = await calling(service, credits=FRAMES)
    done = await caller.finished(await caller.ask(**sent(site, video, how), max_frames=most))
    assert (done["all"]["errors"], done["credits_paid"], done["credits"]) == ([], FRAMES, 0)
    assert len(done["all"]["assets"][0]["frames"]) == FRAMES


async def test_an_uploaded_video_that_costs_too_much_is_refused_at_once(calling, service, video):
    """The frames of an upload are counted before the answer: 402, and nothing is reserved."""
    caller = await calling(service, credits=FRAMES - 1)
    refused = await caller.ask(file=video, max_frames=1000)
    assert (refused.status, refused.body["error"]) == (402, "Insufficient credits.")
    assert await caller.balance() == FRAMES - 1
    done = await caller.finished(await caller.ask(file=video, max_frames=FRAMES - 1))
    assert (done["credits_paid"], done["credits"]) == (FRAMES - 1, 0)


async def test_a_video_of_a_url_that_costs_too_much_is_not_charged(calling, service, site):
    """The frames of a URL are counted when it is fetched: its client reads that the credits do not suffice."""
    caller = await calling(service, credits=FRAMES - 1)
    done = await caller.finished(await caller.ask(url=site.url("video/1.mp4"), max_frames=1000))
    assert done["all"] == {"assets": [], "errors": [f"{site.url('video/1.mp4')}: Insufficient credits."]}
    assert (done["credits_paid"], await caller.balance()) == (0, FRAMES - 1)


@pytest.mark.parametrize("credits_", [2 * FRAMES + 1, 2 * FRAMES])
async def test_videos_of_one_request_share_the_balance(calling, service, site, credits_, books):
    """Each video reserves its own frames; one that the balance does not cover is an error, the others are charged."""
    caller = await calling(service, credits=credits_)
    urls = [site.url("video/1.mp4"), site.url("video/2.mp4"), site.url("picture/1.png")]
    done = await caller.finished(await caller.ask(url=urls, max_frames=1000))
    refused = 1 if credits_ == 2 * FRAMES else 0
    assert len(done["all"]["errors"]) == refused
    assert done["credits_paid"] == 1 + (2 - refused) * FRAMES
    assert await caller.balance() == credits_ - done["credits_paid"]
    assert all(book.is_consistent and not book.held for book in await books(service.database))


@pytest.mark.parametrize("how", ["upload", "video/2.mp4"])
async def test_a_large_limit_of_frames_makes_no_service_busy(starting, calling, site, video, how):
    """While a short video with a large max_frames is unfinished, another one of the account is accepted."""
    service = await starting(limits=AnalyzerLimits(max_pending_pictures=10))
    caller = await calling(service)
    first = await caller.ask(url=site.url("held/1.mp4"), max_frames=1000)
    await asyncio.to_thread(site.arrived.acquire, timeout=20)
    second = await caller.ask(**sent(site, video, how), max_frames=1000)
    assert (second.status, second.body.get("status")) == (200, "queued")
    site.gate.set()
    assert (await caller.finished(first))["credits_paid"] == 1  # the held file is an image
    assert (await caller.finished(second))["credits_paid"] == FRAMES


class Gate:
    """A back end whose calls wait until a test opens it."""

    name = "gate"
    features = frozenset({"tags"})
    traits = BackendTraits(calls_network=True)

    def __init__(self):
        self.opened = threading.Event()
        self.called = threading.Event()

    def warm(self):
        """Do nothing: there is no model."""

    def analyze(self, pictures, features, options):
        """Return no entries."""
        self.called.set()
        self.opened.wait(60)
        return [Entries() for _ in pictures]


async def test_a_restart_reserves_nothing_twice(starting, calling, site, database, portal, books):
    """A video that is analyzed again after a restart has the same hold, and is charged once."""
    gate = Gate()
    catalog = BackendCatalog([CatalogEntry("gate", gate.features, {"tags": 1000}, lambda _: gate)])
    config = {"database": database, "catalog": catalog, "backends": ("gate",), "lease_s": 1}
    service = await starting(**config, drain_s=0.1)
    caller = await calling(service, credits=FRAMES)
    answered = await caller.ask(url=site.url("video/1.mp4"), max_frames=1000)
    for stop in (True, False):
        await asyncio.to_thread(gate.called.wait, 20)
        ((free, held),) = [(book.free, book.held) for book in await books(database)]
        assert (free, held) == (0, FRAMES)
        gate.called.clear()
        if stop:
            await portal.call(service.close())
            caller.base_url = (await starting(**config)).base_url
    gate.opened.set()
    done = await caller.finished(answered)
    assert (done["status"], done["credits_paid"], await caller.balance()) == ("completed", FRAMES, 0)
