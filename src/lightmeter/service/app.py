"""The service put together: store, models, fetcher, handlers, routes, and a socket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractResolver

from lightmeter.clock import Clock, SystemClock
from lightmeter.cpu_count import process_cpu_count
from lightmeter.errors import LightmeterError, SettingsError
from lightmeter.models.response import Backends
from lightmeter.models.vocabulary import RESULT_LIFETIME_S
from lightmeter.pricing.rates import RateTable, Rounding
from lightmeter.service import logs
from lightmeter.service.analysis.analyzer import Analyzer, AnalyzerLimits
from lightmeter.service.backends.availability import BackendAvailability
from lightmeter.service.backends.catalog import AnyBackend, BackendCatalog, read_catalog
from lightmeter.service.faults.config import NO_FAULTS, Faults
from lightmeter.service.http.backend_list import offers
from lightmeter.service.http.fault_injection import FaultInjector
from lightmeter.service.http.handlers import Handlers
from lightmeter.service.http.routes import application
from lightmeter.service.ingest.fetch import Fetcher, FetchLimits
from lightmeter.service.jobs.local_queue import JobQueue, LocalQueue
from lightmeter.service.jobs.runner import Runner, ServicePolicy
from lightmeter.service.metrics import Metrics
from lightmeter.service.store import auth
from lightmeter.service.store import credits as money
from lightmeter.service.store.credits import Tariff
from lightmeter.service.store.database import Connection, is_postgres, scheme_of
from lightmeter.service.store.store import Store

__all__ = ["DEFAULT_LEASE_S", "RunningService", "ServiceConfig", "default_workers", "open_account", "start", "work"]

log = logging.getLogger("lightmeter.service")

DEFAULT_LEASE_S: Final = 30.0
"""Long enough for a pause of a busy machine, short enough for a caller who polls."""

DEFAULT_DRAIN_S: Final = 15.0
"""Longer than a picture takes, shorter than supervisors wait before they kill."""

MAX_LINE_BYTES: Final = 64 * 1024
"""A query string that is too long for the contract must still be read, to be refused in its words."""


def default_workers() -> int:
    """Two for each core this process may use: while one asset is decoded, another is looked at; more gain nothing."""
    return 2 * process_cpu_count()


@dataclass(frozen=True)
class ServiceConfig:
    """How to run the service.

    Attributes:
        database: `sqlite:///PATH`, for one process; or `postgresql://…`, for any number of services and workers.
        backends: Names of back ends; None means all that can be used. Requests that name none use those that the
            catalog marks as defaults, or all of them if none is marked.
        accounts: Credits by key: each key opens an account of its own, made with so many credits if it is missing.
        allow_private: Fetch from private addresses too.
        fetch_limits: How far a fetch may go.
        resolver: Makes what looks up the names of hosts; the system's resolver unless given. What it answers
            is not trusted: it is judged when it is dialled.
        workers: Assets that are decoded and looked at at once.
        limits: How much is taken on and remembered.
        rounding: Where charges are rounded up to whole credits.
        result_lifetime_s: How long results can be read after completion.
        lease_s: How long a process may be silent before others take over its work; of a shared database.
        drain_s: How long what runs may go on when the service is closed: for open connections, and once more for what
            goes on behind them.
        rates: Prices; those of the catalog unless given.
        clock: Time; the machine's unless given.
        faults: What goes wrong on purpose; nothing unless given.
        catalog: The back ends there are; read from the settings unless given.
    """

    database: str = "sqlite:///lightmeter.db"
    backends: tuple[str, ...] | None = None
    accounts: Mapping[str, int] = field(default_factory=dict, repr=False)
    allow_private: bool = False
    fetch_limits: FetchLimits = field(default_factory=FetchLimits)
    resolver: Callable[[], AbstractResolver] | None = None
    workers: int = field(default_factory=default_workers)
    limits: AnalyzerLimits = field(default_factory=AnalyzerLimits)
    rounding: Rounding = Rounding.IMAGE
    result_lifetime_s: float = RESULT_LIFETIME_S
    lease_s: float = DEFAULT_LEASE_S
    drain_s: float = DEFAULT_DRAIN_S
    rates: RateTable | None = None
    clock: Clock = field(default_factory=SystemClock)
    faults: Faults = NO_FAULTS
    catalog: BackendCatalog | None = None


class RunningService:
    """A service that listens. Close it to drain it.

    Attributes:
        base_url: Where.
        port: On which port.
        fault_counts: How often each fault on purpose has happened, by its name.
    """

    def __init__(self, base_url: str, port: int, stack: AsyncExitStack, fault_counts: Mapping[str, int]) -> None:
        self.base_url = base_url
        self.port = port
        self.fault_counts = fault_counts
        self._stack = stack

    async def close(self) -> None:
        """Stop listening, let what is running finish for a while, close the store; idempotent.

        What does not finish in time and was acknowledged is done by the next start.
        """
        await self._stack.aclose()


async def open_account(database: str, name: str, credits_: int) -> str:
    """A fresh key for the account `name`, which is made with so many credits if it is missing.

    The key is returned once and stored hashed.

    Raises:
        SettingsError: the database cannot be used.
    """
    store = Store(database)
    try:
        key = auth.new_key()
        await store.write(lambda db: _let_in(db, name, credits_, key))
    finally:
        store.close()
    return key


def _let_in(db: Connection, name: str, credits_: int, key: str) -> None:
    auth.add_key(db, money.open_account(db, name, credits_, SystemClock().now()), key)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The back ends of a service.

    Attributes:
        backends: By name: those that requests can name, and those that others build on.
        availability: What requests can name.
        offers: How they are listed.
        rates: Their prices.
    """

    backends: dict[str, AnyBackend]
    availability: BackendAvailability
    offers: Backends
    rates: RateTable


