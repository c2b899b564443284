"""Matching of the assets (images and videos) of an answer to the rows of its request, by name alone. Pure.

The order of the assets proves nothing: services change it, leave assets out, add some, write addresses in another form
or as they were redirected, or name an upload by a temporary path. A row that no asset name identifies is `unmatched`:
the answer stays in the journal, and the row gets no facts. If a request has one row and its answer one asset, they
belong together whatever the name.
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

NO_ASSET: Final = "no_asset"
"""Reason of a row without an asset: all assets of the answer belong to other rows."""
UNMATCHED: Final = "unmatched"
"""Reason of a row without an asset: the answer has assets left over, but none with the name of this row."""
REQUEST_FAILED: Final = "request_failed"
"""Reason of the rows of a request that the service accepted and then failed to answer."""


def expected_asset_name(url: str, path: str | None) -> str:
    """Return the name that an answer should give to a row's image or video: its URL, or if uploaded, its file name."""
    return url if path is None else Path(path).name


def match_assets(sent: Sequence[str], answered: Sequence[str | None]) -> list[int | None]:
    """Return for each sent name the position in `answered` of the same image or video, or None if no name fits.

    Three rules apply in turn, each to the names that the rules before it did not match:

    1. The names are equal.
    2. The names are the same URL: equivalent by RFC 3986, or differing only in `http` or `https` and in `www.`.
    3. The answered name is a path that ends with the last path segment of the sent name, and neither of the two names
       fits a third one. A temporary path on the server still ends with the name of the file.

    Args:
        sent: URLs or file names of the images and videos in the request.
        answered: Names of the images and videos in the answer; None for one without a name.
    """
    matched: list[int | None] = [None] * len(sent)
    free = set(range(len(answered)))

    def assign(index: int, position: int) -> None:
        matched[index] = position
        free.discard(position)

    for key in (str, _address, _address_without_scheme):
        places: dict[str, deque[int]] = defaultdict(deque)
        for position in sorted(free):
            if (name := answered[position]) is not None:
                places[key(name)].append(position)
        for index, name in enumerate(sent if places else ()):
            if matched[index] is None and (waiting := places.get(key(name))):
                assign(index, waiting.popleft())
    for index, position in _match_by_last_segment(sent, answered, matched, free):
        assign(index, position)
    return matched


def _address(name: str) -> str:
    """Return an asset's name in an answer: a URL in canonical form (`~` for `%7E`), a file name unchanged."""
    try:
        return canonical_url(name)
    except ValueError:
        return name


def _address_without_scheme(name: str) -> str:
    """Return an http(s) URL in canonical form without its scheme and `www.`; return any other name unchanged."""
    scheme, separator, rest = _address(name).partition("://")
    return rest.removeprefix("www.") if separator and scheme in {"http", "https"} else name


def _match_by_last_segment(
    sent: Sequence[str], answered: Sequence[str | None], matched: Sequence[int | None], free: Collection[int]
) -> list[tuple[int, int]]:
    """Return pairs (index in `sent`, position in `answered`) of names that end in the same path segment.

    Only names that are not yet matched count: those of `sent` for which `matched` is None, and those of `answered` at
    the positions `free`. Names that fit several others are left out.
    """
    ends = {index: _last_segment(sent[index]) for index, position in enumerate(matched) if position is None}
    paths = {position: answered[position] or "" for position in free if "://" not in (answered[position] or "")}
    names = {position: _last_segment(path) for position, path in paths.items()}
    fits = [(index, at) for index, end in ends.items() for at, name in names.items() if end and _ends(name, end)]
    rows, assets = Counter(index for index, _ in fits), Counter(at for _, at in fits)
    return [(index, at) for index, at in fits if rows[index] == assets[at] == 1]


def _ends(name: str, end: str) -> bool:
    return name.endswith(end) and not name[: -len(end)][-1:].isalnum()


def _last_segment(name: str) -> str:
    """Return the last segment of `name`, a path or a URL (without its query), in lower case, with `_` for `:`."""
    path = name.partition("?")[0] if "://" in name else name
    return path.rstrip("/").rpartition("/")[2].replace(":", "_").casefold()


def outcome_of(
    raw: bytes, rows: Sequence[tuple[int, str]], hold: int, answer: Mapping[str, Any] | None = None
) -> AnswerOutcome:
    """Return the charge of an answer, and for each row of its request the matching image or video, or an error message.

    Never raises, whatever the service sends.

    Args:
        raw: The answer's bytes.
        rows: The rows of the request, as (number in the journal, URL or file name sent).
        hold: Credits reserved for the request; they count as paid if the answer states no charge.
        answer: The JSON object in `raw`, if it is already parsed.
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
    details = wire.error_message
    if reason == UNMATCHED:
        return f"No asset name in the answer identifies this row.{f' Its errors: {details}' if details else ''}"
    return details or "The answer has no asset for this row."
