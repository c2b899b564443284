"""Check the key, the balance and the back ends of a service before the first row is read. The requests are free.

Planning may take hours. So problems that make the plan useless are found before it: a missing or wrong key, a service
that cannot be reached, or a back end that the service lacks.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from http import HTTPStatus
from typing import Any, Final

from pydantic import SecretStr

from lightmeter.client.client import Client
from lightmeter.client.transport import Timeouts
from lightmeter.embedded_service import embedded_backends, is_embedded
from lightmeter.errors import AccessDenied, OutcomeUnknown, ProtocolError, SettingsError, Unreachable
from lightmeter.options import Options
from lightmeter.pricing.rates import MILLICREDITS, RateTable, Rounding
from lightmeter.settings import Settings
from lightmeter.wire.response import BackendOffer, Backends

PREFLIGHT_TIMEOUTS: Final = Timeouts(connect_s=10.0, read_s=10.0, total_s=10.0)
"""Time limits for the request of the balance and for that of the list of back ends; both are answered quickly."""

_SAVED_FIELDS: Final = {"name", "features", "default", "local", "available", "reason", "alias_of", "follows_prompt"}


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """Balance and back ends of a service, as far as they are known.

    Attributes:
        balance: Credits of the account; None if unknown or if the service is embedded.
        backends: The back ends that the service offers; None if unknown.
        note: Why the balance is unknown, as a sentence; None if it is known or if the service is embedded.
        rounding: What the service says that it rounds up to whole credits; None if unknown.
    """

    balance: int | None = None
    backends: tuple[BackendOffer, ...] | None = None
    note: str | None = None
    rounding: Rounding | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the information as JSON values for a plan file; the balance is left out, because it changes."""
        offers = self.backends
        listed = None if offers is None else [offer.model_dump(mode="json", include=_SAVED_FIELDS) for offer in offers]
        return {"backends": listed, "note": self.note, "rounding": self.rounding}

    @classmethod
    def from_dict(cls, saved: dict[str, Any] | None) -> ServiceInfo:
        """Return an object with the back ends and the rounding that `to_dict` saved in a plan file.

        Its balance is unknown. If `saved` is None, the back ends are unknown too.

        Raises:
            ValueError: `saved` does not hold a valid list of back ends.
        """
        if saved is None or saved["backends"] is None:
            return cls()
        return cls().with_backend_list(Backends.model_validate(saved))

    def with_backend_list(self, listed: Backends | None) -> ServiceInfo:
        """Return a copy of this object with the back ends, and the rule for rounding prices, that the service lists.

        `listed` is the answer of GET /api/backends; if it is None, return this object.
        """
        if listed is None:
            return self
        rounding = None if listed.rounding is None else Rounding(listed.rounding)
        return replace(self, backends=tuple(listed.backends), rounding=rounding)

    @property
    def defaults(self) -> tuple[str, ...]:
        """Names of the back ends that the service uses for a request that names none; empty if unknown."""
        offers = self.backends or ()
        return tuple(offer.name.lower() for offer in offers if offer.default and offer.available)

    def rates(self, table: RateTable) -> RateTable:
        """Return a price table with the prices that the service lists for its available back ends.

        All else is taken from `table`. If the back ends of the service are unknown, return `table` itself.
        """
        if self.backends is None:
            return table
        available = [offer for offer in self.backends if offer.available]
        return replace(
            table,
            rates={
                offer.name.lower(): {feature: _millicredits(price) for feature, price in offer.features.items()}
                for offer in available
            },
            # If the service marks no default, assume all of them: the highest possible price.
            defaults=self.defaults or tuple(offer.name.lower() for offer in available),
            local=tuple(offer.name.lower() for offer in available if offer.local),
            rounding=self.rounding,
        )


def _millicredits(price: float) -> int:
    """Convert credits from JSON to whole millicredits, rounded up: 0.15 → 150."""
    return math.ceil(Decimal(repr(price)) * MILLICREDITS)


