"""Create the components of the service, and start it as an HTTP server or as a worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast

from aiohttp import web
from aiohttp.abc import AbstractResolver

from lightmeter.clock import Clock, SystemClock
from lightmeter.cpu_count import process_cpu_count
from lightmeter.errors import SettingsError
from lightmeter.pricing.rates import RateTable, Rounding
from lightmeter.service import logs
from lightmeter.service.analysis.analyzer import Analyzer
from lightmeter.service.analysis.analyzer_limits import AnalyzerLimits
from lightmeter.service.backends.availability import BackendAvailability
from lightmeter.service.backends.catalog import BackendCatalog, read_catalog
from lightmeter.service.backends.load import LoadedBackends, load_backends
from lightmeter.service.faults.config import NO_FAULTS, Faults
from lightmeter.service.http.backend_list import list_backends
from lightmeter.service.http.connections import (
    ConnectionLimits,
    Connections,
    HttpConnection,
    ignore_unknown_expectations,
)
from lightmeter.service.http.fault_injection import FaultInjector
from lightmeter.service.http.handlers import Handlers
from lightmeter.service.http.parameters import MAX_ASSETS
from lightmeter.service.http.public_url import PublicUrl
from lightmeter.service.http.routes import HttpContext, application
from lightmeter.service.ingest.fetch import Fetcher, FetchLimits
from lightmeter.service.jobs.job_queue import JobQueue
from lightmeter.service.jobs.local_queue import LocalQueue
from lightmeter.service.jobs.runner import Runner
from lightmeter.service.jobs.service_policy import ServicePolicy
from lightmeter.service.metrics import Metrics
from lightmeter.service.store import auth
from lightmeter.service.store import credits as money
from lightmeter.service.store.credits import Tariff
from lightmeter.service.store.sql_dialects import Connection, is_postgres, url_scheme
from lightmeter.service.store.store import Store
from lightmeter.tempdirs import remove_unlocked
from lightmeter.wire.constants import RESULT_LIFETIME_S
from lightmeter.wire.response import Backends

log = logging.getLogger("lightmeter.service")

DEFAULT_LEASE_S: Final = 30.0
"""A process that has sent no heartbeat for this many seconds counts as dead, and others take over its work.

It is longer than a busy machine pauses a process.
"""

DEFAULT_DRAIN_S: Final = 15.0
"""At shutdown, running requests have this many seconds to finish; then they are stopped.

