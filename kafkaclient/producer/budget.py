"""The byte budget of the record buffer (``buffer.memory``), with first-come, first-served waiters.

Java: ``BufferPool``. Unlike there, no memory is pooled: batches are charged by the capacity of
their buffer and give the charge back when they are done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BufferBudget", "Spending"]


class BufferBudget:
    """Counts bytes; never lets the sum of all charges pass ``total``, except by :meth:`force`."""

    __slots__ = ("_spendable", "available", "total", "waiters")

    def __init__(self, total: int) -> None:
        self.total = total
        self.available = total
        self._spendable = 0
        self.waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        """Who waits for how many bytes, first come first."""

    def __repr__(self) -> str:
        used = self.total - self.available
        return f"<BufferBudget used={used} total={self.total} waiting={len(self.waiters)}>"

    @property
    def waiting(self) -> int:
        """How many callers wait for bytes (Java metric ``waiting-threads``)."""
        return len(self.waiters)

    @property
    def room(self) -> int:
        """How many bytes :meth:`try_take` would charge now, at the most."""
        return min(self._spendable, self.available) if self.waiters else self.available

    def try_take(self, nbytes: int) -> bool:
        """Charge ``nbytes`` if they are free, and nobody waits for bytes already or the caller has
        waited for them (:meth:`spend`)."""
        if nbytes > self.available or (self.waiters and nbytes > self._spendable):
            return False
        self.available -= nbytes
        self._spendable = max(0, self._spendable - nbytes)
        return True

    def force(self, nbytes: int) -> None:
        """Charge ``nbytes`` in any case, for what is in memory already."""
        self.available -= nbytes

    async def take(self, nbytes: int, on_first: Callable[[], None]) -> None:
        """Charge ``nbytes`` as soon as it is this caller's turn; cancelling gives the turn up.

        ``on_first`` is called when the caller is the first to wait: it makes memory come free.
        """
        if self.try_take(nbytes):
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (nbytes, granted)
        self.waiters.append(entry)
        if len(self.waiters) == 1:
            on_first()
        try:
            await granted
        except BaseException:
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self.give_back(nbytes)  # granted in the same turn in which we were cancelled
            else:
                self._forget(entry)
            raise

    def spend(self, nbytes: int) -> Spending:
        """Use a charge from :meth:`take` for something that charges by itself, at once::

            with budget.spend(nbytes):
                ...force(...)

        Nobody else is admitted in between; what was not used is given back at the end.
        """
        return Spending(self, nbytes)

    def give_back(self, nbytes: int) -> None:
        """Return a charge, and admit as many waiters as now fit, in their order."""
        self.available += nbytes
        if self.waiters:
            self.admit()

    def fail_waiters(self, error: BaseException) -> None:
        """End all waits with ``error`` (the producer is stopping)."""
        while self.waiters:
            _, granted = self.waiters.popleft()
            if not granted.done():
                granted.set_exception(error)

    def admit(self) -> None:
        """Let in as many waiters as fit, in their order."""
        # One pass however many bytes came free: a waiter is looked at once per admission, never
        # once per release, so that thousands of waiting senders cost O(1) each.
        while self.waiters:
            nbytes, granted = self.waiters[0]
            if granted.done():
                self.waiters.popleft()
                continue
            if nbytes > self.available:
                return
            self.waiters.popleft()
            self.available -= nbytes
            granted.set_result(None)

    def _forget(self, entry: tuple[int, asyncio.Future[None]]) -> None:
        try:
            self.waiters.remove(entry)
        except ValueError:
            return
        self.admit()  # the next in line may need less than the one that left


class Spending:
    """See :meth:`BufferBudget.spend`."""

    __slots__ = ("_budget", "_nbytes")

    def __init__(self, budget: BufferBudget, nbytes: int) -> None:
        self._budget = budget
        self._nbytes = nbytes

    def __enter__(self) -> None:
        self._budget.available += self._nbytes
        self._budget._spendable = self._nbytes

    def __exit__(self, *exc: object) -> None:
        self._budget._spendable = 0
        self._budget.admit()
