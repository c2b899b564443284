"""Which asset of an answer belongs to which row: pure. Names first, then order, never a guess.

Services answer in another order, leave assets out, write addresses otherwise or as they were redirected, or name an
upload by a temporary path of their own.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson

from lightmeter.journal.changes import Outcome, Placed
from lightmeter.manifest.canonical import canonical_url

__all__ = ["match_assets", "outcome_of"]


def match_assets(sent: Sequence[str], answered: Sequence[str | None]) -> list[int | None]:
    """For each name that was sent, the position of its asset in the answer, or None where that cannot be known.

    Equal names come first, in order; then the same address written otherwise; then last steps of paths, where each
    fits only one (a temporary path on the server still ends in the name that was sent). What is left over is matched
    by order between those, unless they show that the order was not kept; a single one that is left fits in any order.
    """
    if len(sent) == len(answered) == 1:
        return [0]
    matched: list[int | None] = [None] * len(sent)
    free = set(range(len(answered)))

    def take(index: int, position: int) -> None:
        matched[index] = position
        free.discard(position)

    for key in (str, _address):
        places: dict[str, deque[int]] = defaultdict(deque)
        for position in sorted(free):
            if (name := answered[position]) is not None:
                places[key(name)].append(position)
        for index, name in enumerate(sent if places else ()):
            if matched[index] is None and (waiting := places.get(key(name))):
                take(index, waiting.popleft())
    for index, position in _by_last_step(sent, answered, matched, free):
        take(index, position)
    for index, position in _by_order(matched, free, len(answered)):
        take(index, position)
    return matched


def _address(name: str) -> str:
    """An address as it is compared: `%7E` is `~`, `HTTP://Host` is `http://host`; anything else as it is."""
    try:
        return canonical_url(name)
    except ValueError:
        return name


def _by_last_step(
    sent: Sequence[str], answered: Sequence[str | None], matched: Sequence[int | None], free: Collection[int]
) -> list[tuple[int, int]]:
    """Pairs of which each name ends in the other's last step, and no third does."""
    ends = {index: _last_step(sent[index]) for index, position in enumerate(matched) if position is None}
    names = {position: _last_step(answered[position] or "") for position in free}
    fits = [(index, at) for index, end in ends.items() for at, name in names.items() if end and _ends(name, end)]
    rows, assets = Counter(index for index, _ in fits), Counter(at for _, at in fits)
    return [(index, at) for index, at in fits if rows[index] == assets[at] == 1]


def _ends(name: str, end: str) -> bool:
    return name.endswith(end) and not name[: -len(end)][-1:].isalnum()


def _last_step(name: str) -> str:
    """The last step of a path or an address, as servers write it into temporary names."""
    path = name.partition("?")[0] if "://" in name else name
    return path.rstrip("/").rpartition("/")[2].replace(":", "_").casefold()


def _by_order(matched: Sequence[int | None], free: Collection[int], answered: int) -> list[tuple[int, int]]:
    """Pairs by place, in each stretch between two that are matched, where as many names as assets are left."""
    lost = [index for index, position in enumerate(matched) if position is None]
    if len(lost) == len(free) == 1:
        return list(zip(lost, free, strict=True))
    known = [position for position in matched if position is not None]
    if known != sorted(known):
        return []
    pairs: list[tuple[int, int]] = []
    indexes: list[int] = []
    after = -1
    for index, position in enumerate([*matched, answered]):
        if position is None:
            indexes.append(index)
            continue
        places = [place for place in range(after + 1, position) if place in free]
        if len(places) == len(indexes):
            pairs += zip(indexes, places, strict=True)
        indexes, after = [], position
    return pairs


def outcome_of(
    raw: bytes, rows: Sequence[tuple[int, str]], hold: int, answer: Mapping[str, Any] | None = None
) -> Outcome:
    """Read an answer's money and rows.

    Never raises on what a service sends: a row whose asset is missing gets the answer's own errors as its reason.

    Args:
        raw: The answer's bytes.
        rows: Rows as (seq, name sent).
        hold: Taken for what was paid where the answer does not say.
        answer: The JSON object in `raw`, where somebody has read it already.
    """
    if answer is None:
        answer = _object(raw)
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
    charge = answer.get("credits_paid")
    said = _whole(charge)
    unsaid = 0 if failed else hold
    return Outcome(
        paid=unsaid if said is None else said,
        remaining=_whole(answer.get("credits")),
        request_id=_text(answer.get("request_id")),
        rows=placed,
        reason="request_failed" if failed else "no_asset",
        said=said is not None and said == charge,
        clean=not failed and not answer.get("error") and not results.get("errors"),
    )


def _object(raw: bytes) -> dict[str, Any]:
    try:
        answer = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _why(answer: Mapping[str, Any], results: dict[str, Any]) -> str:
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
