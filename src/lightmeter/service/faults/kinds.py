"""What can go wrong on purpose, as values: pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["NAMES", "ODD_VALUES", "Fault", "FaultKind", "Lane", "LimitAlgorithm", "RateLimitFault"]

NAMES: Final = ("temporary", "keep", "redirect", "none")
"""What `shuffle` can do to the names of assets; the first unless told."""

ODD_VALUES: Final = ("nan", "infinity", "digits", "surrogate", "byte", "duplicate", "bom", "trailing")
"""What `odd-value` can do to the text of an answer; one of them by chance unless told."""


class Lane(StrEnum):
    """What a request of the API is for: the lanes a client paces apart."""

    SUBMIT = "submit"
    POLL = "poll"
    CREDITS = "credits"


class FaultKind(StrEnum):
    """What goes wrong, by the name it is written with."""

    LIMIT = "429"
    QUEUE = "queue"
    DROP_BEFORE = "drop-before"
    DROP_AFTER = "drop-after"
    ERROR = "5xx"
    TRUNCATE = "truncate"
    SLOW = "slow"
    LATE = "late"
    UNKNOWN = "unknown"
    SHUFFLE = "shuffle"
    MISSING = "missing"
    EXTRA = "extra"
    ASSETS_OBJECT = "assets-object"
    TEXT_CREDITS = "text-credits"
    NO_CREDITS = "no-credits"
    FAIL_CHARGED = "fail-charged"
    ODD_VALUE = "odd-value"
    CHARGE_LATE = "charge-late"
    PRICES = "prices"
    FORGETFUL = "forgetful"


class LimitAlgorithm(StrEnum):
    """How a hidden limit counts: a bucket that fills evenly, a fixed window, or requests in hand at once."""

    BUCKET = "bucket"
    WINDOW = "window"
    CAP = "cap"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: What goes wrong.
        low: Its chance (0 to 1), its seconds, its requests a second, or its factor; of a range, the least.
        high: Of a range, the most; otherwise the same as `low`.
        lanes: Where.
        status: HTTP status of an error; None: one of 500, 502, 503, 504.
        charged: Whether an error comes after the work was done and charged.
        names: What a shuffle does to names: one of `NAMES`.
        odd: Which of `ODD_VALUES`; None: one of them by chance.
    """

    kind: FaultKind
    low: float
    high: float
    lanes: frozenset[Lane]
    status: int | None = None
    charged: bool = False
    names: str = "temporary"
    odd: str | None = None


@dataclass(frozen=True, slots=True)
class RateLimitFault:
    """A hidden limit: of each key, over all lanes it is `on` together.

    Attributes:
        shape: How it counts.
        most: Requests a second of a bucket, requests of a window, or requests at once.
        window_s: Length of a window.
        burst: What a bucket holds when it is full.
        retry_after: `no`, `yes` (exact seconds, rounded up), `date`, or so many seconds.
        status: HTTP status of a rejection.
        lanes: Where.
    """

    shape: LimitAlgorithm
    most: float
    lanes: frozenset[Lane]
    window_s: float = 0.0
    burst: float = 1.0
    retry_after: str = "no"
    status: int = 429
