"""Which asset of an answer belongs to which row: pure. Names decide; neither order nor elimination does.

Services answer in another order, leave assets out, add some, write addresses otherwise or as they were redirected, or
name an upload by a temporary path of their own. A row whose asset cannot be known by a name is `unmatched`: the answer
stays in the journal, and the row gets no facts. A request with one image needs no name: its one asset is that image's.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from lightmeter.facts.lenient_json import parse_object_lenient
from lightmeter.facts.wire_answer import WireAnswer, whole_credits
from lightmeter.journal.outcome import AnswerOutcome, RowResult
from lightmeter.manifest.canonical_url import canonical_url

__all__ = ["NO_ASSET", "REQUEST_FAILED", "UNMATCHED", "expected_asset_name", "match_assets", "outcome_of"]

NO_ASSET: Final = "no_asset"
"""Reason of a row whose answer holds no asset that could be its own."""
UNMATCHED: Final = "unmatched"
"""Reason of a row whose asset cannot be told from others in the answer."""
REQUEST_FAILED: Final = "request_failed"
"""Reason of the rows of a request that the service took and could not do."""


def expected_asset_name(url: str, path: str | None) -> str:
    """What a service is expected to call this asset: its URL, or its file's name."""
    return url if path is None else Path(path).name


def match_assets(sent: Sequence[str], answered: Sequence[str | None]) -> list[int | None]:
    """For each name that was sent, the position of the asset that carries this name, or None.

    Three rules apply in turn, each to what the ones before left over:

    1. Equal names, in order.
    2. The same address written otherwise: RFC 3986 equivalence, then `http` for `https` and `www.` left out.
    3. An answered name that is a path, not an address, and ends in the last step of the name that was sent, where
       each fits only one: a temporary path on the server still ends in the file's name.
    """
    matched: list[int | None] = [None] * len(sent)
    free = set(range(len(answered)))

    def take(index: int, position: int) -> None:
        matched[index] = position
        free.discard(position)

    for key in (str, _address, _address_without_scheme):
        places: dict[str, deque[int]] = defaultdict(deque)
        for position in sorted(free):
            if (name := answered[position]) is not None:
                places[key(name)].append(position)
        for index, name in enumerate(sent if places else ()):
            if matched[index] is None and (waiting := places.get(key(name))):
                take(index, waiting.popleft())
    for index, position in _by_last_step(sent, answered, matched, free):
        take(index, position)
    return matched


def _address(name: str) -> str:
    """An address as it is compared: `%7E` is `~`, `HTTP://Host` is `http://host`; anything else as it is."""
    try:
        return canonical_url(name)
    except ValueError:
        return name


def _address_without_scheme(name: str) -> str:
    """An address whose scheme and `www.` do not count: a redirect to them leads to the same picture."""
    scheme, separator, rest = _address(name).partition("://")
    return rest.removeprefix("www.") if separator and scheme in {"http", "https"} else name


def _by_last_step(
    sent: Sequence[str], answered: Sequence[str | None], matched: Sequence[int | None], free: Collection[int]
) -> list[tuple[int, int]]:
    """Pairs of which each name ends in the other's last step, and no third does."""
    ends = {index: _last_step(sent[index]) for index, position in enumerate(matched) if position is None}
    paths = {position: answered[position] or "" for position in free if "://" not in (answered[position] or "")}
    names = {position: _last_step(path) for position, path in paths.items()}
    fits = [(index, at) for index, end in ends.items() for at, name in names.items() if end and _ends(name, end)]
    rows, assets = Counter(index for index, _ in fits), Counter(at for _, at in fits)
    return [(index, at) for index, at in fits if rows[index] == assets[at] == 1]


def _ends(name: str, end: str) -> bool:
    return name.endswith(end) and not name[: -len(end)][-1:].isalnum()


def _last_step(name: str) -> str:
    """The last step of a path or an address, as servers write it into temporary names."""
    path = name.partition("?")[0] if "://" in name else name
    return path.rstrip("/").rpartition("/")[2].replace(":", "_").casefold()


def outcome_of(
    raw: bytes, rows: Sequence[tuple[int, str]], hold: int, answer: Mapping[str, Any] | None = None
) -> AnswerOutcome:
    """Read an answer's money and rows.

    Never raises on what a service sends: a row whose asset cannot be known gets the reason why.

    Args:
        raw: The answer's bytes.
        rows: Rows as (seq, name sent).
        hold: Taken for what was paid where the answer does not say.
        answer: The JSON object in `raw`, where somebody has read it already.
    """
    wire = WireAnswer((parse_object_lenient(raw) or {}) if answer is None else answer)
    names = wire.asset_names
    by_name = match_assets([name for _, name in rows], names)
    positions = [0] if len(rows) == len(names) == 1 else by_name
    reason = REQUEST_FAILED if wire.failed else UNMATCHED if len(names) > len(set(positions) - {None}) else NO_ASSET
    message = _row_error(wire, reason)
    placed = tuple(
        RowResult(seq, None, None, message)
        if position is None or wire.failed
        else RowResult(seq, position, names[position])
        for (seq, _), position in zip(rows, positions, strict=True)
    )
    charge = wire.credits_paid
    paid = whole_credits(charge)
    return AnswerOutcome(
        paid=hold if paid is None else paid,
        remaining=wire.credits_remaining,
        request_id=wire.request_id,
        rows=placed,
        reason=reason,
        charge_reported=paid is not None and paid == charge,
        error_free=not wire.failed and not wire.has_errors,
        rows_identified=None if wire.failed or not names else None not in by_name,
        charge_unknown=wire.failed and paid is None,
    )


def _row_error(wire: WireAnswer, reason: str) -> str:
    """Return the message for rows without an asset."""
    details = wire.error_message
    if reason == UNMATCHED:
        return f"No asset name in the answer identifies this row.{f' Its errors: {details}' if details else ''}"
    return details or "The answer has no asset for this row."