async def preflight(
    options: Options, settings: Settings, *, required: bool, timeouts: Timeouts = PREFLIGHT_TIMEOUTS
) -> ServiceInfo:
    """Request the balance and the back ends from the service of a run.

    For the embedded service, request nothing and return a `ServiceInfo` in which all attributes are None.

    Args:
        options: The options of the run, which may name the service.
        settings: The user's settings, with the key.
        required: Whether to raise an error if the key is missing or the service does not answer. If false, the
            attribute `note` of the result says so instead. If the service's rate limit rejects the request (429),
            `note` says so in both cases.
        timeouts: Time limits for each request.

    Raises:
        AccessDenied: the service does not accept the key.
        SettingsError: there is no key, or no analysis service answers at the base URL; only if `required`.
        Unreachable: the service does not answer; only if `required`.
    """
    base_url = options.base_url or settings.base_url
    if base_url is None:
        return ServiceInfo()
    try:
        key = require_api_key(base_url, settings)
    except SettingsError:
        if required:
            raise
        return ServiceInfo(note="No key is set (LIGHTMETER_API_KEY): balance and back ends were not requested.")
    async with Client(base_url, key, timeouts=timeouts, proxy=settings.proxy) as client:
        try:
            async with asyncio.timeout(
                2 * timeouts.total_s
            ):  # the client repeats a request that was refused as too fast
                balance = await fetch_balance(client)
        except TimeoutError:
            balance = None
        except (SettingsError, Unreachable) as error:
            if required:
                raise
            return ServiceInfo(note=f"{str(error).rstrip('.')}. Balance and back ends are not known.")
        if balance is None:
            return ServiceInfo(note=f"{base_url} asks to slow down: balance and back ends are not known.")
        return ServiceInfo(balance).with_backend_list(await client.backend_list())


def require_api_key(base_url: str, settings: Settings) -> SecretStr:
    """Return the user's API key for the service at `base_url`; raise SettingsError if none is set."""
    if settings.api_key is None:
        raise SettingsError(
            f"There is no key for {base_url}.", hint="Set LIGHTMETER_API_KEY to the key of your account."
        )
    return settings.api_key


async def fetch_balance(client: Client) -> int | None:
    """Request the account's balance in credits; return None if the service's rate limit rejects the request (429).

    Raises:
        AccessDenied: the service does not accept the key.
        SettingsError: no analysis service answers at the base URL.
        Unreachable: the service does not answer, or answers with a server error.
    """
    try:
        return await client.credits()
    except AccessDenied as error:
        raise AccessDenied(f"{client.base_url}: {error}", hint=error.hint, http_status=error.http_status) from error
    except Unreachable as error:
        raise Unreachable(str(error), hint="Nothing was sent. Check the base URL and the service.") from error
    except OutcomeUnknown as error:
        raise Unreachable(f"{client.base_url}: {error}", hint="Nothing was spent. Try again later.") from error
    except ProtocolError as error:
        status = error.http_status or 0
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            return None
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise Unreachable(str(error), hint="Nothing was spent. Try again later.", http_status=status) from error
        raise SettingsError(str(error), hint="Check the base URL: it must be that of the service.") from error


async def require_balance(client: Client) -> int:
    """Request the account's balance in credits.

    Raises:
        AccessDenied: the service does not accept the key.
        SettingsError: no analysis service answers at the base URL.
        Unreachable: the service does not answer, answers with a server error, or asks to slow down (429).
    """
    balance = await fetch_balance(client)
    if balance is None:
        raise Unreachable(
            f"{client.base_url} asks to slow down: the balance is not known.",
            hint="Nothing was spent. Try again later.",
            http_status=HTTPStatus.TOO_MANY_REQUESTS,
        )
    return balance


