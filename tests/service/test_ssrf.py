"""No private address can be reached through the service, in any known form of attack."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from lightmeter.errors import FetchError, ForbiddenAddress
from lightmeter.public_addresses import is_public
from lightmeter.service.http.parameters import MAX_ASSETS
from lightmeter.service.ingest.fetch import Fetcher, FetchLimits
from lightmeter.service.ingest.url_rules import PORTS, url_rejection

CORPUS = json.loads(Path(__file__).with_name("ssrf_corpus.json").read_text(encoding="utf-8"))
FORMS, NAMES, REDIRECTS = CORPUS["forms"], CORPUS["names"], CORPUS["redirects"]
ADDRESSED = re.compile(r"(?i)https?://(\[[0-9a-f:.%]+\]|[0-9a-fx.]+|localhost):")
"""Forms that need no name resolution."""
STATUSES = (301, 302, 303, 307, 308)
AT_ONCE = 40
NAMED_LIKE_LOOPBACK = ("http://127.0.0.1:{port}/", "http://[::1]:{port}/", "http://loopback.test:{port}/")


class Names(AbstractResolver):
    """A resolver that returns `answers`; the last one of a list of answers repeats."""

    def __init__(self, answers: dict[str, list[str]]) -> None:
        self.answers = answers
        self.hosts: list[str] = []

    async def resolve(self, host, port=0, family=socket.AF_INET):
        """Return the addresses of a name; numbers as the C library reads them."""
        self.hosts.append(host)
        name = host.rstrip(".").lower()
        addresses = self.answers.get(name) or ["127.0.0.1", "::1"] * (name == "localhost") or [_number(name)]
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self):
        """Do nothing: nothing is open."""


def _number(name: str) -> str:
    try:
        return socket.inet_ntoa(socket.inet_aton(name))
    except (OSError, UnicodeEncodeError):
        raise socket.gaierror(socket.EAI_NONAME, "no such name") from None


@dataclass
class Canary:
    """A server that counts connections to any address of this machine."""

    port: int = 0
    connections: list = field(default_factory=list)
    answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

    async def met(self, reader, writer):
        """Count a connection."""
        self.connections.append(writer.get_extra_info("peername"))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.answer)
        writer.close()


@pytest.fixture
async def canary():
    """Listen on every address of this machine, on one port."""
    canary = Canary()
    four = await asyncio.start_server(canary.met, "0.0.0.0", 0)  # noqa: S104 (every address it could be reached by)
    canary.port = four.sockets[0].getsockname()[1]
    six = await asyncio.start_server(canary.met, "::", canary.port)
    yield canary
    for server in (four, six):
        server.close()
        await server.wait_closed()


def strict(canary: Canary, names: AbstractResolver | None = None, **more) -> Fetcher:
    """A fetcher for public addresses that allows the port of the canary, so that only the address can be refused."""
    limits = FetchLimits(ports=PORTS | {canary.port}, **more)
    return Fetcher(allow_private=False, limits=limits, resolver=names or Names(NAMES))


async def outcome(fetcher: Fetcher, url: str) -> BaseException | bytes:
    """Return the outcome of a fetch."""
    try:
        async with fetcher.fetch(url) as found:
            return found.read()
    except FetchError as error:
        return error


async def all_of(fetcher: Fetcher, urls: list[str]) -> dict[str, BaseException | bytes]:
    """Return the outcome of each fetch."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(url):
        async with gate:
            return await outcome(fetcher, url)

    return dict(zip(urls, await asyncio.gather(*map(one, urls)), strict=True))


def test_the_corpus_is_large_and_each_form_is_there_once():
    """The corpus has at least 200 different forms."""
    assert len(set(FORMS)) == len(FORMS) >= 200


async def test_the_canary_is_reached_when_private_addresses_are_allowed(canary):
    """The canary is reached if private addresses are allowed, so its silence is meaningful."""
    async with Fetcher(allow_private=True, resolver=Names(NAMES)) as fetcher:
        urls = [form.format(port=canary.port) for form in NAMED_LIKE_LOOPBACK]
        assert set((await all_of(fetcher, urls)).values()) == {b"ok"}
    assert len(canary.connections) == 3


async def test_every_form_is_refused_and_no_packet_leaves(canary):
    """Every form is refused, and no connection is made."""
    urls = [form.format(port=canary.port) for form in FORMS]
    async with strict(canary) as fetcher:
        found = await all_of(fetcher, urls)
    assert [url for url, came in found.items() if not isinstance(came, FetchError)] == []
    # The canary hears this machine's addresses alone: that no other was dialled is told by the reasons.
    undialled = ("no such name", "canonical")
    others = {url: str(came) for url, came in found.items() if not isinstance(came, ForbiddenAddress)}
    assert {url: why for url, why in others.items() if not any(words in why for words in undialled)} == {}
    assert len(others) < len(found) / 4
    assert canary.connections == []


@pytest.mark.parametrize("name", NAMES)
async def test_host_names_of_private_addresses_are_refused(canary, name):
    """The refusal is for the address, not for a failed resolution."""
    names = Names(NAMES)
    async with strict(canary, names) as fetcher:
        found = await outcome(fetcher, f"http://{name}:{canary.port}/")
    assert isinstance(found, ForbiddenAddress), found
    assert (names.hosts, canary.connections) == ([name], [])


