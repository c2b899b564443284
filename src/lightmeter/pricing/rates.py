"""Reads price tables (what each back end charges for each feature), and computes the price of a request.

Money is never a float. Prices are whole millicredits: 1000 millicredits are one credit, and one credit is one cent.
Charges, reserved credits and budgets are whole credits. The price table beside this module has a date, because prices
change. Users can override it with their own prices.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from enum import StrEnum
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from lightmeter.errors import SettingsError
from lightmeter.paths import local_path
from lightmeter.settings import refuse_duplicates
from lightmeter.suggestions import did_you_mean
from lightmeter.wire.constants import EXTRA_FEATURES, FEATURES

MILLICREDITS: Final = 1000
"""Millicredits in one credit."""

_FILE_KEYS: Final = ("as_of", "unit", "source", "prompt_block_chars", "backends")
_BACKEND_KEYS: Final = ("default", "local", "prices")

PROMPT_BLOCK_CHARS: Final = 2500
"""Number of characters of a custom prompt that the price of a description includes.

Each further block of this length, even if incomplete, costs the price again.
"""

DEMO: Final = "demo"
"""Value of the option `prices` with which the embedded service charges its own price table, from a play account."""

_MAX_MILLICREDITS: Final = 10**12
"""Highest price in millicredits accepted for a picture; a higher one (over a billion credits) is a mistake."""


class Rounding(StrEnum):
    """What the service rounds up to whole credits: each picture (image or video frame) or each request."""

    IMAGE = "image"
    """Each image or video frame is rounded up."""
    REQUEST = "request"
    """Each request is rounded up as a whole."""


def parse_rounding(value: str | None) -> Rounding | None:
    """Return the rounding with this stored value; None if the value is None, empty or unknown."""
    return Rounding(value) if value in tuple(Rounding) else None


@dataclass(frozen=True, slots=True)
class RateTable:
    """Price table of a service, as it was on the day `as_of`.

    Attributes:
        as_of: The day on which these prices were valid.
        rates: Back end → feature → millicredits for each image or video frame, 0 or more.
        defaults: Back ends that a request uses if it names none. An account can have its own defaults.
        local: Back ends that run on the machine of the service and call no provider.
        prompt_block_chars: Characters of a custom prompt that the price of the feature `descriptions` includes; each
            further block of that length, even if incomplete, costs this price again.
        rounding: What the service says that it rounds up; None if it says nothing about this.
    """

    as_of: date
    rates: Mapping[str, Mapping[str, int]]
    defaults: tuple[str, ...]
    local: tuple[str, ...] = ()
    prompt_block_chars: int = PROMPT_BLOCK_CHARS
    rounding: Rounding | None = None

    def __post_init__(self) -> None:
        for backend, prices in self.rates.items():
            for feature, price in prices.items():
                if not _is_count(price):
                    raise SettingsError(
                        f"Price of {backend} {feature}: {price!r} is not a whole number of millicredits."
                    )
        for backend in (*self.defaults, *self.local):
            if backend not in self.rates:
                raise SettingsError(f"Back end {backend!r} is marked default or local, but has no prices.")
        if not _is_count(self.prompt_block_chars) or self.prompt_block_chars == 0:
            raise SettingsError(f"prompt_block_chars: {self.prompt_block_chars!r} is not a whole number above 0.")
        frozen = {backend: MappingProxyType(dict(prices)) for backend, prices in self.rates.items()}
        object.__setattr__(self, "rates", MappingProxyType(frozen))

    def with_defaults(self, backends: Sequence[str]) -> RateTable:
        """Return this price table with `backends` as the back ends that a request uses if it names none.

        Raises:
            SettingsError: one of these back ends has no price in the table.
        """
        return replace(self, defaults=tuple(backends))

    def with_own_prices(self, own: OwnPrices) -> RateTable:
        """Return this price table with the user's prices. A back end in `own` loses all its prices in the table."""
        return replace(
            self,
            rates={**self.rates, **own.rates},
            defaults=own.defaults or self.defaults,
            prompt_block_chars=own.prompt_block_chars or self.prompt_block_chars,
        )

    def with_rates(self, more: Mapping[str, Mapping[str, int]]) -> RateTable:
        """Return this price table with the prices `more`: back end → feature → millicredits for each picture.

        A back end in `more` loses all its prices in the table.

        Raises:
            SettingsError: a price is not a whole number of millicredits, 0 or more.
        """
        return replace(self, rates={**self.rates, **more})