def check_backends_offered(options: Options, settings: Settings, service: ServiceInfo) -> None:
    """Raise an error if the service lacks a back end that the options name.

    If the back ends of the service are not known, check nothing.

    Args:
        options: The options, which may name back ends.
        settings: The user's settings.
        service: The back ends that the service reported.

    Raises:
        SettingsError: the service lacks a back end, or the back end is not available now.
    """
    if is_embedded(options, settings):
        offers: Sequence[BackendOffer] = embedded_backends(settings)
        who, more = "The embedded service", " For others, name a service with --base-url."
    elif service.backends is not None:
        offers, who, more = service.backends, str(options.base_url or settings.base_url), ""
    else:
        return
    known = {offer.name.lower(): offer for offer in offers}
    available = ", ".join(sorted(name for name, offer in known.items() if offer.available)) or "none"
    for name in options.backends:
        if name not in known:
            raise SettingsError(f"{who} has no back end {name!r}.", hint=f"Its back ends: {available}.{more}")
        if not known[name].available:
            why = (known[name].reason or "the service does not say why").rstrip(".")
            raise SettingsError(
                f"{who}: the back end {name!r} is not available: {why}.",
                hint=f"Available back ends: {available}.{more}",
            )


def check_prompt_followed(
    describing: Collection[str], options: Options, settings: Settings, service: ServiceInfo
) -> None:
    """Raise SettingsError if a back end would be paid for a prompt or a question that it ignores.

    A question (`--ask`) needs an answer of each back end that describes pictures, a prompt of one of them. A back end
    is taken to follow prompts unless the service says otherwise.

    Args:
        describing: Names of the back ends from which the run requests descriptions.
        options: The options of the run.
        settings: The user's settings.
        service: The back ends that the service reported.
    """
    offers = embedded_backends(settings) if is_embedded(options, settings) else service.backends or ()
    ignoring = {offer.name.lower() for offer in offers if offer.follows_prompt is False}.intersection(describing)
    is_answered = not ignoring if options.ask is not None else bool({*describing} - ignoring)
    if is_answered or not (options.sent_prompt or "").strip():
        return
    able = {offer.name: offer.available for offer in offers if offer.follows_prompt}
    available = ", ".join(name for name, is_available in able.items() if is_available)
    if not describing:
        message = "prompt: it has no effect, because no back end of this run describes pictures."
    elif options.ask is not None:
        message = f"ask: {', '.join(sorted(ignoring))} cannot answer a question, but would be asked and paid."
    else:
        message = f"prompt: it has no effect on {', '.join(sorted(ignoring))}."
    named = f"--backends {available}." if available else f"{', '.join(able)}. What each needs: lightmeter backends"
    raise SettingsError(message, hint=f"Name only back ends that follow a prompt: {named}")


def no_feature_offered_error(options: Options, settings: Settings, rates: RateTable) -> SettingsError:
    """Return the error for a run in which no chosen back end offers any of the requested features.

    Args:
        options: The options, with features and back ends.
        settings: The user's settings.
        rates: The back ends and features that the service offers.
    """
    embedded = is_embedded(options, settings)
    backends = {
        feature: [name for name, prices in rates.rates.items() if feature in prices] for feature in options.features
    }
    hints = [f"{feature}: {', '.join(names)}." for feature, names in backends.items() if names]
    if not hints:
        offered = sorted({feature for prices in rates.rates.values() for feature in prices})
        hints.append(f"The service offers {', '.join(offered) or 'no feature'}.")
        if embedded:
            hints.append("For more, name a service with --base-url.")
    who = "The embedded service" if embedded else str(options.base_url or settings.base_url)
    named = options.backends
    whose = f"The back end{'s' if len(named) > 1 else ''} {', '.join(named)} of {who[0].lower()}{who[1:]}"
    offer = "offer" if len(named) > 1 else "offers"
    return SettingsError(
        f"{whose if named else who} {offer} none of: {', '.join(options.features) or 'all features'}.",
        hint=" ".join(hints),
    )
