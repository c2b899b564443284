"""Which asset of an answer belongs to which row: pure. Names first, then order, never a guess.

Services answer in another order, leave assets out, or name an upload by a temporary path of their own.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

import orjson

from lightmeter.journal.changes import Outcome, Placed

__all__ = ["match_assets", "outcome_of"]


def match_assets(sent: Sequence[str], answered: Sequence[str | None]) -> list[int | None]:
    """For each name that was sent, the position of its asset in the answer, or None.

    Equal names are matched first, in order. What is left over is matched by order only when as many assets as names are
    left over; otherwise it cannot be known and stays None.
    """
    places: dict[str, deque[int]] = defaultdict(deque)
    for position, name in enumerate(answered):
        if name is not None:
            places[name].append(position)
    matched: list[int | None] = []
    for name in sent:
        waiting = places.get(name)
        matched.append(waiting.popleft() if waiting else None)
    unmatched = [index for index, position in enumerate(matched) if position is None]
    taken = {position for position in matched if position is not None}
    left = [position for position in range(len(answered)) if position not in taken]
    if len(left) == len(unmatched):
        for index, position in zip(unmatched, left, strict=True):
            matched[index] = position
    return matched


def outcome_of(raw: bytes, rows: Sequence[tuple[int, str]], hold: int) -> Outcome:
    """Read an answer's money and rows; `rows` are (seq, name sent), `hold` is taken as paid where nothing is said.

    Never raises on what a service sends: a row whose asset is missing gets the answer's own errors as its reason.
    """
    try:
        answer = orjson.loads(raw)
    except orjson.JSONDecodeError:
        answer = None
    answer = answer if isinstance(answer, dict) else {}
    results = answer.get("all")
    results = results if isinstance(results, dict) else {}
    assets = _listed(results.get("assets"))
    names = [asset.get("name") if isinstance(asset, dict) else None for asset in assets]
    found = match_assets([name for _, name in rows], [name if isinstance(name, str) else None for name in names])
    why = _why(answer, results)
    failed = str(answer.get("status", "")).lower() == "failed"
    placed = tuple(
        Placed(seq, None, None, why) if position is None or failed else Placed(seq, position, _text(names[position]))
        for (seq, _), position in zip(rows, found, strict=True)
    )
    said = _whole(answer.get("credits_paid"))
    unsaid = 0 if failed else hold
    return Outcome(
        paid=unsaid if said is None else said,
        remaining=_whole(answer.get("credits")),
        request_id=_text(answer.get("request_id")),
        rows=placed,
        reason="request_failed" if failed else "no_asset",
    )


def _why(answer: dict[str, Any], results: dict[str, Any]) -> str:
    texts = [answer["error"]] if answer.get("error") else []
    texts += _listed(results.get("errors"))
    return "; ".join(str(text) for text in texts) or "The answer has no asset for this row."


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    """A whole number of credits; a fraction is rounded up, so that money is never counted low."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value < 0:  # noqa: PLR0124 (NaN)
        return None
    return -int(-value // 1) if value < float(1 << 53) else None