@dataclass(frozen=True, slots=True)
class OwnPrices:
    """The user's own prices, which override a price table.

    Attributes:
        rates: Back end → feature → millicredits for each image or video frame, 0 or more.
        defaults: Back ends that a request uses if it names none; empty means the defaults of the table.
        prompt_block_chars: Characters of a custom prompt that the price of the feature `descriptions` includes; None
            means the number in the table.
        path: The file that holds these prices, or None. Not compared by `==`.
        demo: Whether the embedded service charges what its own price table says, where `rates` says nothing else.
            Without it, local back ends are free there.
    """

    rates: Mapping[str, Mapping[str, int]]
    defaults: tuple[str, ...] = ()
    prompt_block_chars: int | None = None
    path: str | None = field(default=None, compare=False)
    demo: bool = False


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@cache
def default_rates() -> RateTable:
    """Return the table shipped with this package: prices of the hosted service and of the local back ends."""
    resource = files("lightmeter.pricing") / "rates.json"
    return parse_rates(resource.read_bytes(), name="rates.json")


def parse_rates(content: bytes, *, name: str) -> RateTable:
    """Parse the bytes of a whole price table, written like the shipped `rates.json`; `name` is its file name.

    Raises:
        SettingsError: the bytes are not a price table; the message names the place in them.
    """
    data = _parsed(content, name)
    own = _prices_in(data, name)
    if "as_of" not in data:
        raise SettingsError(f"{name}: 'as_of' is missing.")
    local = tuple(backend.strip().lower() for backend, entry in data["backends"].items() if entry.get("local", False))
    try:
        as_of = date.fromisoformat(str(data["as_of"]))
    except ValueError as error:
        raise SettingsError(f"{name} is not a price table: as_of: {error}.") from error
    return RateTable(as_of, own.rates, own.defaults, local, own.prompt_block_chars or PROMPT_BLOCK_CHARS)


def read_own_prices(given: object) -> OwnPrices | None:
    """Return the user's own prices; None if `given` is None.

    Args:
        given: The path of a price file, its content as a mapping, the attributes of `OwnPrices` as a mapping; or
            `demo` for the prices of the embedded service's own table.

    Raises:
        SettingsError: the prices cannot be read or are wrong; the message names the file and the place in it.
    """
    if given is None or isinstance(given, OwnPrices):
        return given
    if isinstance(given, str | PathLike):
        return OwnPrices({}, path=DEMO, demo=True) if str(given) == DEMO else load_prices(local_path(given))
    if isinstance(given, Mapping) and "rates" in given:  # as a plan stores them
        return OwnPrices(**{**given, "defaults": tuple(given.get("defaults", ()))})
    return _prices_in(given, "prices")