@pytest.mark.parametrize("status", STATUSES)
async def test_no_redirect_reaches_a_private_address(canary, portal, status):
    """No redirect status and no chain reaches a private address."""
    public = Canary()
    server = await asyncio.start_server(public.met, "127.0.0.9", 0)
    public.port = server.sockets[0].getsockname()[1]
    names = Names({**NAMES, "public.test": ["127.0.0.9"]})
    limits = FetchLimits(
        ports=PORTS | {canary.port, public.port},
        is_public=lambda address: address == "127.0.0.9" or is_public(address),
    )
    async with Fetcher(allow_private=False, limits=limits, resolver=names) as fetcher:
        for form in REDIRECTS:
            where = form.format(port=canary.port).encode()
            head = f"HTTP/1.1 {status} Moved\r\nContent-Length: 0\r\nConnection: close\r\nLocation: "
            public.answer = head.encode() + where + b"\r\n\r\n"
            found = await outcome(fetcher, f"http://public.test:{public.port}/x.png")
            assert isinstance(found, FetchError), (form, found)
    server.close()
    await server.wait_closed()
    assert len(public.connections) >= len(REDIRECTS)
    assert canary.connections == []


async def test_dns_rebinding_is_refused(canary):
    """The address of the connection is checked, not an earlier resolution (DNS rebinding)."""

    class Changing(Names):
        async def resolve(self, host, port=0, family=socket.AF_INET):
            self.answers = {"rebind.test": ["127.0.0.1"] if self.hosts else ["203.0.114.1"]}
            return await super().resolve(host, port, family)

    names = Changing({})
    async with strict(canary, names, connect_s=0.2) as fetcher:
        for _ in range(2):
            await outcome(fetcher, f"http://rebind.test:{canary.port}/")
            fetcher._session.connector.clear_dns_cache()
        last = await outcome(fetcher, f"http://rebind.test:{canary.port}/")
    assert isinstance(last, ForbiddenAddress)
    assert canary.connections == []


class Rebinding(Names):
    """A resolver that returns a public address first, and loopback afterwards."""

    async def resolve(self, host, port=0, family=socket.AF_INET):
        """Return a public address, then loopback."""
        if host == "rebind.test":
            self.answers = {**self.answers, host: ["127.0.0.1"] if host in self.hosts else ["203.0.113.1"]}
        return await super().resolve(host, port, family)


async def test_the_service_never_connects_to_a_private_address_by_name(starting, calling, canary):
    """The service resolves each name, refuses its address with a message, and never connects."""
    names = Rebinding(NAMES)
    limits = FetchLimits(ports=PORTS | {canary.port}, connect_s=0.5)
    service = await starting(allow_private=False, fetch_limits=limits, resolver=lambda: names)
    caller = await calling(service)
    urls = [f"http://{name}:{canary.port}/x.png" for name in NAMES]
    done = await caller.finished(await caller.ask(url=urls, feature="colors"))
    assert done["all"] == {"assets": [], "errors": [f"{url}: the address is not public" for url in urls]}
    rebound = f"http://rebind.test:{canary.port}/"
    for number in range(3):
        answered = await caller.ask(url=f"{rebound}{number}.png", feature="colors")
        assert "the address is not public" in answered.body["all"]["errors"][0]
    assert set(NAMES) | {"rebind.test"} == set(names.hosts)
    assert (canary.connections, await caller.balance()) == ([], 1000)


async def test_a_service_that_allows_private_addresses_reaches_the_canary(starting, calling, canary):
    """With private addresses allowed, the same names reach the canary."""
    service = await starting(resolver=lambda: Names({"inside.test": ["127.0.0.1"]}))
    answered = await (await calling(service)).ask(url=f"http://inside.test:{canary.port}/x.png")
    assert answered.body["all"]["assets"] == []
    assert len(canary.connections) == 1


async def test_the_service_refuses_every_form(starting, calling, canary):
    """The service refuses every form without a charge and without a connection."""
    limits = FetchLimits(ports=PORTS | {canary.port})
    caller = await calling(await starting(allow_private=False, fetch_limits=limits))
    urls = [form.format(port=canary.port) for form in FORMS if ADDRESSED.match(form)]
    refused = [url for url in urls if url_rejection(url, allow_private=False, ports=limits.ports)]
    for url in refused[::5]:
        answered = await caller.ask(url=["http://example.org/", url])
        assert (answered.status, answered.body["error"]) == (400, "Invalid URLs detected."), url
    accepted = [url for url in urls if url not in refused]
    errors = []
    for first in range(0, len(accepted), MAX_ASSETS):
        done = await caller.finished(await caller.ask(url=accepted[first : first + MAX_ASSETS], feature="colors"))
        assert (done["all"]["assets"], done["credits_paid"]) == ([], 0)
        errors += done["all"]["errors"]
    assert len(errors) == len(accepted) > len(urls) / 2
    assert all(error.startswith(url) for error, url in zip(errors, accepted, strict=True))
    assert (canary.connections, await caller.balance()) == ([], 1000)
