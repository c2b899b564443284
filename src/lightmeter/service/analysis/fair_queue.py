"""Queues and a semaphore that serve accounts in turn, and the requests of each account in turn.

So an account with one request does not wait until all requests of another account have ended. And a small request does
not wait until a large request of the same account has ended.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")

TOTAL_TO_ACCOUNT_LIMIT_RATIO: Final = 2
"""The limit for all accounts together is this many times the limit for one account.

It applies to the permits of a `FairSemaphore`, to pending pictures (`AdmissionController`), and to running jobs.
"""


@dataclass(frozen=True, slots=True)
class Caller:
    """Identifies the request that an item of a fair queue belongs to.

    Attributes:
        account_id: Number of the account.
        request: Any hashable object that identifies the request within the account, such as its id.
    """

    account_id: int
    request: Hashable


class RoundRobinQueue(Generic[T]):
    """Queue that serves callers in turn: each `pop` takes one item, and then it is the turn of the next caller.

    The items of one caller leave in the order in which they were added.
    """

    def __init__(self) -> None:
        self._queues: dict[Hashable, deque[T]] = {}  # the next caller comes first
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, caller: Hashable, item: T) -> None:
        """Append an item for `caller`. If the caller has no items in the queue, its turn comes after all others."""
        self._queues.setdefault(caller, deque()).append(item)
        self._length += 1

    def add_first(self, caller: Hashable, item: T) -> None:
        """Add an item before the other items of `caller`. The order of the callers is as after `add`."""
        self._queues.setdefault(caller, deque()).appendleft(item)
        self._length += 1

    def pop(self) -> T:
        """Remove and return the first item of the caller whose turn it is.

        Raises:
            IndexError: the queue is empty.
        """
        if not self._queues:
            raise IndexError("the queue is empty")
        caller = next(iter(self._queues))
        queue = self._queues.pop(caller)
        item = queue.popleft()
        if queue:
            self._queues[caller] = queue  # appended: this caller comes last
        self._length -= 1
        return item

    def peek(self) -> T:
        """Return the item that `pop` would return.

        Raises:
            IndexError: the queue is empty.
        """
        if not self._queues:
            raise IndexError("the queue is empty")
        return next(iter(self._queues.values()))[0]


class FairQueue(Generic[T]):
    """Queue that serves accounts in turn: each `pop` takes one item, and then it is the turn of the next account.

    The requests of one account also take turns.
    """

    def __init__(self) -> None:
        self._accounts: dict[int, RoundRobinQueue[T]] = {}  # the next account comes first

    def __len__(self) -> int:
        return sum(map(len, self._accounts.values()))

    def __bool__(self) -> bool:
        return bool(self._accounts)

    @property
    def accounts(self) -> tuple[int, ...]:
        """Numbers of the accounts that have items in the queue, in the order of their turns."""
        return tuple(self._accounts)

    def add(self, caller: Caller, item: T) -> None:
        """Append an item for the request of `caller`.

        If the account has no items in the queue, its turn comes after all others.
        """
        self._accounts.setdefault(caller.account_id, RoundRobinQueue()).add(caller.request, item)

    def add_first(self, caller: Caller, item: T) -> None:
        """Add an item before the other items of the request of `caller`. The order of the turns is as after `add`."""
        self._accounts.setdefault(caller.account_id, RoundRobinQueue()).add_first(caller.request, item)

    def pop(self, account_id: int | None = None) -> T:
        """Remove and return the next item of the account `account_id`.

        If `account_id` is None, take the item from the account whose turn it is.

        Raises:
            IndexError: the queue is empty.
            KeyError: the queue is not empty, but has no item of the account `account_id`.
        """
        if not self._accounts:
            raise IndexError("the queue is empty")
        account_id = next(iter(self._accounts)) if account_id is None else account_id
        queue = self._accounts.pop(account_id)
        item = queue.pop()
        if queue:
            self._accounts[account_id] = queue  # appended: this account comes last
        return item

    def pop_batch(self, account_id: int, max_items: int, batch_key: Callable[[T], Hashable]) -> list[T]:
        """Remove and return up to `max_items` items that have the same value of `batch_key`, in the order of `pop`.

        Stop before the first item that has another value.

        Args:
            account_id: Account of the first item.
            max_items: Maximum number of items.
            batch_key: Function that returns a value for an item.

        Raises:
            IndexError: the queue is empty.
            KeyError: the queue has no item of the account.
        """
        batch = [self.pop(account_id)]
        key = batch_key(batch[0])
        while (
            len(batch) < max_items and self._accounts and batch_key(next(iter(self._accounts.values())).peek()) == key
        ):
            batch.append(self.pop())
        return batch


class FairSemaphore:
    """Semaphore that limits how many permits each account holds, and serves waiting accounts in turn.

    The semaphore has 2 * `permits` permits. An account gets a permit only while more permits are free than the account
    holds. So if only one account needs permits, it gets at most `permits`. A second account gets at most half of the
    other permits, and so on.

    Args:
        permits: Maximum permits that one account holds at once, 1 or more.
    """

    def __init__(self, permits: int) -> None:
        self._free = TOTAL_TO_ACCOUNT_LIMIT_RATIO * permits
        self._held: Counter[int] = Counter()
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()

    @asynccontextmanager
    async def acquire(self, caller: Caller) -> AsyncIterator[None]:
        """Wait until the account of `caller` gets a permit, and keep the permit during the `with` block."""
        await self._acquire(caller)
        try:
            yield
        finally:
            self._release(caller.account_id)

    async def _acquire(self, caller: Caller) -> None:
        permit: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(caller, permit)
        self._give()
        if permit.done():
            return
        try:
            await permit
        except asyncio.CancelledError:
            if permit.done() and not permit.cancelled():  # got the permit at the moment of the cancellation
                self._release(caller.account_id)
            raise

    def _release(self, account_id: int) -> None:
        self._free += 1
        self._held[account_id] -= 1
        if not self._held[account_id]:
            del self._held[account_id]
        self._give()

    def _give(self) -> None:
        """Give free permits to waiting accounts in turn.

        An account gets a permit only if more permits are free than the account holds.
        """
        while (account_id := self._next_account()) is not None:
            permit = self._waiting.pop(account_id)
            if not permit.done():  # a cancelled waiter is skipped
                self._free -= 1
                self._held[account_id] += 1
                permit.set_result(None)

    def _next_account(self) -> int | None:
        return next((account for account in self._waiting.accounts if self._held[account] < self._free), None)
