"""Create rate limiters, adjust them to answers, store their learned limit, and share the limit between processes."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Final

from lightmeter.client.base_url import canonical_base_url
from lightmeter.client.classify import Classification, ResponseVerdict
from lightmeter.client.http_answer import RawAnswer
from lightmeter.client.rate_limit import AdaptiveLimiter, LocalLimiter, SendRecord, parse_quota
from lightmeter.client.shared_limit import SharedLimitMember, join_shared_limit
from lightmeter.cpu_count import process_cpu_count
from lightmeter.embedded_service import Endpoint
from lightmeter.journal.commands.submissions import get_meta, put_meta
from lightmeter.journal.store import open_read_only
from lightmeter.run_session.session import Session

_META_KEY: Final = "pace"
"""Name under which the journal stores the limit that the rate limiter has learned."""

SHARE_INTERVAL_S: Final = 0.5
"""Seconds between two exchanges of learned limits; until the next one, processes together may exceed the limit."""


def open_limiter(max_in_flight: int, endpoint: Endpoint) -> AdaptiveLimiter:
    """Return a rate limiter for the requests of a run; `max_in_flight` is the most that may be in flight at once."""
    if endpoint.local:
        return LocalLimiter(max_in_flight, process_cpu_count())
    jitter = random.Random().random  # noqa: S311 (spreads pauses; no secret)
    return AdaptiveLimiter(max_in_flight, watch_latency=not endpoint.embedded, jitter=jitter)


def learn_from_answer(
    limiter: AdaptiveLimiter, record: SendRecord, raw: RawAnswer, classification: Classification, now_s: float
) -> None:
    """Tell a rate limiter about an answer: whether the request was throttled, the latency, and the stated quota.

    Args:
        limiter: The limiter.
        record: What `limiter.on_sent` returned for the request.
        raw: The answer.
        classification: The verdict about the answer, such as answered or throttled.
        now_s: When the answer came, in monotonic seconds.
    """
    if classification.verdict is ResponseVerdict.THROTTLED:
        limiter.on_throttled(now_s, classification.retry_after_s, record)
    else:
        limiter.on_answer(now_s, now_s - record.sent_at, record)
    if classification.retry_after_s is None and (quota := parse_quota(raw.headers)) is not None:
        limiter.on_quota(now_s, quota)


@asynccontextmanager
async def persisted_limiter(session: Session, limiter: AdaptiveLimiter) -> AsyncIterator[None]:
    """Start a limiter with the stored limit; at the end of the `with` block, store the limit that it has learned.

    During the block, processes that use the same API key on this machine share the limit. For the embedded service,
    which has no rate limit, nothing is shared or stored.
    """
    if session.endpoint.embedded:
        yield
        return
    clock, journal = session.clock, session.journal
    with ExitStack() as stack:
        member = _join(session, stack)
        shared_state = member.load_last_state(clock.now()) if member is not None else {}
        limiter.warm_start(shared_state or _stored_state(session), clock.monotonic())
        sharing = asyncio.create_task(_share_forever(session, limiter, member)) if member is not None else None
        try:
            yield
        finally:
            if sharing is not None:
                sharing.cancel()
                await asyncio.wait({sharing})
            state = limiter.state()
            if member is not None:
                member.save_last_state(state, clock.now())
            stored = {"base_url": session.endpoint.base_url, "state": state}
            await journal.write(put_meta({_META_KEY: json.dumps(stored)}))


def _join(session: Session, stack: ExitStack) -> SharedLimitMember | None:
    key = session.endpoint.api_key
    if session.state_dir is None or key is None:
        return None
    with suppress(OSError):  # (a run does not depend on a writable folder: it then shares with nobody)
        return stack.enter_context(
            join_shared_limit(session.state_dir, session.endpoint.base_url, key.get_secret_value())
        )
    return None


def _stored_state(session: Session) -> Mapping[str, float]:
    """Return the learned limit that an earlier start of the run stored for the same service; empty if there is none.

    The result has the keys and values of `AdaptiveLimiter.state`, such as `rate` in requests per second.
    """
    with open_read_only(session.out) as db:
        text = get_meta(db).get(_META_KEY)
    stored = json.loads(text) if text else {}
    base_url = stored.get("base_url")
    if not base_url or canonical_base_url(base_url) != canonical_base_url(session.endpoint.base_url):
        return {}
    state: Mapping[str, float] = stored["state"]
    return state


async def _share_forever(session: Session, limiter: AdaptiveLimiter, member: SharedLimitMember) -> None:
    """Exchange learned limits with other processes of this machine every `SHARE_INTERVAL_S` seconds, until cancelled.

    `limiter` gets its share of the limit; `member` exchanges the limits by files; `session` is the open run.
    """
    while True:
        with suppress(OSError):  # (such as a full disk: the shares then stay as they are)
            limiter.adopt_share(member.exchange_states(limiter.state()), session.clock.monotonic())
        await session.clock.sleep(SHARE_INTERVAL_S)