It is less than process supervisors wait before they send SIGKILL.
"""


def default_workers() -> int:
    """Return the default for how many videos of one account are analyzed at once: two per usable CPU core."""
    return 2 * process_cpu_count()


@dataclass(frozen=True)
class ServiceConfig:
    """Configuration of an analysis service, or of a worker that runs requests for it.

    Attributes:
        database: `sqlite:///PATH` for one process, or `postgresql://…` for any number of services and workers.
        backends: Names of the back ends to load; one that cannot be loaded is an error. None loads all that can be
            loaded. A request that names no back end uses the default back ends of the catalog. If the catalog has no
            default ones, it uses all loaded back ends.
        accounts: API key → credits. Each key has its own account; a missing account is created with these credits.
        allow_private: Whether the URLs in requests may also point to private network addresses.
        fetch_limits: Limits of each download of an image or video.
        resolver: Function that creates the resolver of host names; None uses the resolver of the system. The service
            checks each address before it connects, whatever resolver found it.
        workers: Maximum number of videos of one account that are decoded and analyzed at once. For images the maximum
            is four times as high.
        limits: Limits of the number of unfinished images and video frames, of the memory for cached results, and of
            decoding.
        max_assets: Maximum number of URLs and files in a request.
        rounding: Which price is rounded up to whole credits: that of each image or frame, or that of each request.
        result_lifetime_s: Seconds after completion during which a result can be read.
        lease_s: Seconds without a heartbeat after which other processes take over the work of a process; only with
            PostgreSQL.
        drain_s: Seconds that running requests may take to finish when the service closes. With PostgreSQL, requests
            whose clients poll may take `lease_s` / 2 seconds instead.
        rates: Prices; None uses the prices in the catalog of back ends.
        clock: Source of the time.
        faults: Faults that the service makes on purpose, so that users can test their clients.
        catalog: Known back ends; None uses those that the settings describe.
        connections: Limits of the HTTP connections.
        public_url: Base URL of the `response_uri` in answers. By default, it is made from the host that each request
            names.
    """

    database: str = "sqlite:///lightmeter.db"
    backends: tuple[str, ...] | None = None
    accounts: Mapping[str, int] = field(default_factory=dict, repr=False)
    allow_private: bool = False
    fetch_limits: FetchLimits = field(default_factory=FetchLimits)
    resolver: Callable[[], AbstractResolver] | None = None
    workers: int = field(default_factory=default_workers)
    limits: AnalyzerLimits = field(default_factory=AnalyzerLimits)
    max_assets: int = MAX_ASSETS
    rounding: Rounding = Rounding.IMAGE
    result_lifetime_s: float = RESULT_LIFETIME_S
    lease_s: float = DEFAULT_LEASE_S
    drain_s: float = DEFAULT_DRAIN_S
    rates: RateTable | None = None
    clock: Clock = field(default_factory=SystemClock)
    faults: Faults = NO_FAULTS
    catalog: BackendCatalog | None = None
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    public_url: PublicUrl = field(default_factory=PublicUrl)


class RunningService:
    """A started analysis service, which accepts HTTP connections.

    Attributes:
        base_url: URL of the service, without a slash at the end.
        port: TCP port.
        fault_counts: Name of each fault that the service makes on purpose → how often it was made so far.
    """

    def __init__(self, base_url: str, port: int, stack: AsyncExitStack, fault_counts: Mapping[str, int]) -> None:
        self.base_url = base_url
        self.port = port
        self.fault_counts = fault_counts
        self._stack = stack

    async def close(self) -> None:
        """Stop accepting requests, let running requests finish (see `ServiceConfig.drain_s`), and close the database.

        Further calls do nothing. A request that does not finish in time runs again after the next start of the service
        if its client polls.
        """
        await self._stack.aclose()


async def create_api_key(database: str, name: str, credits_: int, *, refill_below: int = 0) -> str:
    """Return a new API key for an account; create the account if it is missing. Only a hash of the key is stored.

    Args:
        database: URL of the database.
        name: Name of the account.
        credits_: Balance of the account if it is created.
        refill_below: If the balance is lower than this, `credits_` are added to it.

    Raises:
        SettingsError: the database cannot be used.
    """
    store = Store(database)
    try:
        key = auth.new_key()
        await store.write(lambda db: _add_key(db, name, credits_, key, refill_below))
    finally:
        store.close()
    return key


def _add_key(db: Connection, name: str, credits_: int, key: str, refill_below: int = 0) -> None:
    now = SystemClock().now()
    account_id = money.open_account(db, name, credits_, now)
    if money.read_balance(db, account_id) < refill_below:
        money.grant(db, money.LedgerReference(account_id, None, now), credits_)
    auth.add_key(db, account_id, key)


async def _load(
    config: ServiceConfig, metrics: Metrics
) -> tuple[LoadedBackends, BackendAvailability, Backends, RateTable]:
    """Load the back ends that the configuration names (all available ones if it names none), and those they build on.

    Back ends that call an AI provider count these calls in `metrics`.

    Return (the loaded back ends, the back ends and features that a request can name, the body of GET /api/backends,
    the prices).
    """
    catalog = config.catalog or read_catalog()
    selected = catalog.available if config.backends is None else config.backends
    loaded = await load_backends(catalog, selected, metrics, skip_unavailable=config.backends is None)
    catalog, backends = loaded.catalog, loaded.offered
    names = tuple(backends)
    rates = catalog.rates() if config.rates is None else config.rates
    unpriced = [name for name in backends if name not in rates.rates]
    if unpriced:
        raise SettingsError(f"No price is known for: {', '.join(unpriced)}.", hint="Give the service a price table.")
    features = {name: backend.features for name, backend in backends.items()}
    defaults = tuple(name for name in names if catalog.entries[name].default) or names
    backend_list = list_backends(catalog, rates, names).model_copy(update={"rounding": config.rounding.value})
    reasons = {offer.name: offer.reason for offer in backend_list.backends if offer.reason is not None}
    aliases = {name: target for name, target in catalog.aliases.items() if target in backends}
    return loaded, BackendAvailability(features, defaults, aliases, reasons), backend_list, rates


async def _start_components(config: ServiceConfig, stack: AsyncExitStack) -> tuple[Store, Runner, JobQueue, Backends]:
    """Start the database, the runner of requests and the job queue; closing `stack` stops all three.

    The returned `Backends` is the body of GET /api/backends.
    """
    logs.reenable_loggers()
    await asyncio.to_thread(remove_unlocked)  # files of services that were killed
    metrics = Metrics()
    loaded, availability, offers, rates = await _load(config, metrics)
    backends = {**loaded.offered, **loaded.bases}
    for backend in backends.values():
        if (close := getattr(backend, "close", None)) is not None:  # adapters of AI providers have open connections
            stack.callback(close)
    tariff = Tariff(rates, config.rounding, config.faults.price_factor)
    policy = ServicePolicy(
        tariff,
        availability,
        config.allow_private,
        config.fetch_limits.ports,
        config.result_lifetime_s,
        config.max_assets,
    )
    store = await asyncio.to_thread(Store, config.database, exclusive=True, timer=metrics.time_transaction)
    stack.callback(store.close)
    resolver = None if config.resolver is None else config.resolver()
    fetcher = Fetcher(allow_private=config.allow_private, limits=config.fetch_limits, resolver=resolver)
    await stack.enter_async_context(fetcher)
    analyzer = Analyzer(
        backends, fetcher, tariff, config.workers, limits=config.limits, metrics=metrics, clock=config.clock
    )
    stack.callback(analyzer.close)
    runner = Runner(store, analyzer, policy, config.clock, metrics)
    stack.callback(asyncio.create_task(runner.stop_cancelled()).cancel)
    if is_postgres(config.database):
        from lightmeter.service.jobs.postgres_queue import PostgresQueue  # noqa: PLC0415 (an extra that SQLite does not need)

        queue: JobQueue = PostgresQueue(config.database, store, runner, config.clock, config.lease_s)
    else:
        queue = LocalQueue(store, runner, config.clock)
    stack.push_async_callback(queue.drain, config.drain_s)
    stack.push_async_callback(runner.drain, config.drain_s)
    await queue.open()
    return store, runner, queue, offers


def _start_facts(config: ServiceConfig, offers: Backends) -> dict[str, str]:
    """Return facts for the log line at a start: the type of the database, and the names of the available back ends.

    `offers` is the body of GET /api/backends.
    """
    names = ",".join(offer.name for offer in offers.backends if offer.available)
    return {"database": url_scheme(config.database), "backends": names}


async def start_worker(
    config: ServiceConfig, *, metrics_host: str = "127.0.0.1", metrics_port: int | None = None
) -> AsyncExitStack:
    """Start a worker: it runs requests from a shared PostgreSQL database, and has no HTTP API.

    To stop the worker, close the returned stack. It waits until the running requests have ended. After
    `config.lease_s` / 2 seconds it cancels the rest, and other processes run them again.

    Args:
        config: Configuration of the worker.
        metrics_host: Address on which the metrics are served.
        metrics_port: TCP port of the metrics. 0 chooses a free port; with None the metrics are not served.

    Raises:
        SettingsError: the database cannot be used, or cannot be shared.
    """
    if not is_postgres(config.database):
        raise SettingsError(
            f"A worker needs a database that can be shared, and {url_scheme(config.database)}://… cannot.",
            hint="Use --database postgresql://…, here and for lightmeter serve.",
        )
    async with AsyncExitStack() as stack:
        _, runner, _, offers = await _start_components(config, stack)
        facts = _start_facts(config, offers)
        if metrics_port is not None:
            facts["metrics"], stop = runner.metrics.serve(metrics_host, metrics_port)
            stack.push_async_callback(asyncio.to_thread, stop)
        logs.log_start("worker", **facts)
        return stack.pop_all()


async def start_service(config: ServiceConfig, host: str = "127.0.0.1", port: int = 0) -> RunningService:
    """Start the service, and return it when it accepts requests.

    Args:
        config: Configuration of the service.
        host: Address to listen on.
        port: TCP port to listen on; 0 chooses a free port.

    Raises:
        SettingsError: the database, a back end or the address cannot be used.
    """
    async with AsyncExitStack() as stack:
        store, runner, queue, offers = await _start_components(config, stack)
        for key, credits_ in config.accounts.items():
            await store.write(partial(_add_key, name=auth.account_name(key), credits_=credits_, key=key))
        handlers = Handlers(store, runner, queue, config.clock, offers)
        purge_task = asyncio.create_task(handlers.purge_expired())
        stack.callback(purge_task.cancel)
        ready = asyncio.Event()
        injector = FaultInjector(config.faults, config.clock) if config.faults else None
        if injector is not None:
            log.warning("FAULTS ARE ON: this service misbehaves on purpose: %s", config.faults.text)
        connections = Connections(config.connections)
        context = HttpContext(ready.is_set, runner.metrics, connections, config.public_url, injector)
        web_runner = web.AppRunner(application(handlers, context), access_log=None, shutdown_timeout=config.drain_s)
        await web_runner.setup()
        stack.push_async_callback(web_runner.cleanup)
        server = cast("web.Server", web_runner.server)
        ignore_unknown_expectations(server)
        listener = await _listen(partial(HttpConnection, server, connections), host, port)
        stack.callback(listener.close)
        close_late_task = asyncio.create_task(connections.close_late())
        stack.callback(close_late_task.cancel)
        # At shutdown, running requests end before the socket closes, so that clients can still poll their results.
        stack.push_async_callback(queue.drain, config.drain_s)
        stack.push_async_callback(runner.drain, config.drain_s)
        stack.callback(ready.clear)
        ready.set()
        await listener.start_serving()
        bound = listener.sockets[0].getsockname()[1]
        url_host = f"[{host}]" if ":" in host else host
        base_url = f"http://{url_host}:{bound}"
        logs.log_start("service", address=base_url, **_start_facts(config, offers))
        fault_counts = {} if injector is None else injector.fault_counts
        return RunningService(base_url, bound, stack.pop_all(), fault_counts)


async def _listen(create: Callable[[], HttpConnection], host: str, port: int) -> asyncio.Server:
    """Return a server that is bound to an address. It accepts connections after its `start_serving` is called.

    Args:
        create: Function that creates the protocol object of a new connection.
        host: Address to listen on.
        port: TCP port; 0 chooses a free port.

    Raises:
        SettingsError: the address cannot be used.
    """
    try:
        return await asyncio.get_running_loop().create_server(create, host, port, start_serving=False)
    except OSError as error:
        raise SettingsError(f"Cannot listen on {host}:{port}: {error.strerror or error}.") from error
