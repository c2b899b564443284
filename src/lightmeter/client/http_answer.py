"""A raw HTTP answer. It is a plain value, so that modules which classify answers need no HTTP library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """One HTTP answer as received.

    Attributes:
        status: The HTTP status, 100 to 599.
        headers: Header values by lowercase name; of a repeated header, the last one.
        body: Bytes of the body, after content decoding and before any parsing.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
