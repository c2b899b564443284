"""Which rows travel together: pure. Videos and local files travel alone; images by URL in batches if wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from lightmeter.journal.items import Pending

__all__ = ["Batch", "batches"]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one request, and the credits set aside for it."""

    rows: tuple[Pending, ...]
    hold: int


def batches(rows: Iterable[Pending], size: int | Literal["auto"], price: Callable[[Pending], int]) -> Iterator[Batch]:
    """Group rows in their order.

    Args:
        rows: What waits to be sent.
        size: Most images in one request; "auto" is 1, because a single image is answered at once.
        price: Upper end of a row's price in whole credits.
    """
    most = 1 if size == "auto" else size
    waiting: list[Pending] = []
    for row in rows:
        if row.kind == "video" or row.path is not None:
            yield Batch((row,), price(row))
            continue
        waiting.append(row)
        if len(waiting) >= most:
            yield Batch(tuple(waiting), sum(map(price, waiting)))
            waiting = []
    if waiting:
        yield Batch(tuple(waiting), sum(map(price, waiting)))
