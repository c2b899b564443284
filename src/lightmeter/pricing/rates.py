"""Prices as data: what each back end takes for each feature, and what a request comes to.

Money is never a float here. Prices are millicredits (1000 are one credit, one credit is one cent); what is
charged, held and budgeted is whole credits. The table shipped beside this module is dated, because prices
age; another one can be given. How a charge is rounded up is not documented by the hosted service, so both
ways are here as hypotheses.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from lightmeter.errors import SettingsError
from lightmeter.models.vocabulary import FEATURES

__all__ = [
    "MILLICREDITS",
    "PROMPT_BLOCK_CHARS",
    "RateTable",
    "Rounding",
    "default_rates",
    "load_rates",
    "pairs",
    "parse_rates",
    "per_image",
    "request_price",
    "whole_credits",
]

MILLICREDITS: Final = 1000
"""Millicredits in one credit."""

PROMPT_BLOCK_CHARS: Final = 2500
"""Characters of a custom prompt that one description price covers; each further block costs it again."""


class Rounding(StrEnum):
    """Where a charge is rounded up to whole credits; the hosted service does not say, charges tell."""

    IMAGE = "image"
    """For each image or video frame."""
    REQUEST = "request"
    """Once for the whole request."""


@dataclass(frozen=True, slots=True)
class RateTable:
    """A dated price table.

    Attributes:
        as_of: The day these prices were seen.
        rates: Back end → feature → millicredits for each image or video frame, 0 or more.
        defaults: Back ends a request without `backend` uses (an account can change its own).
        local: Back ends that run on the service's own machine, with no provider behind them.
        prompt_block_chars: Characters of a custom prompt that one description price covers.
    """

    as_of: date
    rates: Mapping[str, Mapping[str, int]]
    defaults: tuple[str, ...]
    local: tuple[str, ...] = ()
    prompt_block_chars: int = PROMPT_BLOCK_CHARS

    def __post_init__(self) -> None:
        for backend, prices in self.rates.items():
            for feature, price in prices.items():
                if not _is_count(price):
                    raise SettingsError(
                        f"Price of {backend} {feature}: {price!r} is not a whole number of millicredits."
                    )
        for backend in (*self.defaults, *self.local):
            if backend not in self.rates:
                raise SettingsError(f"Back end {backend!r} is named in the price table and has no prices in it.")
        if not _is_count(self.prompt_block_chars) or self.prompt_block_chars == 0:
            raise SettingsError(f"prompt_block_chars: {self.prompt_block_chars!r} is not a whole number above 0.")
        frozen = {backend: MappingProxyType(dict(prices)) for backend, prices in self.rates.items()}
        object.__setattr__(self, "rates", MappingProxyType(frozen))

    def with_defaults(self, backends: Sequence[str]) -> RateTable:
        """The same prices for an account, or a service, with other default back ends.

        Raises:
            SettingsError: one of them has no price here.
        """
        return replace(self, defaults=tuple(backends))

    def with_rates(self, more: Mapping[str, Mapping[str, int]]) -> RateTable:
        """The same table with back ends added or priced anew: back end → feature → millicredits.

        Raises:
            SettingsError: a price is not a whole number of millicredits, 0 or more.
        """
        return replace(self, rates={**self.rates, **more})


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@cache
def default_rates() -> RateTable:
    """The table shipped with this package: the hosted service's prices, and those of the local back ends."""
    resource = files("lightmeter.pricing") / "rates.json"
    return parse_rates(resource.read_bytes(), name="rates.json")


def load_rates(path: Path) -> RateTable:
    """Read a price table of your own, written like the shipped `rates.json`.

    Raises:
        SettingsError: the file cannot be read, or is no price table.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}.") from error
    return parse_rates(content, name=str(path))


def parse_rates(content: bytes, *, name: str) -> RateTable:
    """Make a table of the bytes of a `rates.json`; `name` is what messages call it.

    Raises:
        SettingsError: the bytes are no price table.
    """
    try:
        data: Any = json.loads(content)
        backends = data["backends"]
        return RateTable(
            as_of=date.fromisoformat(data["as_of"]),
            rates={backend: entry["prices"] for backend, entry in backends.items()},
            defaults=tuple(backend for backend, entry in backends.items() if entry.get("default", False)),
            local=tuple(backend for backend, entry in backends.items() if entry.get("local", False)),
            prompt_block_chars=data.get("prompt_block_chars", PROMPT_BLOCK_CHARS),
        )
    except KeyError as error:
        raise SettingsError(f"{name}: {error} is missing.") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise SettingsError(f"{name} is no price table: {error}.") from error


def pairs(rates: RateTable, backends: Iterable[str], features: Iterable[str]) -> list[tuple[str, str]]:
    """The (back end, feature) pairs that are active, and charged: each once, in the order asked.

    No back ends means the table's defaults, no features means all of them. A feature that a back end does not
    offer makes no pair.

    Raises:
        SettingsError: a back end has no prices here, or a feature is none of the contract or of the table.
    """
    chosen = tuple(dict.fromkeys(backends)) or rates.defaults
    wanted = tuple(dict.fromkeys(features))
    for backend in chosen:
        if backend not in rates.rates:
            known = ", ".join(sorted(rates.rates))
            raise SettingsError(f"No price is known for back end {backend!r}.", hint=f"Known back ends: {known}.")
    offered = {feature for prices in rates.rates.values() for feature in prices}
    for feature in wanted:
        if feature not in FEATURES and feature not in offered:
            raise SettingsError(f"There is no feature {feature!r}.", hint=f"Features: {', '.join(FEATURES)}.")
    return [
        (backend, feature)
        for backend in chosen
        for feature in (wanted or tuple(rates.rates[backend]))
        if feature in rates.rates[backend]
    ]


def per_image(rates: RateTable, backends: Iterable[str], features: Iterable[str], prompt_chars: int = 0) -> int:
    """Millicredits for one image or one video frame, before any rounding.

    The sum over the active pairs; a custom prompt of `prompt_chars` characters adds the description price
    once for each block after the first, for each back end that describes.

    Raises:
        SettingsError: as `pairs`.
    """
    further_blocks = max(0, (prompt_chars - 1) // rates.prompt_block_chars)
    return sum(
        rates.rates[backend][feature] * (1 + further_blocks if feature == "descriptions" else 1)
        for backend, feature in pairs(rates, backends, features)
    )


def whole_credits(millicredits: int) -> int:
    """Millicredits rounded up to whole credits."""
    return -(-millicredits // MILLICREDITS)


def request_price(per_image_milli: int, frames: Sequence[int], rounding: Rounding) -> int:
    """Credits a request comes to.

    Args:
        per_image_milli: Millicredits for one image or frame, as `per_image` gives them.
        frames: Pictures of each asset: 1 for an image, the captured frames of a video.
        rounding: Where the charge is rounded up.

    Returns:
        Whole credits. Rounding the request never comes to more than rounding each image.
    """
    pictures = sum(frames)
    if rounding is Rounding.IMAGE:
        return pictures * whole_credits(per_image_milli)
    return whole_credits(pictures * per_image_milli)
