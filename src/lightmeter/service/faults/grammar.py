"""How faults are written down, and what is read from it: pure, one table.

A fault is `NAME`, `NAME=VALUE`, or either of them with `:OPTION=VALUE,OPTION=VALUE` behind it; several are given one
after another, in several texts or in one with blanks between them::

    429:bucket=10,retry-after=yes   drop-after=0.05   slow=0.2-1.5:on=poll   shuffle   seed=7

`KINDS` is the whole language, and its help.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Final, TypeAlias, TypeVar

from lightmeter.errors import SettingsError
from lightmeter.service.faults.kinds import NAMES, ODD_VALUES, Fault, FaultKind, Lane, LimitAlgorithm, RateLimitFault

__all__ = [
    "FAULT_SYNTAX",
    "NO_FAULTS",
    "Fault",
    "FaultKind",
    "FaultSyntax",
    "Faults",
    "Lane",
    "LimitAlgorithm",
    "RateLimitFault",
]

T = TypeVar("T")

Range: TypeAlias = tuple[float, float]

MAX_SECONDS: Final = 3600.0
MAX_RATE_PER_S: Final = 100_000.0
MAX_PRICE_FACTOR: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Faults:
    """All that shall go wrong; nothing by default.

    Attributes:
        faults: Faults that are not limits.
        limits: Hidden limits.
        seed: Of all chances: the same requests in the same order meet the same faults.
        texts: As they were written, for banners.
    """

    faults: tuple[Fault, ...] = ()
    limits: tuple[RateLimitFault, ...] = ()
    seed: int = 0
    texts: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.faults or self.limits)

    @property
    def price_factor(self) -> float:
        """What all charges are multiplied by: 1 without such a fault, the product of several."""
        return prod(fault.low for fault in self.faults if fault.kind is FaultKind.PRICES)

    @classmethod
    def parse(cls, *texts: str) -> Faults:
        """Read faults.

        Raises:
            SettingsError: a text is none, naming what is wrong and what is allowed.
        """
        words = [word for text in texts for word in text.split()]
        faults: list[Fault] = []
        limits: list[RateLimitFault] = []
        seed = 0
        for word in words:
            if word.startswith("seed="):
                seed = int(_within(word, "seed", word.removeprefix("seed="), 0, 2**63))
                continue
            read = _read(word)
            if isinstance(read, RateLimitFault):
                limits.append(read)
            else:
                faults.append(read)
        return cls(tuple(faults), tuple(limits), seed, tuple(words))


NO_FAULTS: Final = Faults()

_SUBMIT: Final = frozenset({Lane.SUBMIT})
_POLL: Final = frozenset({Lane.POLL})
_RESULTS: Final = _SUBMIT | _POLL


def _bad(word: str, why: str) -> SettingsError:
    return SettingsError(f"--fault {word}: {why}.", hint="See `lightmeter serve --help` for all of them.")


def _within(word: str, name: str, text: str, least: float, most: float) -> float:
    try:
        number = float(text)
    except ValueError:
        raise _bad(word, f"{name} must be a number, not {text!r}") from None
    if not least <= number <= most:
        raise _bad(word, f"{name} must be from {least:g} to {most:g}, not {text}")
    return number


def _chance(word: str, text: str) -> Range:
    chance = _within(word, "a chance", text, 0, 1)
    return chance, chance


def _seconds(word: str, text: str) -> Range:
    low, dash, high = text.partition("-")
    least = _within(word, "seconds", low, 0, MAX_SECONDS)
    return least, _within(word, "seconds", high, least, MAX_SECONDS) if dash else least


def _rate(word: str, text: str) -> Range:
    rate = _within(word, "a rate", text, 0.001, MAX_RATE_PER_S)
    return rate, rate


def _factor(word: str, text: str) -> Range:
    factor = _within(word, "a factor", text, 0.001, MAX_PRICE_FACTOR)
    return factor, factor


@dataclass(frozen=True, slots=True)
class FaultSyntax:
    """How one kind is written.

    Attributes:
        form: The usual way to write it.
        says: What it does.
        value: Reads what stands behind `=`; None: nothing may.
        default: What it is without a value; None: it must have one.
        lanes: Where it happens unless `on` says otherwise.
        options: What may stand behind the colon.
    """

    form: str
    says: str
    value: Callable[[str, str], Range] | None
    default: Range | None
    lanes: frozenset[Lane]
    options: frozenset[str]


_ON: Final = frozenset({"on"})

FAULT_SYNTAX: Final[Mapping[FaultKind, FaultSyntax]] = {
    FaultKind.LIMIT: FaultSyntax(
        "429:bucket=10 | 429:window=60/60 | 429:cap=8",
        "a hidden limit for each key: requests a second (burst=N, 1 unless given), requests in so many seconds, or "
        "requests at once. retry-after=no|yes|date|SECONDS (no unless given), status=429|503.",
        None,
        (0, 0),
        _SUBMIT,
        _ON | {*LimitAlgorithm, "burst", "retry-after", "status"},
    ),
    FaultKind.QUEUE: FaultSyntax(
        "queue=5", "no more than so many a second; the others wait in line.", _rate, None, _SUBMIT, _ON
    ),
    FaultKind.DROP_BEFORE: FaultSyntax(
        "drop-before=0.05", "the connection is closed, and nothing was done.", _chance, None, _SUBMIT, _ON
    ),
    FaultKind.DROP_AFTER: FaultSyntax(
        "drop-after=0.05", "all was done and charged, and then the connection is closed.", _chance, None, _SUBMIT, _ON
    ),
    FaultKind.ERROR: FaultSyntax(
        "5xx=0.02",
        "500, 502, 503 or 504 with a page of HTML. status=N takes one of them, when=after comes after the charge.",
        _chance,
        None,
        _SUBMIT,
        _ON | {"status", "when"},
    ),
    FaultKind.TRUNCATE: FaultSyntax("truncate=0.02", "half of the answer, then the end.", _chance, None, _RESULTS, _ON),
    FaultKind.SLOW: FaultSyntax(
        "slow=0.2-1.5", "each answer comes so many seconds later.", _seconds, None, frozenset(Lane), _ON
    ),
    FaultKind.LATE: FaultSyntax(
        "late=3-300", "polls say processing for so long after the acknowledgment.", _seconds, None, _POLL, frozenset()
    ),
    FaultKind.UNKNOWN: FaultSyntax(
        "unknown=2", "polls say 404 for so long after the acknowledgment.", _seconds, None, _POLL, frozenset()
    ),
    FaultKind.SHUFFLE: FaultSyntax(
        "shuffle",
        "assets in another order under temporary names; names=keep: their own, names=redirect: other addresses, "
        "names=none: without a name. A chance may be given.",
        _chance,
        (1, 1),
        _RESULTS,
        frozenset({"names"}),
    ),
    FaultKind.MISSING: FaultSyntax(
        "missing=0.1", "an asset is charged and not in the answer.", _chance, None, _RESULTS, frozenset()
    ),
    FaultKind.EXTRA: FaultSyntax(
        "extra=0.1", "an asset nobody asked for is in the answer.", _chance, None, _RESULTS, _ON
    ),
    FaultKind.ASSETS_OBJECT: FaultSyntax(
        "assets-object", "assets are an object keyed by name. A chance may be given.", _chance, (1, 1), _RESULTS, _ON
    ),
    FaultKind.TEXT_CREDITS: FaultSyntax(
        "text-credits", "credits_paid and credits are texts. A chance may be given.", _chance, (1, 1), _RESULTS, _ON
    ),
    FaultKind.NO_CREDITS: FaultSyntax(
        "no-credits",
        "an answer without credits_paid and credits. A chance may be given.",
        _chance,
        (1, 1),
        _RESULTS,
        _ON,
    ),
    FaultKind.FAIL_CHARGED: FaultSyntax(
        "fail-charged=0.1",
        "a job that was charged says failed, and no credits_paid (on=submit: answers at once do).",
        _chance,
        None,
        _POLL,
        _ON,
    ),
    FaultKind.ODD_VALUE: FaultSyntax(
        "odd-value=0.1",
        f"a result holds what most readers of JSON refuse: kind={'|'.join(ODD_VALUES)}, one by chance unless given.",
        _chance,
        None,
        _RESULTS,
        _ON | {"kind"},
    ),
    FaultKind.CHARGE_LATE: FaultSyntax(
        "charge-late=2-5",
        "the balance shows a charge so many seconds after an answer that came at once.",
        _seconds,
        None,
        _SUBMIT,
        frozenset(),
    ),
    FaultKind.PRICES: FaultSyntax(
        "prices=2",
        "all charges are those of the price table times so many; GET /api/backends tells the table's.",
        _factor,
        None,
        frozenset(Lane),
        frozenset(),
    ),
    FaultKind.FORGETFUL: FaultSyntax("forgetful", "an Idempotency-Key is ignored.", None, (1, 1), _SUBMIT, frozenset()),
}
"""The language. `on=submit|poll|credits|all` (several with `+`) says where a fault happens, where that may be said."""


def _read(word: str) -> Fault | RateLimitFault:
    written = re.fullmatch(r"([a-z0-9-]+)(?:=([^:]*))?(?::(.*))?", word)
    if written is None or written[1] not in list(FaultKind):
        raise _bad(word, f"the names are {', '.join(FaultKind)} and seed")
    kind = FaultKind(written[1])
    rule = FAULT_SYNTAX[kind]
    value: Range | None = rule.default
    if written[2] is not None:
        if rule.value is None:
            raise _bad(word, f"{kind} has no value: write {rule.form}")
        value = rule.value(word, written[2])
    if value is None:
        raise _bad(word, f"{kind} needs a value: write {rule.form}")
    options = _options(word, written[3], rule)
    lanes = _lanes(word, options.pop("on")) if "on" in options else rule.lanes
    if kind is FaultKind.LIMIT:
        return _limit(word, options, lanes)
    return Fault(
        kind,
        *value,
        lanes,
        status=int(_one_of(word, options, "status", ("500", "502", "503", "504"))) if "status" in options else None,
        charged=_one_of(word, options, "when", ("before", "after")) == "after",
        names=_one_of(word, options, "names", NAMES),
        odd=_one_of(word, options, "kind", ODD_VALUES) if "kind" in options else None,
    )


def _options(word: str, text: str | None, rule: FaultSyntax) -> dict[str, str]:
    options: dict[str, str] = {}
    for pair in text.split(",") if text is not None else ():
        name, equals, value = pair.partition("=")
        if not equals or name not in rule.options or name in options:
            allowed = ", ".join(sorted(rule.options)) or "none"
            raise _bad(word, f"{pair!r} is no option of it, or is there twice; options: {allowed}")
        options[name] = value
    return options


def _one_of(word: str, options: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """What an option says; the first of what is allowed if it is not there."""
    chosen = options.get(name, allowed[0])
    if chosen not in allowed:
        raise _bad(word, f"{name} must be one of {', '.join(allowed)}")
    return chosen


def _lanes(word: str, text: str) -> frozenset[Lane]:
    if text == "all":
        return frozenset(Lane)
    names = text.split("+")
    if not set(names) <= set(Lane):
        raise _bad(word, f"on must be all, or some of {'+'.join(Lane)}")
    return frozenset(map(Lane, names))


def _limit(word: str, options: Mapping[str, str], lanes: frozenset[Lane]) -> RateLimitFault:
    shapes = [shape for shape in LimitAlgorithm if shape in options]
    if len(shapes) != 1:
        raise _bad(word, f"it needs one of {', '.join(LimitAlgorithm)}: write {FAULT_SYNTAX[FaultKind.LIMIT].form}")
    (shape,) = shapes
    most, _, seconds = options[shape].partition("/")
    if (shape is LimitAlgorithm.WINDOW) != bool(seconds):
        raise _bad(word, "a window is written REQUESTS/SECONDS, and nothing else is")
    if "burst" in options and shape is not LimitAlgorithm.BUCKET:
        raise _bad(word, "only a bucket has a burst")
    retry_after = options.get("retry-after", "no")
    if retry_after not in {"no", "yes", "date"}:
        _within(word, "retry-after", retry_after, 0, MAX_SECONDS)
    return RateLimitFault(
        shape,
        _within(word, shape, most, 0.001 if shape is LimitAlgorithm.BUCKET else 1, MAX_RATE_PER_S),
        lanes,
        window_s=_within(word, "a window's seconds", seconds, 0.001, MAX_SECONDS) if seconds else 0.0,
        burst=_within(word, "burst", options.get("burst", "1"), 1, MAX_RATE_PER_S),
        retry_after=retry_after,
        status=int(_one_of(word, options, "status", ("429", "503"))),
    )
