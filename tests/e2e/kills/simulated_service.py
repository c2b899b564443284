"""A simulated service that follows the wire contract, has faults on demand, and records all charges in a ledger.

`processes.py` starts it as a process, which shares no code with the product and prints its address once it listens. It
records each POST, its charge and whether it was answered. Like the public service it ignores idempotency keys.

`POST /ledger/KEY` creates an account with rules, `GET /ledger/KEY` reads it, and `PUT /ledger/KEY` adds or removes
credits as a purchase or another user would:

============== =======================================================================================
rule           meaning
============== =======================================================================================
credits        the balance granted
price_milli    millicredits an image
rounding       `image`: each image rounded up; `request`: their sum
latency_s      seconds before an answer
done_after_s   seconds that a batch takes
charge_at      when batches are charged: `ack` or `done`
asynchronous   acknowledge single images too
script         faults of the first POSTs, in order
faults         probability of each fault for later POSTs, drawn with `seed`
============== =======================================================================================
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import sys
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from aiohttp import web

FAULTS = {
    "ok": "no fault",
    "drop_before": "the connection ends, nothing is charged",
    "charge_drop": "charged, then the connection ends",
    "drop_charge": "the connection ends, and later it is charged",
    "slow": "a second of silence",
    "429": "429, nothing is charged",
    "429_wait": "429 with Retry-After",
    "503_wait": "503 with Retry-After, nothing is charged",
    "500_before": "500, nothing is charged",
    "500_charged": "charged, then 500",
    "502_charged": "charged, then a gateway's 502 in HTML",
    "truncated": "charged, then half an answer",
    "garbage": "charged, then 200 with a page that is no JSON",
    "refused": "400 with a text, nothing is charged",
}
SLOW_S = 1.0


@dataclass
class Rules:
    """The rules by which the service treats an account."""

    credits: int = 1_000
    price_milli: int = 1_000
    rounding: str = "image"
    latency_s: float = 0.01
    done_after_s: float = 0.15
    charge_at: str = "ack"
    asynchronous: bool = False
    script: list[str] = field(default_factory=list)
    faults: dict[str, float] = field(default_factory=dict)
    seed: int = 0


@dataclass
class Post:
    """One POST that arrived."""

    number: int
    names: list[str]
    fault: str
    charged: int = 0
    refused: str = ""
    request_id: str = ""
    done_at: float = 0.0
    remaining: int = 0
    answered: bool = False
    polled: int = 0


@dataclass
class Account:
    """The account of a key: its rules, its balance, and every POST."""

    rules: Rules
    balance: int
    chance: random.Random
    posts: list[Post] = field(default_factory=list)
    readings: int = 0
    moved: int = 0
    repeated_keys: int = 0
    keys: set[str] = field(default_factory=set)

    def fault(self) -> str:
        """Return the fault of the next POST."""
        number = len(self.posts)
        if number < len(self.rules.script):
            return self.rules.script[number]
        drawn = self.chance.random()
        for name, chance in self.rules.faults.items():
            drawn -= chance
            if drawn < 0:
                return name
        return "ok"

    def price(self, images: int) -> int:
        """Return the price of a number of images in whole credits."""
        if self.rules.rounding == "image":
            return images * -(-self.rules.price_milli // 1000)
        return -(-images * self.rules.price_milli // 1000)

    def charge(self, post: Post) -> None:
        """Charge a POST, unless it has been charged before."""
        if not post.charged:
            post.charged = self.price(len(post.names))
            self.balance -= post.charged
        post.remaining = self.balance


ACCOUNTS: dict[str, Account] = {}
routes = web.RouteTableDef()


def account_of(request: web.Request) -> Account | None:
    """Return the account whose key the request has; None for an unknown key."""
    return ACCOUNTS.get(request.headers.get("X-API-Key", "").removeprefix("Token "))


def error(status: int, text: str, **headers: str) -> web.Response:
    """Return an error in the form of the contract."""
    return web.json_response({"error": text}, status=status, headers=headers)


@routes.post("/ledger/{key}")
async def set_rules(request: web.Request) -> web.Response:
    """Create an account, or change the rules of one."""
    key, rules = request.match_info["key"], await request.json()
    old = ACCOUNTS.get(key)
    if old is None:
        new_rules = Rules(**rules)
        ACCOUNTS[key] = Account(new_rules, new_rules.credits, random.Random(new_rules.seed))  # noqa: S311 (faults, not secrets)
    else:
        old.rules = replace(old.rules, script=[], faults={}, **rules)
    return web.json_response({})


@routes.put("/ledger/{key}")
async def change_balance(request: web.Request) -> web.Response:
    """Add credits to an account, or remove some, as a purchase or another user would."""
    account, moved = ACCOUNTS[request.match_info["key"]], await request.json()
    account.balance += moved
    account.moved += moved
    return web.json_response({})


@routes.get("/ledger/{key}")
async def get_ledger(request: web.Request) -> web.Response:
    """Return the balance and all POSTs of an account."""
    account = ACCOUNTS[request.match_info["key"]]
    settle_due(account)
    return web.json_response(
        {
            "balance": account.balance,
            "granted": account.rules.credits,
            "readings": account.readings,
            "moved": account.moved,
            "repeated_keys": account.repeated_keys,
            "posts": [asdict(post) for post in account.posts],
        }
    )


def settle_due(account: Account) -> None:
    """Charge the batches that are done by now and were not charged before."""
    now = asyncio.get_running_loop().time()
    for post in account.posts:
        if 0 < post.done_at <= now and not post.charged:
            account.charge(post)


@routes.get("/api/credits")
async def credits_left(request: web.Request) -> web.Response:
    """Return the balance."""
    account = account_of(request)
    if account is None:
        return error(401, "Access denied.")
    account.readings += 1
    settle_due(account)
    return web.json_response({"credits": account.balance})


@routes.post("/api/fetch")
async def fetch(request: web.Request) -> web.StreamResponse:
    """Analyse images; record the POST before anything else."""
    account = account_of(request)
    if account is None:
        return error(401, "Access denied.")
    body = await request.json()
    urls = body.get("url") or []
    names = ([urls] if isinstance(urls, str) else list(urls)) + list(body.get("file_name") or [])
    post = Post(len(account.posts), names, account.fault())
    account.posts.append(post)
    key = request.headers.get("Idempotency-Key")
    account.repeated_keys += key in account.keys
    account.keys.update([key] if key else [])
    await asyncio.sleep(account.rules.latency_s + SLOW_S * (post.fault == "slow"))
    if (refusal := refuse(request, account, post)) is not None:
        return refusal
    later = len(names) > 1 or account.rules.asynchronous
    if post.fault in {"ok", "slow"} and later:
        return acknowledge(account, post, body)
    if post.fault == "drop_charge":
        post.done_at = asyncio.get_running_loop().time() + account.rules.done_after_s
        return abort_connection(request)
    account.charge(post)
    return await send_answer(request, post, results(post, body))


def refuse(request: web.Request, account: Account, post: Post) -> web.Response | None:
    """Return the answer of a fault in which nothing is charged; None for any other fault."""
    if account.balance < account.price(len(post.names)) and post.fault != "drop_before":
        post.refused = "Insufficient credits."
        return error(402, post.refused)
    answers = {
        "429": lambda: error(429, "Too many requests."),
        "429_wait": lambda: error(429, "Too many requests.", **{"Retry-After": "0.1"}),
        "503_wait": lambda: error(503, "Busy.", **{"Retry-After": "0.1"}),
        "500_before": lambda: error(500, "Request failed: the machine is on fire."),
        "refused": lambda: error(400, "Invalid URLs detected."),
        "drop_before": lambda: abort_connection(request),
    }
    if post.fault not in answers:
        return None
    post.refused = post.fault
    return answers[post.fault]()


def abort_connection(request: web.BaseRequest) -> web.Response:
    """End the connection at once; the returned answer is never sent."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def acknowledge(account: Account, post: Post, body: dict[str, Any]) -> web.Response:
    """Accept a batch; its answer must be polled for."""
    post.request_id = f"{id(account):x}-{post.number}"
    post.done_at = asyncio.get_running_loop().time() + account.rules.done_after_s
    REQUESTS[post.request_id] = (post, body)
    if account.rules.charge_at == "ack":
        account.charge(post)
    base = "http://127.0.0.1/api/response/"
    queued = {"request_id": post.request_id, "status": "queued", "success": True}
    return web.json_response({**queued, "response_uri": base + post.request_id})


