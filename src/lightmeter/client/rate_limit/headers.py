"""Parses rate-limit response headers: `RateLimit` of the IETF draft and its older spellings."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

_NUMBER: Final = re.compile(r"\d{1,12}(\.\d{1,9})?", re.ASCII)
_PARAMETER: Final = re.compile(r";\s*([rt])=(\d{1,12})", re.ASCII)
_PREFIXES: Final = ("ratelimit-", "x-ratelimit-", "x-rate-limit-")
_MAX_DURATION_S: Final = 1e9
"""If the header value for the reset is above this, it is not a duration but a time in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Remaining allowance that a service states in its headers.

    Attributes:
        remaining: Requests that may still be sent, 0 or more.
        reset_s: Seconds until the allowance is renewed, above 0.
    """

    remaining: float
    reset_s: float


def parse_quota(headers: Mapping[str, str]) -> Quota | None:
    """Return the quota that the headers (by lowercase name) state, or None if they state none.

    If they state several, return the one that allows the fewest requests per second. The headers may follow
    draft-ietf-httpapi-ratelimit-headers (`RateLimit: "name";r=50;t=30`), or use the older separate fields
    (`RateLimit-Remaining`, `X-RateLimit-Reset`). The reset may be a duration in seconds, or a time, which is compared
    with the answer's `Date` header.
    """
    if not any("ratelimit" in name or "rate-limit" in name for name in headers):
        return None
    draft = [dict(_PARAMETER.findall(item)) for item in headers.get("ratelimit", "").split(",")]
    pairs = [(item.get("r", ""), item.get("t", "")) for item in draft]
    pairs += [(headers.get(f"{prefix}remaining", ""), headers.get(f"{prefix}reset", "")) for prefix in _PREFIXES]
    quotas = [quota for pair in pairs if (quota := _to_quota(*pair, headers)) is not None]
    return min(quotas, key=lambda quota: quota.remaining / quota.reset_s, default=None)


def _to_quota(remaining: str, reset: str, headers: Mapping[str, str]) -> Quota | None:
    """Return the quota that two header values state; None if a value is invalid or the reset is not in the future.

    Args:
        remaining: Number of requests that may still be sent.
        reset: When the quota is renewed: in seconds from the answer on or, if above 1e9, in seconds since the epoch.
        headers: The headers of the answer, by lowercase name. Only `date` is used: it is subtracted from a reset in
            seconds since the epoch.
    """
    if not _NUMBER.fullmatch(remaining.strip()) or not _NUMBER.fullmatch(reset.strip()):
        return None
    reset_s = float(reset)
    if reset_s > _MAX_DURATION_S:
        try:
            date = parsedate_to_datetime(headers.get("date", ""))
            reset_s -= (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    return Quota(float(remaining), reset_s) if 0 < reset_s < math.inf else None
