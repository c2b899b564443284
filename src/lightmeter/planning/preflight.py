"""What a named service says before the first row is looked at: key, balance, back ends. Free; sends nothing to analyse.

A plan may take hours, so what makes it useless is told first: a missing or wrong key, a service that cannot be reached,
a back end that the service does not have.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from http import HTTPStatus
from typing import Any, Final

from pydantic import SecretStr

from lightmeter.client.client import Client
from lightmeter.client.transport import Timeouts
from lightmeter.embedded_service import embedded_backends, is_embedded
from lightmeter.errors import AccessDenied, OutcomeUnknown, ProtocolError, SettingsError, Unreachable
from lightmeter.models.response import BackendOffer, Backends
from lightmeter.options import Options
from lightmeter.pricing.rates import MILLICREDITS, RateTable
from lightmeter.settings import Settings

__all__ = [
    "PREFLIGHT_TIMEOUTS",
    "ServiceInfo",
    "check_backends_offered",
    "fetch_balance",
    "no_feature_offered_error",
    "preflight",
    "require_api_key",
]

PREFLIGHT_TIMEOUTS: Final = Timeouts(connect_s=10.0, read_s=10.0, total_s=10.0)
"""Seconds to wait for each of the two answers: both are read from the service's memory or its database."""

_KEPT: Final = {"name", "features", "default", "local", "available", "reason"}


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """What is known of a service.

    Attributes:
        balance: Credits of the account; None when not known, and for the embedded service.
        backends: The back ends that it offers; None when not known.
        note: Why the balance is not known, as a sentence; None when it is, and for the embedded service.
    """

    balance: int | None = None
    backends: tuple[BackendOffer, ...] | None = None
    note: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        offers = self.backends
        listed = None if offers is None else [offer.model_dump(mode="json", include=_KEPT) for offer in offers]
        return {"backends": listed, "note": self.note}

    @classmethod
    def from_dict(cls, saved: dict[str, Any] | None) -> ServiceInfo:
        """The back ends of a saved plan, whose prices were agreed to; what a balance was then says nothing now.

        Raises:
            ValueError: they cannot be read.
        """
        if saved is None or saved["backends"] is None:
            return cls()
        return cls(backends=tuple(Backends.model_validate(saved).backends))

    @property
    def defaults(self) -> tuple[str, ...]:
        """The back ends that it uses when none is named; empty when not known."""
        offers = self.backends or ()
        return tuple(offer.name.lower() for offer in offers if offer.default and offer.available)

    def rates(self, table: RateTable) -> RateTable:
        """The prices of the back ends that can be asked, or `table` where they are not known."""
        if self.backends is None:
            return table
        able = [offer for offer in self.backends if offer.available]
        return replace(
            table,
            rates={
                offer.name.lower(): {feature: _millicredits(price) for feature, price in offer.features.items()}
                for offer in able
            },
            # A service that marks no default has not said which it uses: all of them is the upper price.
            defaults=self.defaults or tuple(offer.name.lower() for offer in able),
            local=tuple(offer.name.lower() for offer in able if offer.local),
        )


def _millicredits(price: float) -> int:
    """Credits as JSON writes them in whole millicredits, rounded up: 0.15 → 150."""
    return math.ceil(Decimal(repr(price)) * MILLICREDITS)


async def preflight(
    options: Options, settings: Settings, *, required: bool, timeouts: Timeouts = PREFLIGHT_TIMEOUTS
) -> ServiceInfo:
    """Ask the service of a run for the balance and its back ends; the embedded service is not asked.

    Args:
        options: What names the service.
        settings: The user's, with the key.
        required: Whether spending follows: then a missing key, or no answer, is an error. Otherwise it is a note.
        timeouts: How long to wait for each answer.

    Raises:
        AccessDenied: the service does not accept the key.
        SettingsError: there is no key, or what answers there is no such service; only where required.
        Unreachable: no answer came; only where required.
    """
    base_url = options.base_url or settings.base_url
    if base_url is None:
        return ServiceInfo()
    try:
        key = require_api_key(base_url, settings)
    except SettingsError:
        if required:
            raise
        return ServiceInfo(note="No key is set (LIGHTMETER_API_KEY): balance and back ends were not asked.")
    async with Client(base_url, key, timeouts=timeouts, proxy=settings.proxy) as client:
        try:
            balance = await _balance_soon(client, 2 * timeouts.total_s)
        except (SettingsError, Unreachable) as error:
            if required:
                raise
            return ServiceInfo(note=f"{str(error).rstrip('.')}. Balance and back ends are not known.")
        if balance is None:
            return ServiceInfo(note=f"{base_url} asks to slow down: balance and back ends are not known.")
        return ServiceInfo(balance, await client.backends())


