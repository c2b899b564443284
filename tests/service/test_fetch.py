"""What a URL names is fetched from public places only, within bounds, and a bad one is a sentence."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.errors import FetchError, ForbiddenAddress, MediaTooLarge
from lightmeter.public_addresses import is_public
from lightmeter.service.ingest.fetch import Fetcher, FetchLimits
from lightmeter.service.ingest.url_rules import url_rejection

PRIVATE = """
    127.0.0.1 127.255.255.254 0.0.0.0 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 192.0.0.1 192.0.2.1
    198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 240.0.0.1 255.255.255.255 168.63.129.16 ::1 :: ::ffff:127.0.0.1
    ::ffff:10.0.0.1 ::127.0.0.1 fe80::1 fe80::1%eth0 fc00::1 fd00:ec2::254 ff02::1 64:ff9b::7f00:1 2002:7f00:1::
    2001:db8::1 2001::1 fec0::1 nonsense 127.1 0x7f000001 2130706433
"""
FORMS = (
    "127.0.0.1",
    "127.1",
    "0x7f000001",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "2130706433",
    "0",
    "0.0.0.0",  # noqa: S104 (a place to fetch from, not to bind to)
    "localhost",
    "LOCALHOST",
    "localhost.",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "127。0。0。1",
)
"""Ways to write this machine's own address."""


@pytest.mark.parametrize("address", PRIVATE.split())
def test_private_addresses_are_not_public(address):
    """Loopback, private, link-local, shared, documentation, multicast, and IPv4 wrapped into IPv6."""
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "93.184.216.34"])
def test_public_addresses_are_public(address):
    """Ordinary addresses can be fetched from."""
    assert is_public(address)


@given(st.text())
def test_any_text_may_be_judged(text):
    """Whatever a URL is, judging it raises nothing."""
    for allow_private in (False, True):
        assert url_rejection(text, allow_private=allow_private) is None or url_rejection(
            text, allow_private=allow_private
        )
    is_public(text)


@pytest.fixture
async def strict(site):
    """A fetcher for public places; the site's port counts as one of the web's, so that only the address refuses."""
    limits = FetchLimits(ports=frozenset({80, 443, site.port}))
    async with Fetcher(allow_private=False, limits=limits) as fetcher:
        yield fetcher


async def fetched(fetcher, url) -> bytes:
    """The content behind a URL."""
    async with fetcher.fetch(url) as found:
        content = found.content()
        assert found.size_bytes == len(content)
        assert content.startswith(found.head)
        return content


@pytest.mark.parametrize("host", FORMS)
async def test_our_own_machine_is_not_fetched_from(strict, site, host):
    """In no spelling; and no request arrives there."""
    with pytest.raises(FetchError):
        await fetched(strict, f"http://{host}:{site.port}/picture/1.png")
    assert site.seen == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254"])
async def test_forbidden_addresses_say_so(strict, site, host):
    """The reason is that the address is not public, also for a name with several addresses."""
    with pytest.raises(ForbiddenAddress, match="not public"):
        await fetched(strict, f"http://{host}:{site.port}/picture/1.png")


@pytest.mark.parametrize(
    "where",
    [
        "http://user@{site}/a",
        "http://{site}@127.0.0.1/a",
        "ftp://{site}/a",
        "http://127.0.0.1:22/",
        "file:///etc/hosts",
    ],
)
async def test_other_schemes_ports_and_credentials_are_refused(strict, site, where):
    """Before anything is looked up."""
    with pytest.raises(ForbiddenAddress):
        await fetched(strict, where.format(site=f"127.0.0.1:{site.port}"))
    assert site.seen == []


@pytest.fixture
async def lax():
    """A fetcher that may fetch from this machine."""
    async with Fetcher(allow_private=True) as fetcher:
        yield fetcher


async def test_a_redirect_to_a_forbidden_place_is_not_followed(site):
    """Each hop is checked at the socket: the first address is allowed here, the one it leads to is not."""
    limits = FetchLimits(ports=frozenset({site.port}), is_public=lambda address: address == "127.0.0.1")
    async with Fetcher(allow_private=False, limits=limits) as fetcher:
        for host in ("127.0.0.2", "[::1]", "169.254.169.254"):
            where = f"http://{host}:{site.port}/picture/1.png"
            with pytest.raises(ForbiddenAddress, match="not public"):
                await fetched(fetcher, site.url(f"to/x?where={where}"))
    assert set(site.seen) == {"/to/x"}


@pytest.mark.parametrize(
    "where", ["file:///etc/hosts", "ftp://127.0.0.1/", "http://a:b@127.0.0.1/", "http://[", "", "//"]
)
async def test_a_redirect_to_nonsense_is_an_error(lax, site, where):
    """Other schemes and unreadable targets."""
    with pytest.raises(FetchError):
        await fetched(lax, site.url(f"to/x?where={where}"))


