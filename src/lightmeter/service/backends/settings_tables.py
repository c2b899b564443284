"""Validation of the tables `[backends.NAME]` of the settings file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lightmeter.errors import SettingsError
from lightmeter.pricing.rates import MILLICREDITS
from lightmeter.service.backends.onnx_models.settings import OnnxModelKind, OnnxModelSettings, read_onnx_settings
from lightmeter.service.backends.providers.provider import DEFAULT_ATTEMPTS, DEFAULT_CONCURRENCY, DEFAULT_TIMEOUT_S
from lightmeter.wire.constants import EXTRA_FEATURES, FEATURES

ONNX_KINDS: Final = get_args(OnnxModelKind)

_MAX_CREDITS: Final = Decimal(10**9)


@dataclass(frozen=True, slots=True)
class BackendAlias:
    """Settings entry `NAME = "OTHER"`: the back end `OTHER` (`target`) answers requests for `NAME`."""

    target: str


class ProviderTable(BaseModel):
    """Settings table of a provider, or of another endpoint that has a provider's protocol.

    Attributes:
        kind: Provider whose protocol is used; None: the provider of this name.
        base_url: Base URL of its API; None: the provider's default.
        model: Model to call; None: the default model.
        key_variable: Environment variable that holds the key; None: the provider's default.
        secret_variable: Environment variable that holds the second half of the key; None: the provider's default.
        features: Features to offer; empty: all that the adapter supports.
        concurrency: Maximum number of simultaneous calls.
        timeout_s: Longest wait for one answer, in seconds.
        max_attempts: Maximum number of calls for one picture, with retries.
        default: Whether requests that name no back end use it; None means no.
        prices: Credits for each image or frame, by feature; empty: those of the price table, or none.
        options: Settings that only this adapter has, such as a region.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str | None = None
    base_url: str | None = Field(default=None, pattern=r"^https?://")
    model: str | None = Field(default=None, min_length=1)
    key_variable: str | None = None
    secret_variable: str | None = None
    features: tuple[str, ...] = ()
    concurrency: int = Field(default=DEFAULT_CONCURRENCY, ge=1, le=256)
    timeout_s: float = Field(default=DEFAULT_TIMEOUT_S, gt=0, le=3600)
    max_attempts: int = Field(default=DEFAULT_ATTEMPTS, ge=1, le=20)
    default: bool | None = None
    prices: dict[str, Any] = Field(default_factory=dict)
    options: dict[str, str] = Field(default_factory=dict)

    @property
    def millicredits(self) -> dict[str, int]:
        """Prices in millicredits, by feature.

        Raises:
            SettingsError: a price is not a whole number of millicredits, 0 or more.
        """
        return _to_millicredits(self.prices)


def _to_millicredits(prices: Mapping[str, Any]) -> dict[str, int]:
    for feature in prices:
        if feature not in (*FEATURES, *EXTRA_FEATURES):
            raise SettingsError(
                f"prices: there is no feature {feature!r}.",
                hint=f"Features: {', '.join((*FEATURES, *EXTRA_FEATURES))}.",
            )
    return {feature: millicredits(price, f"price of {feature}") for feature, price in prices.items()}


def millicredits(price: Any, label: str) -> int:
    """Convert credits to whole millicredits: 0.15 → 150.

    Args:
        price: Credits, 0 or more, as a number or its text.
        label: Name of the price, for the message.

    Raises:
        SettingsError: the price is not a number, is negative, or is finer than a millicredit.
    """
    try:
        exact = Decimal(str(price)) * MILLICREDITS
    except InvalidOperation:
        exact = Decimal("NaN")
    if isinstance(price, bool) or not exact.is_finite() or not 0 <= exact <= _MAX_CREDITS * MILLICREDITS:
        raise SettingsError(f"{label}: {price!r} is not a number of credits, 0 or more.")
    if exact != exact.to_integral_value():
        raise SettingsError(f"{label}: {price!r} is finer than a thousandth of a credit.")
    return int(exact)


def read_tables(tables: Mapping[str, Any]) -> dict[str, ProviderTable | OnnxModelSettings | BackendAlias]:
    """Validate the tables of the settings; return them by the lowercase name of the back end.

    Raises:
        SettingsError: a table is invalid; the message names it and the entry.
    """
    return {name.strip().lower(): _read_table(name, value) for name, value in tables.items()}


def _read_table(name: str, value: Any) -> ProviderTable | OnnxModelSettings | BackendAlias:
    if isinstance(value, str):
        return BackendAlias(value.strip().lower())
    if not isinstance(value, Mapping):
        raise SettingsError(f"[backends] {name}: {value!r} is neither a table nor the name of a back end.")
    if value.get("kind") in ONNX_KINDS:
        return read_onnx_settings(name, value)
    try:
        table = ProviderTable.model_validate(value)
        _ = table.millicredits
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise SettingsError(f"[backends.{name}] {where}: {first['msg']}.") from error
    except SettingsError as error:
        raise SettingsError(f"[backends.{name}] {error}", hint=error.hint) from error
    return table