def _load_usable(catalog: BackendCatalog, metrics: Metrics) -> tuple[BackendCatalog, dict[str, AnyBackend]]:
    """Load every available back end; one that cannot be loaded is left out of the catalog, because nobody named it."""
    backends = {}
    for name in catalog.available:
        try:
            backends[name] = catalog.create_backend(name, metrics)
        except LightmeterError as error:
            log.warning("back end %s is not available: %s", name, error)
            catalog = catalog.without(name, str(error))
    return catalog, backends


def _load(config: ServiceConfig, metrics: Metrics) -> _Loaded:
    catalog = config.catalog or read_catalog()
    if config.backends is None:
        catalog, backends = _load_usable(catalog, metrics)
    else:  # what is named for others is loaded under its own name
        named = dict.fromkeys(catalog.aliases.get(name, name) for name in config.backends)
        backends = {name: catalog.create_backend(name, metrics) for name in named}
    names = tuple(backends)
    rates = catalog.rates() if config.rates is None else config.rates
    unpriced = [name for name in backends if name not in rates.rates]
    if unpriced:
        raise SettingsError(f"No price is known for: {', '.join(unpriced)}.", hint="Give the service a price table.")
    features = {name: backend.features for name, backend in backends.items()}
    defaults = tuple(name for name in names if catalog.entries[name].default) or names
    listed = offers(catalog, rates, names)
    reasons = {offer.name: offer.reason for offer in listed.backends if offer.reason is not None}
    aliases = {name: target for name, target in catalog.aliases.items() if target in backends}
    needed = {
        name: catalog.create_backend(name, metrics)
        for backend in backends.values()
        for name in getattr(backend, "builds_on", ())
        if name not in backends
    }
    return _Loaded({**backends, **needed}, BackendAvailability(features, defaults, aliases, reasons), listed, rates)


@dataclass(frozen=True, slots=True)
class _Engine:
    """What does requests, with or without HTTP before it."""

    store: Store
    runner: Runner
    queue: JobQueue
    metrics: Metrics
    offers: Backends


