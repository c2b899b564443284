"""URLs are fetched from public addresses only and within limits; a failed fetch is a message."""

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
"""Spellings of this machine's address."""


@pytest.mark.parametrize("address", PRIVATE.split())
def test_private_addresses_are_not_public(address):
    """Private and special addresses, also embedded in IPv6, are not public."""
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "93.184.216.34"])
def test_public_addresses_are_public(address):
    """Ordinary addresses are public."""
    assert is_public(address)


@given(st.text())
def test_any_text_may_be_judged(text):
    """No text raises an error."""
    for allow_private in (False, True):
        assert url_rejection(text, allow_private=allow_private) is None or url_rejection(
            text, allow_private=allow_private
        )
    is_public(text)


@pytest.fixture
async def strict(site):
    """A fetcher for public addresses that allows the site's port, so that only the address can be refused."""
    limits = FetchLimits(ports=frozenset({80, 443, site.port}))
    async with Fetcher(allow_private=False, limits=limits) as fetcher:
        yield fetcher


async def fetched(fetcher, url) -> bytes:
    """Fetch a URL, and return its content."""
    async with fetcher.fetch(url) as found:
        content = found.read()
        assert found.size_bytes == len(content)
        assert content.startswith(found.head)
        return content


@pytest.mark.parametrize("host", FORMS)
async def test_this_machine_is_not_fetched_from(strict, site, host):
    """No spelling of this machine's address is fetched, and no request arrives."""
    with pytest.raises(FetchError):
        await fetched(strict, f"http://{host}:{site.port}/picture/1.png")
    assert site.paths == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254"])
async def test_forbidden_addresses_say_so(strict, site, host):
    """The error says that the address is not public, also for a host with several addresses."""
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
    """Other schemes, ports and credentials are refused before the host is resolved."""
    with pytest.raises(ForbiddenAddress):
        await fetched(strict, where.format(site=f"127.0.0.1:{site.port}"))
    assert site.paths == []


@pytest.fixture
async def lax():
    """A fetcher that may connect to private addresses."""
    async with Fetcher(allow_private=True) as fetcher:
        yield fetcher


async def test_a_redirect_to_a_forbidden_place_is_not_followed(site):
    """The address of a redirect's target is checked, even if the first address was allowed."""
    limits = FetchLimits(ports=frozenset({site.port}), is_public=lambda address: address == "127.0.0.1")
    async with Fetcher(allow_private=False, limits=limits) as fetcher:
        for host in ("127.0.0.2", "[::1]", "169.254.169.254"):
            where = f"http://{host}:{site.port}/picture/1.png"
            with pytest.raises(ForbiddenAddress, match="not public"):
                await fetched(fetcher, site.url(f"to/x?where={where}"))
    assert set(site.paths) == {"/to/x"}


@pytest.mark.parametrize(
    "where", ["file:///etc/hosts", "ftp://127.0.0.1/", "http://a:b@127.0.0.1/", "http://[", "", "//"]
)
async def test_a_redirect_to_an_invalid_url_is_an_error(lax, site, where):
    """A redirect to another scheme or an invalid URL is an error."""
    with pytest.raises(FetchError):
        await fetched(lax, site.url(f"to/x?where={where}"))


async def test_five_redirects_are_followed_and_no_more(lax, site):
    """Five redirects are followed, and a sixth is an error."""
    assert (await fetched(lax, site.url("hop/4/x.png"))).startswith(b"\x89PNG")
    with pytest.raises(FetchError, match="more than 5 redirects"):
        await fetched(lax, site.url("hop/5/x.png"))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("truncated/x.jpg", "the transfer ended before the content was complete"),
        ("status/404", "HTTP 404"),
        ("status/503", "HTTP 503"),
        ("status/204", "HTTP 204"),
    ],
)
async def test_a_truncated_body_or_an_error_status_is_an_error(lax, site, path, message):
    """A truncated body and a status without content are errors with a message for users."""
    with pytest.raises(FetchError, match=f"^{message}$"):
        await fetched(lax, site.url(path))


