"""Starts the analysis service inside the process of a run (the embedded service), if the user names no other service.

No other module of the toolkit imports the service. The service runs in a background thread with its own event loop, on
loopback. Its database is in the output folder of the run: after a crash, the next start finishes the requests that the
service had accepted, and the balance is the same.
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
from lightmeter.options import Options
from lightmeter.settings import Settings
from lightmeter.wire.constants import FEATURES
from lightmeter.wire.response import BackendOffer

EMBEDDED_CREDITS: Final = 1_000_000_000
"""Opening balance of the account, in credits: more than any run needs.

These credits cost nothing; they let users try budgets.
"""

_REFILL_BELOW: Final = 500_000
"""Balance in credits below which the account gets `EMBEDDED_CREDITS` more at the start of the service.

Accounts of earlier versions opened with only 1,000,000 credits.
"""

ACCOUNT: Final = "embedded"
"""Name of the only account of the embedded service."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Base URL and key of the analysis service that a run uses.

    Attributes:
        base_url: Base URL of the service.
        api_key: Key of the account.
        embedded: Whether this is the service that the toolkit starts itself.
        local: Whether all models of the run work on this machine: then its cores limit the speed.
    """

    base_url: str
    api_key: SecretStr | None
    embedded: bool
    local: bool = False


def is_embedded(options: Options, settings: Settings) -> bool:
    """Whether a run uses the service that lightmeter starts itself: no option or setting names the URL of another."""
    return (options.base_url or settings.base_url) is None


def check_service(what: str, options: Options, settings: Settings, *, embedded: bool | None) -> None:
    """Raise SettingsError if a run would change from the embedded service to another one, or the other way round.

    The two have other back ends and prices, so what is known about the one must not be used for the other.

    Args:
        what: The run or its plan, for the message.
        options: The options of the run, which may name a service.
        settings: The user's settings, which may name a service.
        embedded: Whether the run is for the embedded service; None if that is not known: then nothing is checked.
    """
    if embedded is None or embedded == is_embedded(options, settings):
        return
    if embedded:
        raise SettingsError(
            f"{what} is for the embedded service, but {options.base_url or settings.base_url} is set as the service.",
            hint="Unset LIGHTMETER_BASE_URL and leave out --base-url, or plan again for another folder.",
        )
    raise SettingsError(
        f"{what} is not for the embedded service, but the address of its service is not set.",
        hint="Set LIGHTMETER_BASE_URL or --base-url to that address.",
    )


def embedded_backends(settings: Settings) -> tuple[BackendOffer, ...]:
    """Return the back ends (models and providers) of the service that lightmeter starts itself, with their prices.

    The available ones come first. No model is loaded.

    Raises:
        SettingsError: the settings of a back end are wrong.
    """
    from lightmeter.service.backends.catalog import read_catalog  # noqa: PLC0415 (only when the embedded service is wanted)
    from lightmeter.service.http.backend_list import list_backends  # noqa: PLC0415 (likewise)

    catalog = read_catalog(settings)
    return tuple(list_backends(catalog, catalog.rates()).backends)


def needed_backends(options: Options, settings: Settings) -> tuple[BackendOffer, ...]:
    """Return the back ends that the service that lightmeter starts itself must load for a run.

    These are the back ends that the options name, or the default ones if they name none. A back end that is not
    available, or that has none of the features of the run, is left out.
    """
    features = frozenset(options.features or FEATURES)
    able = {offer.name: offer for offer in embedded_backends(settings) if offer.available}
    names = options.backends or tuple(name for name, offer in able.items() if offer.default)
    return tuple(able[name] for name in names if name in able and features.intersection(able[name].features))


def provider_variables(options: Options, settings: Settings) -> set[str]:
    """Return the environment variables that hold keys, addresses and options of the providers that a run may call.

    Only the embedded service calls providers, such as OpenAI; the set is empty for other services.
    """
    from lightmeter.service.backends.catalog import PROVIDER_KINDS  # noqa: PLC0415 (as above)
    from lightmeter.service.backends.settings_tables import ProviderTable, read_tables  # noqa: PLC0415 (likewise)

    if not is_embedded(options, settings):
        return set()
    tables, names = read_tables(settings.backends), set[str | None]()
    for backend in options.backends or tables:
        table = tables.get(backend, ProviderTable())
        if isinstance(table, str):  # an alias
            backend, table = table, tables.get(table, ProviderTable())  # noqa: PLW2901
        if not isinstance(table, ProviderTable):
            continue
        names |= {table.key_variable, table.secret_variable}
        if (provider := PROVIDER_KINDS.get(table.kind or backend)) is not None:
            names |= {provider.key_variable, provider.secret_variable, provider.base_url_variable}
            names |= {*provider.option_variables.values()}
    return {name for name in names if name is not None}


@asynccontextmanager
async def open_endpoint(options: Options, settings: Settings, out: Path) -> AsyncIterator[Endpoint]:
    """Yield URL and key of the service that the options or settings name; if none is named, start one for the block.

    Args:
        options: The options of the run, which may name the service.
        settings: The user's settings.
        out: The output folder, which holds the database of the embedded service.

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
    from lightmeter.service.app import ServiceConfig, create_api_key, start_service  # noqa: PLC0415 (models and decoders load only when this service is wanted)
    from lightmeter.service.backends.catalog import read_catalog  # noqa: PLC0415 (likewise)

    folder = out / "embedded"
    folder.mkdir(parents=True, exist_ok=True)
    database = f"sqlite:///{folder / 'service.db'}"
    own, offers = options.prices, needed_backends(options, settings)
    config = ServiceConfig(
        database=database,
        backends=tuple(offer.name for offer in offers),
        accounts={},
        allow_private=True,
        rates=None if own is None or not own.free else read_catalog(settings).rates().with_own_prices(own),
    )
    background = BackgroundLoop("lightmeter-embedded-service")
    try:
        key = await background.call(create_api_key(database, ACCOUNT, EMBEDDED_CREDITS, refill_below=_REFILL_BELOW))
        running = await background.call(start_service(config))
        try:
            local = all(offer.local for offer in offers)
            yield Endpoint(running.base_url, SecretStr(key), embedded=True, local=local)
        finally:
            await background.call(running.close())
    finally:
        await asyncio.to_thread(background.close)