async def _balance_soon(client: Client, longest_s: float) -> int | None:
    """As `fetch_balance`; None also where the pauses that the service asks for would take longer than this."""
    try:
        async with asyncio.timeout(longest_s):
            return await fetch_balance(client)
    except TimeoutError:
        return None


def require_api_key(base_url: str, settings: Settings) -> SecretStr:
    """The key for a service.

    Raises:
        SettingsError: none is set.
    """
    if settings.api_key is None:
        raise SettingsError(
            f"There is no key for {base_url}.", hint="Set LIGHTMETER_API_KEY to the key of your account."
        )
    return settings.api_key


async def fetch_balance(client: Client) -> int | None:
    """The balance in credits; None while the service asks to slow down.

    Raises:
        AccessDenied: the service does not accept the key.
        SettingsError: what answers there is no such service.
        Unreachable: no answer came, or the service is broken.
    """
    try:
        return await client.credits()
    except AccessDenied as error:
        raise AccessDenied(f"{client.base_url}: {error}", hint=error.hint, http_status=error.http_status) from error
    except Unreachable as error:
        raise Unreachable(str(error), hint="Nothing was sent. Is the address right, and the service up?") from error
    except OutcomeUnknown as error:
        raise Unreachable(f"{client.base_url}: {error}", hint="Nothing was spent. Try again later.") from error
    except ProtocolError as error:
        status = error.http_status or 0
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            return None
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise Unreachable(str(error), hint="Nothing was spent. Try again later.", http_status=status) from error
        raise SettingsError(str(error), hint="Is the base URL that of the service?") from error


def check_backends_offered(options: Options, settings: Settings, service: ServiceInfo) -> None:
    """Check that the service has each back end that is named, as far as its back ends are known.

    Raises:
        SettingsError: it lacks one, or one cannot be asked now.
    """
    if is_embedded(options, settings):
        offers: Sequence[BackendOffer] = embedded_backends(settings)
        who, more = "The embedded service", " For others, name a service with --base-url."
    elif service.backends is not None:
        offers, who, more = service.backends, str(options.base_url or settings.base_url), ""
    else:
        return
    known = {offer.name.lower(): offer for offer in offers}
    able = ", ".join(sorted(name for name, offer in known.items() if offer.available)) or "none"
    for name in options.backends:
        if name not in known:
            raise SettingsError(f"{who} has no back end {name!r}.", hint=f"Its back ends: {able}.{more}")
        if not known[name].available:
            why = (known[name].reason or "the service does not say why").rstrip(".")
            raise SettingsError(
                f"{who}: the back end {name!r} is not available: {why}.", hint=f"Available back ends: {able}.{more}"
            )


def no_feature_offered_error(options: Options, settings: Settings, rates: RateTable) -> SettingsError:
    """The error to raise when no chosen back end offers any of the features that are asked for.

    Args:
        options: Features and back ends.
        settings: The user's.
        rates: What the service offers.
    """
    embedded = is_embedded(options, settings)
    who = "The embedded service" if embedded else str(options.base_url or settings.base_url)
    named = options.backends
    whose = f"The back end{'s' if len(named) > 1 else ''} {', '.join(named)} of {who[0].lower()}{who[1:]}"
    offer = "offer" if len(named) > 1 else "offers"
    return SettingsError(
        f"{whose if named else who} {offer} none of: {', '.join(options.features) or 'all features'}.",
        hint=" ".join(_instead(options.features, rates, embedded=embedded)),
    )


def _instead(wanted: Sequence[str], rates: RateTable, *, embedded: bool) -> Iterator[str]:
    """Who offers the features, or what else is offered."""
    names = list(rates.rates)
    found = False
    for feature in wanted:
        able = ", ".join(name for name in names if feature in rates.rates[name])
        if able:
            found = True
            yield f"{feature}: {able}."
    if not found:
        offered = sorted({feature for name in names for feature in rates.rates[name]})
        yield f"The service offers {', '.join(offered) or 'no feature'}."
        if embedded:
            yield "For more, name a service with --base-url."