async def test_a_refused_connection_is_an_error(lax, unused_tcp_port):
    """A port where nothing listens is an error."""
    with pytest.raises(FetchError, match="no connection"):
        await fetched(lax, f"http://127.0.0.1:{unused_tcp_port}/x.png")


@pytest.mark.parametrize("path", ["endless/x.jpg", "endless/x.mp4"])
async def test_sizes_are_counted(site, path):
    """Endless images and videos are aborted at the size limit."""
    limits = FetchLimits(max_image_bytes=512 * 1024, max_video_bytes=1024 * 1024)
    async with Fetcher(allow_private=True, limits=limits) as fetcher:
        with pytest.raises(MediaTooLarge):
            await fetched(fetcher, site.url(path))


@pytest.mark.parametrize("limits", [FetchLimits(max_pause_s=0.1), FetchLimits(total_s=0.1)], ids=["silence", "in all"])
async def test_slow_bodies_are_aborted(site, limits):
    """A host that stops sending is aborted at the time limit."""
    async with Fetcher(allow_private=True, limits=limits) as fetcher:
        with pytest.raises(FetchError, match="in time"):
            await fetched(fetcher, site.url("slow/x.jpg"))


async def test_compressed_bodies_are_read(lax, site):
    """A compressed body is decompressed."""
    assert (await fetched(lax, site.url("gzip/x.png"))).startswith(b"\x89PNG")


async def test_cookies_are_not_sent_again(lax, site):
    """Cookies of one fetch are not sent by the next one, which may be of another client."""
    for _ in range(2):
        await fetched(lax, site.url("cookie/x.png"))


async def test_files_last_as_long_as_the_block(lax, site):
    """Small contents are never on disk, and files of large ones are removed after the block."""
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
        "hop/6/x",
    ],
)
async def test_one_bad_url_never_fails_the_others(caller, site, path):
    """A failed URL becomes a message that names it; the other assets are answered and charged."""
    urls = [site.url("picture/1.png"), site.url(path), site.url("picture/2.png")]
    done = await caller.finished(await caller.ask(url=urls))
    assert [asset["name"] for asset in done["all"]["assets"]] == [urls[0], urls[2]]
    (error,) = done["all"]["errors"]
    assert urls[1] in error
    assert error.count(" ") > 1
    assert done["credits_paid"] == 2


async def test_a_strict_service_fetches_nothing_private(starting, calling, site):
    """The service answers each private URL with a message, charges nothing, and sends no request."""
    limits = FetchLimits(ports=frozenset({site.port}))
    caller = await calling(await starting(allow_private=False, fetch_limits=limits))
    urls = [f"http://{host}:{site.port}/picture/1.png" for host in FORMS]
    done = await caller.finished(await caller.ask(url=urls))
    assert (done["all"]["assets"], done["credits_paid"]) == ([], 0)
    assert [error.partition(": ")[0] for error in done["all"]["errors"]] == urls
    assert site.paths == []


async def test_a_strict_service_refuses_other_ports(starting, calling, site):
    """A URL with another port than 80 and 443 is refused with the request."""
    caller = await calling(await starting(allow_private=False))
    refused = await caller.ask(url=f"http://example.org:{site.port}/x.png")
    assert (refused.status, refused.body["error"]) == (400, "Invalid URLs detected.")


async def test_slow_hosts_do_not_hold_up_the_others(caller, site):
    """An upload is answered while forty URLs do not respond."""
    slow = await caller.ask(url=[site.url(f"held/{seed}.png") for seed in range(40)])
    await asyncio.to_thread(site.arrived.acquire)
    answered = await caller.ask(url=site.url("picture/7.png"))
    assert answered.body["status"] == "completed"
    site.gate.set()
    assert (await caller.finished(slow))["credits_paid"] == 40
