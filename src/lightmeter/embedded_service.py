"""The one place where the toolkit meets the service: it starts the embedded one for a run.

The service runs in a thread with a loop of its own, on loopback, with its database beside the journal: a request that
was acknowledged before a crash is finished by the next start, and the balance goes on where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from lightmeter.background_loop import BackgroundLoop
from lightmeter.errors import SettingsError
from lightmeter.models.response import BackendOffer
from lightmeter.models.vocabulary import FEATURES
from lightmeter.options import Options
from lightmeter.settings import Settings

__all__ = ["EMBEDDED_CREDITS", "Endpoint", "embedded_backends", "is_embedded", "open_endpoint"]

EMBEDDED_CREDITS: Final = 1_000_000
"""Play money: the embedded service charges like any other, so that budgets can be tried out, but nobody pays."""

ACCOUNT: Final = "embedded"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go.

    Attributes:
        base_url: Address of the service.
        api_key: Its key.
        embedded: Whether we started it ourselves.
    """

    base_url: str
    api_key: SecretStr | None
    embedded: bool


def is_embedded(options: Options, settings: Settings) -> bool:
    """Whether a run with these options uses the embedded service."""
    return (options.base_url or settings.base_url) is None


def embedded_backends(settings: Settings) -> tuple[BackendOffer, ...]:
    """The back ends of the embedded service with their prices, the available ones first; loads no model.

    Raises:
        SettingsError: a back end in the settings is wrong.
    """
    from lightmeter.service.backends.catalog import read_catalog  # noqa: PLC0415 (only when the embedded service is wanted)
    from lightmeter.service.http.backend_list import offers  # noqa: PLC0415 (likewise)

    catalog = read_catalog(settings)
    return tuple(offers(catalog, catalog.rates()).backends)


def needed_backends(options: Options, settings: Settings) -> tuple[str, ...]:
    """The back ends that answer a run with these options: no other model is loaded for it."""
    features = frozenset(options.features or FEATURES)
    able = {offer.name: offer for offer in embedded_backends(settings) if offer.available}
    named = options.backends or tuple(name for name, offer in able.items() if offer.default)
    return tuple(name for name in named if name in able and features.intersection(able[name].features))


@asynccontextmanager
async def open_endpoint(options: Options, settings: Settings, out: Path) -> AsyncIterator[Endpoint]:
    """The service of a run: the one that was named, or the embedded one for as long as the block lasts.

    Raises:
        SettingsError: a service is named and there is no key for it.
    """
    base_url = options.base_url or settings.base_url
    if base_url is not None:
        if settings.api_key is None:
            raise SettingsError(
                f"There is no key for {base_url}.", hint="Set LIGHTMETER_API_KEY to the key of your account."
            )
        yield Endpoint(base_url, settings.api_key, embedded=False)
        return
    from lightmeter.service.app import ServiceConfig, open_account, start_service  # noqa: PLC0415 (models and decoders load only when this service is wanted)

    folder = out / "embedded"
    folder.mkdir(parents=True, exist_ok=True)
    database = f"sqlite:///{folder / 'service.db'}"
    config = ServiceConfig(
        database=database, backends=needed_backends(options, settings), accounts={}, allow_private=True
    )
    portal = BackgroundLoop("lightmeter-embedded-service")
    try:
        key = await portal.call(open_account(database, ACCOUNT, EMBEDDED_CREDITS))
        running = await portal.call(start_service(config))
        try:
            yield Endpoint(running.base_url, SecretStr(key), embedded=True)
        finally:
            await portal.call(running.close())
    finally:
        await asyncio.to_thread(portal.close)