async def _engine(config: ServiceConfig, stack: AsyncExitStack) -> _Engine:
    logs.enable()
    metrics = Metrics()
    loaded = _load(config, metrics)
    for backend in loaded.backends.values():
        if (close := getattr(backend, "close", None)) is not None:  # adapters hold connections
            stack.callback(close)
    tariff = Tariff(loaded.rates, config.rounding, config.faults.price_factor)
    terms = ServicePolicy(
        tariff, loaded.availability, config.allow_private, config.fetch_limits.ports, config.result_lifetime_s
    )
    store = await asyncio.to_thread(Store, config.database, exclusive=True)
    stack.callback(store.close)
    resolver = None if config.resolver is None else config.resolver()
    fetcher = Fetcher(allow_private=config.allow_private, limits=config.fetch_limits, resolver=resolver)
    await stack.enter_async_context(fetcher)
    worker = Analyzer(
        loaded.backends, fetcher, tariff, config.workers, limits=config.limits, metrics=metrics, clock=config.clock
    )
    stack.callback(worker.close)
    await worker.warm()
    runner = Runner(store, worker, terms, config.clock, metrics)
    queue = _queue(config, store, runner)
    stack.push_async_callback(queue.drain, config.drain_s)
    stack.push_async_callback(runner.drain, config.drain_s)
    await queue.open()
    return _Engine(store, runner, queue, metrics, loaded.offers)


def _queue(config: ServiceConfig, store: Store, runner: Runner) -> JobQueue:
    if not is_postgres(config.database):
        return LocalQueue(store, runner, config.clock)
    from lightmeter.service.jobs.postgres_queue import PostgresQueue  # noqa: PLC0415 (an extra that SQLite does not need)

    return PostgresQueue(config.database, store, runner, config.clock, config.lease_s)


async def work(config: ServiceConfig) -> AsyncExitStack:
    """Do requests of a shared database without listening; close what is returned to drain and stop.

    Raises:
        SettingsError: the database cannot be used, or cannot be shared.
        BackendError: a model cannot be loaded.
    """
    if not is_postgres(config.database):
        raise SettingsError(
            f"A worker needs a database that can be shared, and {scheme_of(config.database)}://… cannot.",
            hint="Use --database postgresql://…, here and for lightmeter serve.",
        )
    async with AsyncExitStack() as stack:
        await _engine(config, stack)
        return stack.pop_all()


async def start(config: ServiceConfig, host: str = "127.0.0.1", port: int = 0) -> RunningService:
    """Start the service; returns when it is ready to answer.

    Raises:
        SettingsError: the database, a back end or the address cannot be used.
        BackendError: a model cannot be loaded.
    """
    async with AsyncExitStack() as stack:
        engine = await _engine(config, stack)
        for key, credits_ in config.accounts.items():
            await engine.store.write(partial(_let_in, name=auth.account_name(key), credits_=credits_, key=key))
        handlers = Handlers(engine.store, engine.runner, engine.queue, config.clock, engine.offers)
        forgetting = asyncio.create_task(handlers.forget_expired())
        stack.callback(forgetting.cancel)
        ready = asyncio.Event()
        injection = _injection(config)
        runner = web.AppRunner(
            application(handlers, ready.is_set, engine.metrics, injection),
            access_log=None,
            shutdown_timeout=config.drain_s,
            max_line_size=MAX_LINE_BYTES,
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        # When it closes: nothing new is let in, what runs ends, and only then the door is shut: results can be polled.
        stack.push_async_callback(engine.queue.drain, config.drain_s)
        stack.push_async_callback(engine.runner.drain, config.drain_s)
        stack.callback(ready.clear)
        try:
            site = web.TCPSite(runner, host, port)
            await site.start()
        except OSError as error:
            raise SettingsError(f"Cannot listen on {host}:{port}: {error.strerror or error}.") from error
        ready.set()
        bound = runner.addresses[0][1]
        shown = f"[{host}]" if ":" in host else host
        fault_counts = {} if injection is None else injection.fault_counts
        return RunningService(f"http://{shown}:{bound}", bound, stack.pop_all(), fault_counts)


def _injection(config: ServiceConfig) -> FaultInjector | None:
    if not config.faults:
        return None
    log.warning("FAULTS ARE ON: this service misbehaves on purpose: %s", config.faults.text)
    return FaultInjector(config.faults, config.clock)
