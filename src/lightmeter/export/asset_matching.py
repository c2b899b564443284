"""Matches the assets (images and videos) of an answer to the rows of its request, by name alone. Pure.

The order of the assets is not used, because services change it, leave assets out or add some. Names can differ, too: a
service may write a URL in another form, give the URL after a redirect, or name an upload by a temporary path. A row
that no asset name identifies is `unmatched`: the answer stays in the journal, and the row gets no facts. If a request
has one row and its answer has one asset, they belong together whatever the asset's name.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from lightmeter.facts.answer_fields import AnswerFields, whole_credits
from lightmeter.facts.lenient_json import parse_object_lenient
from lightmeter.journal.outcome import AnswerOutcome, RowResult
from lightmeter.manifest.canonical_url import canonical_url

NO_ASSET: Final = "no_asset"
"""Why a row has no asset: every asset of the answer, if any, belongs to another row."""
UNMATCHED: Final = "unmatched"
"""Why a row has no asset: the answer has assets that belong to no row, but none of them has the name of this row."""
REQUEST_FAILED: Final = "request_failed"
"""Why a row has no asset: the service accepted the request, but later failed to process it."""


def expected_asset_name(url: str, path: str | None) -> str:
    """Return the name by which an answer should call a row's image or video.

    This is the URL, or if the file at `path` was uploaded (`path` is not None), the name of the file.
    """
    return url if path is None else Path(path).name


def match_assets(sent: Sequence[str], answered: Sequence[str | None]) -> list[int | None]:
    """Return for each name in `sent` the position in `answered` of the same image or video; None if no name fits.

    Three rules are applied one after another. Each rule considers only names that the earlier rules did not match:

    1. The names are equal.
    2. The names are URLs that are equivalent by RFC 3986, or that differ only in `http` or `https` and in `www.`.
    3. The answered name is a path that ends with the last path segment of the sent name. This identifies a temporary
       path on the server, which still ends with the name of the file. The rule is not applied if one of the two names
       fits several names.

    Args:
        sent: URLs or file names of the images and videos in the request.
        answered: Names of the images and videos in the answer; None for an image or video without a name.
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
    """Return a URL in canonical form (for example with `~` for `%7E`), and any other name unchanged."""
    try:
        return canonical_url(name)
    except ValueError:
        return name


def _address_without_scheme(name: str) -> str:
    """Return an http or https URL in canonical form, without its scheme and `www.`, and any other name unchanged."""
    scheme, separator, rest = _address(name).partition("://")
    return rest.removeprefix("www.") if separator and scheme in {"http", "https"} else name


def _match_by_last_segment(
    sent: Sequence[str], answered: Sequence[str | None], matched: Sequence[int | None], free: Collection[int]
) -> list[tuple[int, int]]:
    """Match the remaining names by rule 3 of `match_assets`; return pairs (index in `sent`, position in `answered`).

    The remaining names are the names in `sent` for which `matched` is None, and the names in `answered` at the
    positions `free`. A name that fits several names is left out.
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
    """Return the last segment of a path, or of a URL without its query, in lower case and with `_` instead of `:`."""
    path = name.partition("?")[0] if "://" in name else name
    return path.rstrip("/").rpartition("/")[2].replace(":", "_").casefold()


def outcome_of(
    raw: bytes, rows: Sequence[tuple[int, str]], hold: int, answer: Mapping[str, Any] | None = None
) -> AnswerOutcome:
    """Return the outcome of a request: its charge, and for each row the matching image or video or an error message.

    Never raise an error, whatever the service sends.

    Args:
        raw: The bytes of the answer.
        rows: The rows of the request, as (number in the journal, URL or file name sent).
        hold: Credits reserved for the request. They count as paid if the answer does not state a charge.
        answer: The JSON object in `raw` if the caller has parsed it already; None to parse `raw`.
    """
    wire = AnswerFields((parse_object_lenient(raw) or {}) if answer is None else answer)
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
        charge_reported=paid is not None,
        charge_exact=paid == charge,
        error_free=not wire.failed and not wire.has_errors,
        rows_identified=None if wire.failed else _rows_identified(by_name, len(names)),
        charge_unknown=wire.failed and paid is None,
    )


def _rows_identified(by_name: Sequence[int | None], assets: int) -> bool | None:
    """Return whether the names of an answer's assets identify the rows of the request; None if that is not known.

    It is not known if the answer just leaves out fewer than half of the rows, such as an image that the service could
    not load. An answer that leaves out more may come from a service that does not analyze all images of a request.

    Args:
        by_name: The position of the asset that was matched to each row by its name; None for a row without an asset.
        assets: Number of assets in the answer.
    """
    rows, matched = len(by_name), len(set(by_name) - {None})
    if matched == rows:
        return True
    return None if not assets or (matched == assets and 2 * matched > rows) else False


def _row_error(wire: AnswerFields, reason: str) -> str:
    details = wire.error_message
    if reason == UNMATCHED:
        return f"No asset name in the answer identifies this row.{f' Its errors: {details}' if details else ''}"
    return details or "The answer has no asset for this row."
