"""An answer as it came off the wire, before anything is parsed. A plain value, so that policy stays pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["RawAnswer"]


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """One HTTP answer.

    Attributes:
        status: The HTTP status, 100 to 599.
        headers: Header values by lowercase name; of repeated headers the last.
        body: The body's bytes, after content decoding and before any parsing.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
