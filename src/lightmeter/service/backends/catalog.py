"""Catalog of all back ends of this installation: features, prices, and reasons why some cannot be used.

Back ends come from four sources: the table of built-in back ends, the tables of providers, the entry points of other
packages, and the operator's settings. Listing them loads no model and calls no provider.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import SecretStr

from lightmeter.errors import LightmeterError, SettingsError
from lightmeter.pricing.rates import RateTable, default_rates, read_own_prices
from lightmeter.service.backends.base import Backend, ComposingBackend
from lightmeter.service.backends.builtin_backends import (
    BUILTIN_BACKENDS,
    ENTRY_POINT_GROUP,
    BuiltinBackend,
    import_error,
    import_target,
)
from lightmeter.service.backends.onnx_models.settings import OnnxModelSettings
from lightmeter.service.backends.providers.description.provider_table import (
    DESCRIPTION_PROVIDERS,
    OPENAI_COMPATIBLE,
)
from lightmeter.service.backends.providers.provider import NO_METRICS, Provider, ProviderMetrics, ProviderSettings
from lightmeter.service.backends.providers.vision.provider_table import VISION_PROVIDERS
from lightmeter.service.backends.settings_tables import (
    ONNX_KINDS,
    ProviderTable,
    millicredits,
    read_tables,
)
from lightmeter.settings import Settings, read_settings, settings_file

AnyBackend: TypeAlias = Backend | ComposingBackend

ALL_PROVIDERS: Final[Mapping[str, Provider]] = {**DESCRIPTION_PROVIDERS, **VISION_PROVIDERS}
"""Every provider that has an adapter, by name."""

PROVIDER_KINDS: Final[Mapping[str, Provider]] = {**ALL_PROVIDERS, OPENAI_COMPATIBLE.name: OPENAI_COMPATIBLE}
"""Value of `kind` in a settings table `[backends.NAME]` → provider that the back end calls. The values are the names
of all providers, and `openai-compatible` for any endpoint with OpenAI's protocol."""

PROVIDER_TERMS: Final = "the provider's terms"
"""Text that the catalog shows as the license of a provider's model."""


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """Catalog entry of a back end: what it offers, what it costs, and how to create it.

    Attributes:
        name: Name of the back end in requests.
        features: Features that the back end offers, such as `tags`.
        prices: Millicredits for each image or video frame, by feature.
        make: Function that creates the back end; it counts calls of a provider in its argument.
        model: Model that the back end uses; empty if it declares none.
        licence: License of the model, or the provider's terms; empty if the back end declares none.
        local: Whether pictures stay on this machine.
        default: Whether a request that names no back end uses this back end.
        reason: Sentence that says why the back end cannot be used; None if it can be used.
        alias_of: Back end for which `name` is an alias; None if `name` is no alias.
        follows_prompt: Whether its descriptions follow the prompt, role and language of a request.
    """

    name: str
    features: frozenset[str]
    prices: Mapping[str, int]
    make: Callable[[ProviderMetrics], AnyBackend]
    model: str = ""
    licence: str = ""
    local: bool = True
    default: bool = True
    reason: str | None = None
    alias_of: str | None = None
    follows_prompt: bool = True


