"""Validation of the tables `[backends.NAME]` of the settings file, which describe back ends."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Final, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from lightmeter.errors import SettingsError
from lightmeter.pricing.rates import MILLICREDITS
from lightmeter.service.backends.onnx_models.settings import Credits, OnnxModelKind, OnnxModelSettings
from lightmeter.service.backends.providers.provider import DEFAULT_ATTEMPTS, DEFAULT_CONCURRENCY, DEFAULT_TIMEOUT_S
from lightmeter.suggestions import did_you_mean
from lightmeter.wire.constants import EXTRA_FEATURES, FEATURES

ONNX_KINDS: Final = get_args(OnnxModelKind)

_Table = TypeVar("_Table", bound=BaseModel)


def _check_features(prices: dict[str, Decimal]) -> dict[str, Decimal]:
    features = (*FEATURES, *EXTRA_FEATURES)
    for name in prices:
        if name not in features:
            raise ValueError(f"there is no feature {name!r}; features: {', '.join(features)}")
    return prices


class ProviderTable(BaseModel):
    """Table `[backends.NAME]` of the settings file, for a back end that calls a provider or that is local.

    With `base_url`, the back end calls another server that has the same API as the provider. For a local back end, only
    `prices` and `default` have an effect.

    Attributes:
        kind: Provider whose API is called. None means the provider or local back end that has the name of the table.
        base_url: Base URL of the API; None means the provider's default.
        model: Model to call; None means the provider's default.
        key_variable: Environment variable that holds the key; None means the provider's default.
        secret_variable: Environment variable that holds the second part of the key; None means the provider's default.
        features: Features to offer; empty means all that the adapter supports.
        concurrency: Maximum number of simultaneous calls.
        timeout_s: Time limit of one call, in seconds.
        max_attempts: Maximum number of calls for one picture, with retries.
        default: Whether requests that name no back end use this one. None means no for a provider; a local back end
            keeps its own default.
        prices: Credits for each image or video frame, by feature. A feature that is not listed keeps its default price.
        options: Settings that only the provider's adapter (the class that calls its API) has, such as a region.
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
    prices: Annotated[dict[str, Credits], AfterValidator(_check_features)] = Field(default_factory=dict)
    options: dict[str, str] = Field(default_factory=dict)


def millicredits(prices: Mapping[str, Decimal]) -> dict[str, int]:
    """Convert prices, by feature, from credits to millicredits: 0.15 becomes 150. The prices must be valid."""
    return {feature: int(price * MILLICREDITS) for feature, price in prices.items()}


def read_tables(tables: Mapping[str, Any]) -> dict[str, ProviderTable | OnnxModelSettings | str]:
    """Validate the tables `[backends.NAME]` of the settings file; return lowercase name of the back end → its table.

    A line `NAME = "OTHER"` in `[backends]` defines NAME as an alias of the back end OTHER. The value of an alias in the
    result is the lowercase name of the other back end.

    Raises:
        SettingsError: a table is invalid; the message names the table and the invalid key.
    """
    read = {name.strip().lower(): _read_table(name, value) for name, value in tables.items()}
    if len(read) < len(tables):
        raise SettingsError("[backends]: two names differ only by upper and lower case or white space.")
    return read


def _read_table(name: str, value: Any) -> ProviderTable | OnnxModelSettings | str:
    if isinstance(value, str):
        return value.strip().lower()
    if not isinstance(value, Mapping):
        raise SettingsError(f"[backends] {name}: {value!r} is neither a table nor the name of a back end.")
    if value.get("kind") in ONNX_KINDS:
        return validate_table(OnnxModelSettings, name, value)
    return validate_table(ProviderTable, name, value)


def validate_table(model: type[_Table], name: str, table: Mapping[str, Any]) -> _Table:
    """Validate one table of the settings file; return it as an instance of `model`.

    Args:
        model: Pydantic class that the table must fit.
        name: Name of the back end, for messages.
        table: Content of `[backends.NAME]`.

    Raises:
        SettingsError: the table has an unknown key or an invalid value; the message names the first wrong key.
    """
    try:
        return model.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(["backends", name, *map(str, first["loc"])])
        near = did_you_mean(str(first["loc"][-1]), model.model_fields) if first["type"] == "extra_forbidden" else ""
        raise SettingsError(f"{location}: {first['msg'].removeprefix('Value error, ')}.", hint=near) from error