def load_prices(path: Path) -> OwnPrices:
    """Read the user's price file, TOML if it ends in `.toml`, else JSON; `parse_prices` describes its fields.

    Raises:
        SettingsError: the file cannot be read or holds no prices; the message names it and the place in it.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"The price file {path} cannot be read: {error.strerror or error}.") from error
    return replace(parse_prices(content, name=str(path)), path=str(path))


def parse_prices(content: bytes, *, name: str) -> OwnPrices:
    """Parse the bytes of a price file, written like the shipped `rates.json`.

    Only `backends.NAME.prices` is required. Prices are whole millicredits, or, with `unit = "credits"`, credits with at
    most three decimals. `as_of` and unknown fields are ignored. `name` is the file name for messages; the content is
    TOML if `name` ends in `.toml`, else JSON.

    Raises:
        SettingsError: the bytes hold no prices; the message names the place in them.
    """
    return _prices_in(_parsed(content, name), name)


def _parsed(content: bytes, name: str) -> Any:
    """Parse TOML if the file name `name` ends in `.toml`, else JSON. Numbers with decimals become exact `Decimal`s.

    Raises:
        SettingsError: the content cannot be parsed.
    """
    try:
        if name.lower().endswith(".toml"):
            return tomllib.loads(content.decode(), parse_float=Decimal)
        return json.loads(content, parse_float=Decimal, object_pairs_hook=refuse_duplicates)
    except ValueError as error:
        raise SettingsError(f"{name} is not a price table: {error}.") from error


def _prices_in(data: object, name: str) -> OwnPrices:
    _refuse_typing_errors(_mapping_at({"": data}, "", name), _FILE_KEYS, name)
    backends = _mapping_at(_mapping_at({"": data}, "", name), "backends", name)
    to_milli = _unit(data, name)
    rates: dict[str, dict[str, int]] = {}
    defaults = []
    for backend in backends:
        entry = _mapping_at(backends, backend, name, "backends")
        _refuse_typing_errors(entry, _BACKEND_KEYS, f"{name}: backends.{backend}")
        prices = _mapping_at(entry, "prices", name, f"backends.{backend}")
        for feature in prices:
            if feature not in (*FEATURES, *EXTRA_FEATURES):
                raise SettingsError(
                    f"{name}: backends.{backend}.prices: there is no feature {feature!r}.",
                    hint=f"Features: {', '.join((*FEATURES, *EXTRA_FEATURES))}.",
                )
        key = backend.strip().lower()  # the form that requests use
        if key in rates:
            raise SettingsError(f"{name}: backends.{backend}: this back end is given twice.")
        rates[key] = {
            feature: _millicredits(price, to_milli, f"{name}: price of {backend} {feature}")
            for feature, price in prices.items()
        }
        if entry.get("default", False):
            defaults.append(key)
    block = data.get("prompt_block_chars") if isinstance(data, Mapping) else None
    if block is not None and not (_is_count(block) and block):
        raise SettingsError(f"{name}: prompt_block_chars: {block} is not a whole number above 0.")
    return OwnPrices(rates, tuple(defaults), block)


def _refuse_typing_errors(table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    """Raise SettingsError if an unknown key of a price file is so like a known one that the user must have meant it."""
    for key in table:
        if key not in known and (near := did_you_mean(str(key), known)):
            raise SettingsError(f"{where}: {key!r} is none of its keys.", hint=near)


def _mapping_at(table: object, key: str, name: str, place: str = "") -> Mapping[str, Any]:
    """Return the mapping `table[key]` of a parsed price file; raise SettingsError if there is none.

    For the message, `name` is the file's name, and `place` is where `table` is in the file (`backends.openai`).
    """
    where = f"{place}.{key}".strip(".")
    if not isinstance(table, Mapping):
        raise SettingsError(f"{name} is not a price table: {place or 'the file'} is not a mapping of names.")
    if key not in table:
        raise SettingsError(f"{name}: {where!r} is missing.")
    if not isinstance(table[key], Mapping):
        raise SettingsError(f"{name} is not a price table: {where or 'the file'} is not a mapping of names.")
    mapping: Mapping[str, Any] = table[key]
    return mapping


def _unit(data: Any, name: str) -> int:
    """Return how many millicredits one unit of a price file is: 1000 if its field `unit` is `credits`, else 1.

    `data` is the parsed content of the file; without the field, the unit is a millicredit.

    Raises:
        SettingsError: the unit is neither credits nor millicredits; the message contains the file's name, `name`.
    """
    unit = str(data.get("unit", "millicredits")).strip().lower()
    if unit.startswith("millicredits"):
        return 1
    if unit.startswith("credits"):
        return MILLICREDITS
    raise SettingsError(f"{name}: unit: {unit!r} is neither 'credits' nor 'millicredits'.")


def _millicredits(price: object, to_milli: int, what: str) -> int:
    if isinstance(price, float):  # in Python; files give Decimal
        price = Decimal(repr(price))
    if isinstance(price, int | Decimal) and not isinstance(price, bool):
        exact = Decimal(price) * to_milli
        if exact.is_finite() and 0 <= exact <= _MAX_MILLICREDITS and exact == exact.to_integral_value():
            return int(exact)
    raise SettingsError(
        f"{what}: {price} is not a whole number of millicredits, 0 or more.",
        hint='Prices in credits, such as 0.15, need unit = "credits".',
    )


def active_pairs(rates: RateTable, backends: Iterable[str], features: Iterable[str]) -> list[tuple[str, str]]:
    """Return the (back end, feature) pairs that a request is charged for, each once, in the order of the arguments.

    A feature that a back end does not offer makes no pair.

    Args:
        rates: The price table.
        backends: Names of back ends; if empty, the default back ends of the table.
        features: Names of features; if empty, all features except `embeddings`.

    Raises:
        SettingsError: a back end has no prices in the table, or a feature does not exist.
    """
    chosen = tuple(dict.fromkeys(backends)) or rates.defaults
    wanted = tuple(dict.fromkeys(features))
    for backend in chosen:
        if backend not in rates.rates:
            known = ", ".join(sorted(rates.rates))
            raise SettingsError(
                f"No price is known for back end {backend!r}.",
                hint=f"Known back ends: {known}. Give its prices in a file: --prices FILE",
            )
    offered = {feature for prices in rates.rates.values() for feature in prices}
    for feature in wanted:
        if feature not in (*FEATURES, *EXTRA_FEATURES) and feature not in offered:
            known = ", ".join((*FEATURES, *EXTRA_FEATURES))
            raise SettingsError(f"There is no feature {feature!r}.", hint=f"Features: {known}.")
    return [
        (backend, feature)
        for backend in chosen
        for feature in (wanted or tuple(rates.rates[backend]))
        if feature in rates.rates[backend] and (wanted or feature not in EXTRA_FEATURES)
    ]


def millicredits_per_image(
    rates: RateTable, backends: Iterable[str], features: Iterable[str], prompt_chars: int = 0
) -> int:
    """Return the millicredits for one image or video frame before rounding: the sum over back ends and features.

    A feature that a back end does not offer costs nothing.

    Args:
        rates: The price table.
        backends: Names of back ends; if empty, the default back ends of the table.
        features: Names of features; if empty, all features except `embeddings`.
        prompt_chars: Length of a custom prompt; 0 without one. The price of `descriptions` is charged once, and once
            more for each further started block of `rates.prompt_block_chars` characters.

    Raises:
        SettingsError: a back end has no prices in the table, or a feature does not exist.
    """
    further_blocks = max(0, (prompt_chars - 1) // rates.prompt_block_chars)
    return sum(
        rates.rates[backend][feature] * (1 + further_blocks if feature == "descriptions" else 1)
        for backend, feature in active_pairs(rates, backends, features)
    )


def whole_credits(millicredits: int) -> int:
    """Round millicredits up to whole credits."""
    return -(-millicredits // MILLICREDITS)


def least_charged_milli(per_image_milli: int, rounding: Rounding | None) -> int:
    """Return the minimum millicredits that an image or frame adds to a charge.

    If the service rounds up each picture, the result is `per_image_milli`, the price before rounding, rounded up to a
    multiple of 1000; each picture costs exactly this. Otherwise, a large request may cost as little as
    `per_image_milli` for each picture.
    """
    return whole_credits(per_image_milli) * MILLICREDITS if rounding is Rounding.IMAGE else per_image_milli


def request_price(per_image_milli: int, frames: Sequence[int], rounding: Rounding) -> int:
    """Return the price of a request in whole credits.

    Args:
        per_image_milli: Millicredits for one image or video frame.
        frames: Number of pictures of each asset: 1 for an image, the number of captured frames for a video.
        rounding: Whether the service rounds up each picture or each request.
    """
    pictures = sum(frames)
    if rounding is Rounding.IMAGE:
        return pictures * whole_credits(per_image_milli)
    return whole_credits(pictures * per_image_milli)