class BackendCatalog:
    """All back ends that this installation knows: `entries` maps each name to its `CatalogEntry`, sorted by name."""

    def __init__(self, entries: Sequence[CatalogEntry]) -> None:
        self.entries: Mapping[str, CatalogEntry] = {
            entry.name: entry for entry in sorted(entries, key=lambda entry: entry.name)
        }

    @property
    def available(self) -> tuple[str, ...]:
        """Names of the back ends that can be used, without aliases."""
        return tuple(name for name, entry in self.entries.items() if entry.reason is None and entry.alias_of is None)

    @property
    def aliases(self) -> Mapping[str, str]:
        """Mapping from each alias, a second name in the settings, to the name of the back end that it stands for."""
        return {name: entry.alias_of for name, entry in self.entries.items() if entry.alias_of}

    @property
    def defaults(self) -> tuple[str, ...]:
        """Names of the available back ends that the service uses for a request without `backend`."""
        return tuple(name for name in self.available if self.entries[name].default)

    def rates(self, table: RateTable | None = None) -> RateTable:
        """Return a copy of a price table with the prices of all back ends in this catalog, and which of them are local.

        If the table already has prices of a back end, those of the catalog replace them.

        Args:
            table: Price table to extend; None means the table that the package `lightmeter` contains.
        """
        table = table or default_rates()
        rates = table.with_rates({name: entry.prices for name, entry in self.entries.items()})
        local = tuple(name for name, entry in self.entries.items() if entry.local)
        return replace(rates, local=local)

    def without(self, name: str, reason: str) -> BackendCatalog:
        """Return a copy of the catalog in which back end `name` and its aliases are unavailable; `reason` says why."""
        entries = {**self.entries, name: replace(self.entries[name], reason=reason)}
        for alias, target in self.aliases.items():
            if target == name:
                entries[alias] = replace(entries[alias], reason=reason)
        return BackendCatalog(list(entries.values()))

    def require(self, name: str) -> CatalogEntry:
        """Return the catalog entry of the back end `name`, which must be usable.

        Raises:
            SettingsError: there is no such back end, or it cannot be used; the message says why.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise SettingsError(f"There is no back end {name!r}.", hint=f"Known back ends: {', '.join(self.entries)}.")
        if entry.reason is not None:
            raise SettingsError(f"Back end {name!r} is not available: {entry.reason}")
        return entry

    def create_backend(self, name: str, metrics: ProviderMetrics = NO_METRICS) -> AnyBackend:
        """Create the back end `name`. If this back end calls a provider, it counts the calls in `metrics`.

        A back end for the operator's own ONNX file loads its model here. All other back ends load theirs in `warm`.

        Raises:
            SettingsError: there is no such back end, it cannot be used, or its import fails.
        """
        return self.require(name).make(metrics)


def read_catalog(settings: Settings | None = None) -> BackendCatalog:
    """Return the catalog of all back ends that this installation knows.

    Args:
        settings: The operator's settings; None means those of the environment and the settings file.

    Raises:
        SettingsError: a table `[backends.NAME]` of the settings file is invalid; the message names the table.
    """
    settings = settings or read_settings()
    tables = read_tables(settings.backends)
    entries: dict[str, CatalogEntry] = {}
    for name, provider in ALL_PROVIDERS.items():
        entries[name] = _provider_entry(name, provider, ProviderTable())
    for name, target in _installed_backends(tuple(map(_modified_at, sys.path))):  # one may replace a provider
        entries[name] = _entry_point_entry(name, target)
    for name, builtin in BUILTIN_BACKENDS.items():
        entries[name] = _builtin_entry(name, builtin, settings)
    for name, table in tables.items():
        if isinstance(table, OnnxModelSettings):
            entries[name] = _onnx_entry(name, table, settings_file().parent)
        elif isinstance(table, ProviderTable):
            entries[name] = _table_entry(name, table, entries.get(name))
    for name, table in tables.items():
        if isinstance(table, str):
            entries[name] = _alias_entry(name, table, entries)
    return BackendCatalog(list(entries.values()))


@lru_cache(maxsize=1)
def _installed_backends(_places: tuple[tuple[str, int], ...]) -> tuple[tuple[str, str], ...]:
    """Return the name and the class (`package.module:Class`) of each back end that another package installs.

    The result is cached, because the search reads the metadata of every installed package. `_places` holds the folders
    of `sys.path` with their modification times. It is used only as the key of the cache: the installation of a package
    changes a modification time, and the search runs again.
    """
    return tuple((point.name.lower(), point.value) for point in entry_points(group=ENTRY_POINT_GROUP))


def _modified_at(place: str) -> tuple[str, int]:
    """Return `place` and the time when this folder last changed.

    The time is in nanoseconds since the epoch; it is 0 if the folder is missing.
    """
    try:
        return place, Path(place).stat().st_mtime_ns
    except OSError:
        return place, 0


def _packaged_prices(name: str, features: frozenset[str]) -> dict[str, int]:
    """Return feature → price in millicredits, from lightmeter's own price table, for the back end `name`.

    A feature that the table lacks costs 0.
    """
    prices = default_rates().rates.get(name, {})
    return {feature: prices.get(feature, 0) for feature in sorted(features)}


def _builtin_entry(name: str, builtin: BuiltinBackend, settings: Settings) -> CatalogEntry:
    if builtin.setting is not None and getattr(settings, builtin.setting) is None:
        reason: str | None = f"LIGHTMETER_{builtin.setting.upper()} is not set."
    else:
        reason = import_error(builtin.target)
    return CatalogEntry(
        name=name,
        features=builtin.features,
        model=builtin.model,
        licence=builtin.licence,
        prices=_packaged_prices(name, builtin.features),
        reason=reason,
        follows_prompt=False,
        make=partial(_create_builtin, name, builtin, settings),
    )


def _create_builtin(name: str, builtin: BuiltinBackend, settings: Settings, _: ProviderMetrics) -> AnyBackend:
    arguments = () if builtin.setting is None else (getattr(settings, builtin.setting),)
    return _check_protocol(name, builtin.target, import_target(builtin.target)(*arguments))


def _entry_point_entry(name: str, target: str) -> CatalogEntry:
    """Return the catalog entry of another package's back end, read from its class `target` (`package.module:Class`).

    `name` is the name of the back end.
    """
    entry = CatalogEntry(name, frozenset(), {}, make=lambda _: _check_protocol(name, target, import_target(target)()))
    try:
        cls = import_target(target)
        features = frozenset(cls.features)
        packaged = _packaged_prices(name, features) if name in default_rates().rates else {}
        prices = declared_prices(cls) or packaged
    except (LightmeterError, AttributeError, TypeError) as error:
        return replace(entry, reason=f"{str(error).rstrip('.')}.")
    return replace(
        entry,
        features=features,
        model=str(getattr(cls, "model", "")),
        licence=str(getattr(cls, "licence", "")),
        local=bool(getattr(cls, "local", True)),
        follows_prompt=bool(getattr(cls, "follows_prompt", True)),
        prices=prices,
        reason=None if prices else 'Its class names no prices, such as prices = {"tags": 0.15}, in credits.',
    )


def declared_prices(backend: Backend) -> Mapping[str, int]:
    """Return feature → price in millicredits, from the attribute `prices` of a back end, which holds credits.

    Only back ends that other packages install have this attribute. For all others, the result is empty.

    Raises:
        SettingsError: a price is invalid, a feature has no price, or a price is for a feature that is not offered.
    """
    declared = getattr(backend, "prices", None)
    if declared is None:
        return {}
    own = read_own_prices({"unit": "credits", "backends": {backend.name: {"prices": declared}}})
    prices = {} if own is None else own.rates[backend.name]
    if set(prices) != backend.features:
        raise SettingsError(
            f"Back end {backend.name!r} offers {', '.join(sorted(backend.features))}, and its prices are for "
            f"{', '.join(sorted(prices)) or 'nothing'}.",
            hint='Give its class one price for each feature, such as prices = {"tags": 0.15}.',
        )
    return prices


def _check_protocol(name: str, target: str, backend: Any) -> AnyBackend:
    if not isinstance(backend, Backend | ComposingBackend):
        raise SettingsError(f"Back end {name!r} ({target}) lacks a part of the Backend protocol.")
    return backend


def _table_entry(name: str, table: ProviderTable, known_entry: CatalogEntry | None) -> CatalogEntry:
    kind = table.kind or name
    provider = PROVIDER_KINDS.get(kind)
    if provider is None:
        if known_entry is not None and table.kind is None:  # a local back end: only prices and default can be set
            default = known_entry.default if table.default is None else table.default
            return replace(known_entry, prices={**known_entry.prices, **millicredits(table.prices)}, default=default)
        raise SettingsError(
            f"[backends.{name}]: there is no kind {kind!r}.",
            hint=f"Kinds: {', '.join((*PROVIDER_KINDS, *ONNX_KINDS))}.",
        )
    return _provider_entry(name, provider, table)


def _provider_entry(name: str, provider: Provider, table: ProviderTable) -> CatalogEntry:
    features = frozenset(table.features or provider.features)
    from_environment = {option: _environment(variable) for option, variable in provider.option_variables.items()}
    set_options = {option: value for option, value in from_environment.items() if value}
    settings = ProviderSettings(
        name=name,
        base_url=(table.base_url or _environment(provider.base_url_variable) or provider.base_url or "").rstrip("/"),
        model=table.model or provider.model or "",
        api_key=_read_secret(table.key_variable or provider.key_variable),
        api_secret=_read_secret(table.secret_variable or provider.secret_variable),
        features=features,
        concurrency=table.concurrency,
        timeout_s=table.timeout_s,
        max_attempts=table.max_attempts,
        options={**provider.options, **set_options, **table.options},
    )
    return CatalogEntry(
        name=name,
        features=features,
        model=settings.model,
        licence=PROVIDER_TERMS,
        local=False,
        default=bool(table.default),
        prices={**_packaged_prices(name, features), **millicredits(table.prices)},
        reason=_missing_reason(name, provider, table, settings),
        make=lambda metrics: _check_protocol(
            name, provider.adapter, import_target(provider.adapter)(replace(settings, metrics=metrics))
        ),
    )


def _environment(variable: str | None) -> str:
    """Return the value of an environment variable without outer white space; empty if it is not set or None."""
    return os.environ.get(variable, "").strip() if variable else ""


def _read_secret(variable: str | None) -> SecretStr | None:
    value = _environment(variable)
    return SecretStr(value) if value else None


def _missing_reason(name: str, provider: Provider, table: ProviderTable, settings: ProviderSettings) -> str | None:
    """Return a sentence that says what the operator must set or install before a provider can be used.

    Return None if nothing is missing.

    Args:
        name: Name of the back end that calls the provider.
        provider: The provider, with its defaults.
        table: The table `[backends.NAME]` of the operator's settings file; empty if there is none.
        settings: Settings of the back end, made from `provider`, `table` and environment variables.
    """
    if provider.extra is not None and not provider.is_installed:
        return f"Its package is missing: pip install 'lightmeter[{provider.extra}]'."
    if not settings.base_url:
        variable = f"{provider.base_url_variable}, or " if provider.base_url_variable else ""
        return f"Its address is not set: set {variable}base_url in [backends.{name}]."
    if not settings.model and provider.model is None:
        return f"Its model is not set: set model in [backends.{name}]."
    key_variable, secret_variable = (
        table.key_variable or provider.key_variable,
        table.secret_variable or provider.secret_variable,
    )
    if key_variable and settings.api_key is None and provider.key_option not in settings.options:
        instead = provider.option_variables.get(provider.key_option or "")
        return f"Its key is not set: set {key_variable}{f' or {instead}' if instead else ''}."
    if secret_variable and settings.api_secret is None:
        return f"Its key is not set: set {secret_variable}."
    return None


def _onnx_entry(name: str, table: OnnxModelSettings, folder: Path) -> CatalogEntry:
    return CatalogEntry(
        name=name,
        features=frozenset({table.offered_feature}),
        model=table.description or table.model.name,
        licence=table.licence,
        prices=millicredits({table.offered_feature: table.price}),
        reason=table.missing_file(folder),
        make=partial(_create_onnx, name, table, folder),
    )


def _create_onnx(name: str, table: OnnxModelSettings, folder: Path, _: ProviderMetrics) -> AnyBackend:
    from lightmeter.service.backends.onnx_models.backends import make_onnx_backend  # noqa: PLC0415 (loads onnxruntime)

    return make_onnx_backend(name, table, folder)


def _alias_entry(name: str, target: str, entries: Mapping[str, CatalogEntry]) -> CatalogEntry:
    if target not in entries or target == name:
        known = ", ".join(sorted(entries))
        raise SettingsError(f"[backends] {name}: there is no back end {target!r}.", hint=f"Known back ends: {known}.")
    return replace(entries[target], name=name, alias_of=target, default=False)