async def test_three_redirects_are_followed_and_no_more(lax, site):
    """Three hops are the web's ways, four are a loop."""
    assert (await fetched(lax, site.url("hop/2/x.png"))).startswith(b"\x89PNG")
    with pytest.raises(FetchError, match="more than 3 redirects"):
        await fetched(lax, site.url("hop/3/x.png"))


@pytest.mark.parametrize("path", ["truncated/x.jpg", "status/404", "status/503", "status/204"])
async def test_what_is_not_whole_is_an_error(lax, site, path):
    """A body that ends early, and every status but 200."""
    with pytest.raises(FetchError):
        await fetched(lax, site.url(path))


async def test_nobody_there_is_an_error(lax, unused_tcp_port):
    """A port where nothing listens."""
    with pytest.raises(FetchError, match="no connection"):
        await fetched(lax, f"http://127.0.0.1:{unused_tcp_port}/x.png")


@pytest.mark.parametrize("path", ["endless/x.jpg", "endless/x.mp4"])
async def test_sizes_are_counted(site, path):
    """Images and videos that never end are left at their bound."""
    limits = FetchLimits(max_image_bytes=512 * 1024, max_video_bytes=1024 * 1024)
    async with Fetcher(allow_private=True, limits=limits) as fetcher:
        with pytest.raises(MediaTooLarge):
            await fetched(fetcher, site.url(path))


@pytest.mark.parametrize("limits", [FetchLimits(silence_s=0.1), FetchLimits(total_s=0.1)], ids=["silence", "in all"])
async def test_slow_bodies_are_left(site, limits):
    """A host that stops in the middle is not waited for."""
    async with Fetcher(allow_private=True, limits=limits) as fetcher:
        with pytest.raises(FetchError, match="in time"):
            await fetched(fetcher, site.url("slow/x.jpg"))


async def test_compressed_bodies_are_read(lax, site):
    """Whatever encoding a server insists on."""
    assert (await fetched(lax, site.url("gzip/x.png"))).startswith(b"\x89PNG")


async def test_cookies_are_not_kept(lax, site):
    """What one fetch was given is not shown by the next: they may be two callers'."""
    for _ in range(2):
        await fetched(lax, site.url("cookie/x.png"))


async def test_files_last_as_long_as_the_block(lax, site):
    """What is small never comes to disk, and of what is large nothing is left there."""
    async with lax.fetch(site.url("picture/1.png")) as found:
        assert isinstance(found.source, bytes)
    async with lax.fetch(site.url("media/bunny.mp4")) as found:
        assert found.source.stat().st_size == found.size_bytes
    assert not found.source.parent.exists()


@pytest.mark.parametrize(
    "path",
    [
        "status/404/x.png",
        "page/x.png",
        "empty/x.png",
        "broken/x.jpg",
        "truncated/x.jpg",
        "to/x.png?where=file:///",
        "hop/4/x",
    ],
)
async def test_one_bad_url_never_fails_the_others(caller, site, path):
    """It is a sentence with its URL; the others are answered and charged."""
    urls = [site.url("picture/1.png"), site.url(path), site.url("picture/2.png")]
    done = await caller.finished(await caller.ask(url=urls))
    assert [asset["name"] for asset in done["all"]["assets"]] == [urls[0], urls[2]]
    (error,) = done["all"]["errors"]
    assert urls[1] in error
    assert error.count(" ") > 1
    assert done["credits_paid"] == 2


async def test_a_strict_service_fetches_nothing_private(starting, calling, site):
    """Through the whole service: every spelling is a sentence of its own, nothing is charged, no request arrives."""
    limits = FetchLimits(ports=frozenset({site.port}))
    caller = await calling(await starting(allow_private=False, fetch_limits=limits))
    urls = [f"http://{host}:{site.port}/picture/1.png" for host in FORMS]
    done = await caller.finished(await caller.ask(url=urls))
    assert (done["all"]["assets"], done["credits_paid"]) == ([], 0)
    assert [error.partition(": ")[0] for error in done["all"]["errors"]] == urls
    assert site.seen == []


async def test_a_strict_service_refuses_other_ports(starting, calling, site):
    """A port that is none of the web's is refused in principle."""
    caller = await calling(await starting(allow_private=False))
    refused = await caller.ask(url=f"http://example.org:{site.port}/x.png")
    assert (refused.status, refused.body["error"]) == (400, "Invalid URLs detected.")


async def test_slow_hosts_do_not_hold_up_the_others(caller, site):
    """With forty URLs that do not answer, an upload is still answered at once."""
    slow = await caller.ask(url=[site.url(f"held/{seed}.png") for seed in range(40)])
    await asyncio.to_thread(site.arrived.acquire)
    answered = await caller.ask(url=site.url("picture/7.png"))
    assert answered.body["status"] == "completed"
    site.gate.set()
    assert (await caller.finished(slow))["credits_paid"] == 40
