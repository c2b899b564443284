"""Test server with hidden rate limits, in a process of its own on loopback.

Its arguments are a JSON list of [kind, seed] pairs and a start time on the monotonic clock. The limit with index n in
the list answers under /n/api/fetch. It prints its port.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from aiohttp import web

from tests.bench.rate_limit.random_limits import draw, service_of


async def serve(pairs: list[tuple[str, int]], began: float) -> None:
    """Serve until standard input ends."""
    services = [service_of(draw(kind, seed), seed) for kind, seed in pairs]

    async def fetch(request: web.Request) -> web.Response:
        reply = services[int(request.match_info["n"])].arrive(time.monotonic() - began)
        await request.read()
        await asyncio.sleep(reply.after_s)
        if reply.accepted:
            return web.json_response({"status": "done", "all": {}})
        headers = {} if reply.retry_after_s is None else {"Retry-After": f"{reply.retry_after_s:.0f}"}
        return web.json_response({"error": "Too many requests."}, status=429, headers=headers)

    app = web.Application()
    app.router.add_post("/{n}/api/fetch", fetch)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1]), float(sys.argv[2])))