REQUESTS: dict[str, tuple[Post, dict[str, Any]]] = {}


@routes.get("/api/response/{request_id}")
async def response(request: web.Request) -> web.Response:
    """Return the results of a batch, on each poll."""
    account = account_of(request)
    known = REQUESTS.get(request.match_info["request_id"])
    if account is None or known is None or known[0] not in account.posts:
        return error(404, f"Request ID {request.match_info['request_id']} not found.")
    settle_due(account)
    post, body = known
    post.polled += 1
    if post.done_at > asyncio.get_running_loop().time():
        return web.json_response({"request_id": post.request_id, "status": "processing"})
    post.answered = True
    return web.json_response(results(post, body))


def results(post: Post, body: dict[str, Any]) -> dict[str, Any]:
    """Return an answer whose tags name the asset, so that the tables would show a mix-up."""
    source = (body.get("backend") or ["palette"])[0]
    assets = [{"name": name, "tags": {name: [{"name": name, "score": 0.9, "source": source}]}} for name in post.names]
    return {
        "request_id": post.request_id or f"now-{post.number}",
        "status": "completed",
        "credits_paid": post.charged,
        "credits": post.remaining,
        "all": {"assets": assets, "errors": []},
    }


async def send_answer(request: web.Request, post: Post, answer: dict[str, Any]) -> web.StreamResponse:
    """Send an answer that was charged, or the part of it that the fault leaves."""
    faulty_answers = {
        "charge_drop": lambda: abort_connection(request),
        "500_charged": lambda: error(500, "Request failed: the disk is full."),
        "502_charged": lambda: web.Response(status=502, text="<html>Bad gateway</html>", content_type="text/html"),
        "garbage": lambda: web.Response(text="<html>Welcome</html>", content_type="text/html"),
    }
    if post.fault in faulty_answers:
        return faulty_answers[post.fault]()
    body = json.dumps(answer).encode()
    stream = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(body))})
    with contextlib.suppress(ConnectionError):  # the client was killed: charged all the same
        await stream.prepare(request)
        if post.fault == "truncated":
            await stream.write(body[: len(body) // 2])
            await asyncio.sleep(0.01)
            return abort_connection(request)
        await stream.write(body)
        await stream.write_eof()
        post.answered = True
    return stream


async def main() -> None:
    """Listen on a free port until standard input ends, which happens at the end of the tests."""
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}", flush=True)  # noqa: T201 (its one word)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)  # connections end on purpose here
    asyncio.run(main())
