"""Loads the back ends of a service: creates them, loads their models, and records why some cannot be used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from lightmeter.errors import LightmeterError, SettingsError
from lightmeter.service.backends.base import Backend, ComposingBackend
from lightmeter.service.backends.catalog import AnyBackend, BackendCatalog
from lightmeter.service.backends.providers.provider import ProviderMetrics

log = logging.getLogger("lightmeter.service")


@dataclass(slots=True)
class LoadedBackends:
    """Back ends whose models are loaded.

    Attributes:
        catalog: All known back ends; those that could not be loaded are marked as unavailable.
        offered: Name → back end that requests can name.
        bases: Name → further back end, which an offered one builds on.
    """

    catalog: BackendCatalog
    offered: dict[str, AnyBackend] = field(default_factory=dict)
    bases: dict[str, AnyBackend] = field(default_factory=dict)


async def load_backends(
    catalog: BackendCatalog, names: Iterable[str], metrics: ProviderMetrics, *, skip_unavailable: bool
) -> LoadedBackends:
    """Load back ends and those that they build on.

    A back end that builds on others works with those of them that can be loaded, and is unavailable if none can.

    Args:
        catalog: Known back ends.
        names: Back ends that requests can name. An alias stands for its target.
        metrics: Back ends that call a provider count the calls here.
        skip_unavailable: Whether a back end that cannot be loaded is marked as unavailable in the returned catalog.
            Otherwise it is an error.

    Raises:
        SettingsError: a back end cannot be loaded and must not be skipped, or there are names and none can be loaded.
    """
    selected = tuple(dict.fromkeys(catalog.aliases.get(name, name) for name in names))
    if not skip_unavailable:
        for name in selected:
            catalog.require(name)
    found, reasons = await _load_all(catalog, selected, metrics)
    composing = [backend for backend in found.values() if isinstance(backend, ComposingBackend)]
    bases = dict.fromkeys(base for backend in composing for base in backend.builds_on if base not in selected)
    found_bases, base_reasons = await _load_all(catalog, bases, metrics)
    for backend in composing:
        if not any(base in found or base in found_bases for base in backend.builds_on):
            del found[backend.name]
            reasons[backend.name] = (
                f"None of the back ends that it builds on is available: {', '.join(backend.builds_on)}."
            )
    for name, reason in {**base_reasons, **reasons}.items():
        if name in reasons and not skip_unavailable:
            raise SettingsError(f"Back end {name!r} is not available: {reason}")
        log.warning("back end %s is not available: %s", name, reason)
        catalog = catalog.without(name, reason)
    if reasons and not found:
        details = " ".join(f"{name}: {reason}" for name, reason in reasons.items())
        raise SettingsError("No back end is available.", hint=details)
    return LoadedBackends(catalog, found, found_bases)


async def _load_all(
    catalog: BackendCatalog, names: Iterable[str], metrics: ProviderMetrics
) -> tuple[dict[str, AnyBackend], dict[str, str]]:
    """Return (name → loaded back end, name → sentence that says why this back end cannot be loaded).

    Back ends that the catalog marks as unavailable are in neither.
    """
    usable = [name for name in names if catalog.entries[name].reason is None]
    results = await asyncio.gather(*(asyncio.to_thread(_load, catalog, name, metrics) for name in usable))
    loaded, reasons = {}, {}
    for name, result in zip(usable, results, strict=True):
        if isinstance(result, str):
            reasons[name] = result
        else:
            loaded[name] = result
    return loaded, reasons


def _load(catalog: BackendCatalog, name: str, metrics: ProviderMetrics) -> AnyBackend | str:
    """Return the back end `name` with its models loaded, or a sentence that says why it cannot be loaded."""
    try:
        backend = catalog.create_backend(name, metrics)
        if isinstance(backend, Backend):
            backend.warm()
    except LightmeterError as error:
        return " ".join(filter(None, (str(error), error.hint)))
    except Exception as error:  # a broken package may raise anything
        log.debug("back end %s cannot be loaded", name, exc_info=True)
        return f"It cannot be loaded: {type(error).__name__}: {str(error).rstrip('.')}."
    return backend
