"""The pace of a run beyond the run: begun where the last one ended, and shared with others that use the same key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Final

from lightmeter.client.base_url import canonical_base_url
from lightmeter.client.rate_limit import AdaptiveLimiter
from lightmeter.client.shared_limit import SharedLimitMember, join_shared_limit
from lightmeter.engine.session import Session
from lightmeter.journal.commands import get_meta, put_meta
from lightmeter.journal.store import open_read_only

__all__ = ["persisted_limiter"]

_META: Final = "pace"
LOOK_EVERY_S: Final = 0.5


@asynccontextmanager
async def persisted_limiter(session: Session, pace: AdaptiveLimiter) -> AsyncIterator[None]:
    """Start warm from what is known, share it for as long as the block lasts, and keep what was learned.

    The embedded service belongs to this run alone: there is nothing to share, and no limit to know.
    """
    if session.endpoint.embedded:
        yield
        return
    clock, journal = session.clock, session.journal
    with ExitStack() as stack:
        share = _share(session, stack)
        known = share.load_last_state(clock.now()) if share is not None else {}
        pace.warm_start(known or _kept(session), clock.monotonic())
        looking = asyncio.create_task(_look(session, pace, share)) if share is not None else None
        try:
            yield
        finally:
            if looking is not None:
                looking.cancel()
                await asyncio.wait({looking})
            state = pace.state()
            if share is not None:
                share.save_last_state(state, clock.now())
            await journal.write(put_meta({_META: json.dumps({"base_url": session.endpoint.base_url, "state": state})}))


def _share(session: Session, stack: ExitStack) -> SharedLimitMember | None:
    key = session.endpoint.api_key
    if session.state_dir is None or key is None:
        return None
    with suppress(OSError):  # (a folder that cannot be written is no reason not to run: alone, then)
        return stack.enter_context(
            join_shared_limit(session.state_dir, session.endpoint.base_url, key.get_secret_value())
        )
    return None


def _kept(session: Session) -> Mapping[str, float]:
    """What an earlier start of this run learned of the same service."""
    with open_read_only(session.out) as db:
        kept = get_meta(db).get(_META)
    said = json.loads(kept) if kept else {}
    there = said.get("base_url")
    return said["state"] if there and canonical_base_url(there) == canonical_base_url(session.endpoint.base_url) else {}


async def _look(session: Session, pace: AdaptiveLimiter, share: SharedLimitMember) -> None:
    """Tell and hear, again and again: a few small files, so the loop does it itself."""
    while True:
        with suppress(OSError):  # (a full disk, say: then the parts stay as they are)
            pace.share(share.exchange_states(pace.state()), session.clock.monotonic())
        await session.clock.sleep(LOOK_EVERY_S)
