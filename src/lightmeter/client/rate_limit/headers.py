"""What an answer's headers say about the limit: `RateLimit` of the IETF draft, and its many older spellings."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

__all__ = ["Quota", "quota_of"]

_NUMBER: Final = re.compile(r"\d{1,12}(\.\d{1,9})?", re.ASCII)
_PARAMETER: Final = re.compile(r";\s*([rt])=(\d{1,12})", re.ASCII)
_PREFIXES: Final = ("ratelimit-", "x-ratelimit-", "x-rate-limit-")
# A reset above this is no duration but an instant, in seconds since the epoch.
_INSTANT_S: Final = 1e9


@dataclass(frozen=True, slots=True)
class Quota:
    """What is left of a limit.

    Attributes:
        remaining: Requests that may still be sent, 0 or more.
        reset_s: Seconds until there are more, above 0.
    """

    remaining: float
    reset_s: float


def quota_of(headers: Mapping[str, str]) -> Quota | None:
    """The tightest quota that headers (by lowercase names) state; None when they state none that can be read.

    Both draft-ietf-httpapi-ratelimit-headers (`RateLimit: "name";r=50;t=30`) and the separate fields before it
    (`RateLimit-Remaining`, `X-RateLimit-Reset`, as seconds or as an instant, counted from the answer's `Date`).
    """
    if not any("ratelimit" in name or "rate-limit" in name for name in headers):
        return None
    found = [quota for quota in (*_items(headers), *_fields(headers)) if quota is not None]
    return min(found, key=lambda quota: quota.remaining / quota.reset_s, default=None)


def _items(headers: Mapping[str, str]) -> list[Quota | None]:
    said = [dict(_PARAMETER.findall(item)) for item in headers.get("ratelimit", "").split(",")]
    return [_quota(one["r"], one["t"], headers) for one in said if one.keys() >= {"r", "t"}]


def _fields(headers: Mapping[str, str]) -> list[Quota | None]:
    return [_quota(headers.get(f"{each}remaining", ""), headers.get(f"{each}reset", ""), headers) for each in _PREFIXES]


def _quota(remaining: str, reset: str, headers: Mapping[str, str]) -> Quota | None:
    if not _NUMBER.fullmatch(remaining.strip()) or not _NUMBER.fullmatch(reset.strip()):
        return None
    reset_s = float(reset)
    if reset_s > _INSTANT_S:
        try:
            reset_s -= parsedate_to_datetime(headers.get("date", "")).timestamp()
        except (ValueError, OverflowError):
            return None
    return Quota(float(remaining), reset_s) if 0 < reset_s < math.inf else None
