"""The bytes of ``buffer.memory`` that are free, with first-come, first-served waiters.

Java: ``BufferPool``. Unlike Java's, it pools no memory: a batch is charged by the capacity of its
buffer and gives the charge back with its outcome.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Claim:
    """A request for bytes that waits until they are free."""

    __slots__ = ("granted", "nbytes")

    def __init__(self, nbytes: int, granted: Callable[[], None]) -> None:
        self.nbytes = nbytes
        self.granted = granted


class BufferPool:
    """Counts bytes. The sum of all charges exceeds ``total`` only by :meth:`force`."""

    __slots__ = ("_spendable", "available", "total", "waiters")

    def __init__(self, total: int) -> None:
        self.total = total
        self.available = total
        self._spendable = 0
        self.waiters: deque[Claim] = deque()
        """The claims that wait, first come first."""

    def __repr__(self) -> str:
        used = self.total - self.available
        return f"<BufferPool used={used} total={self.total} waiting={len(self.waiters)}>"

    @property
    def waiting(self) -> int:
        """How many callers wait for bytes (Java metric ``waiting-threads``)."""
        return len(self.waiters)

    @property
    def room(self) -> int:
        """The most bytes that :meth:`try_take` would charge now."""
        return min(self._spendable, self.available) if self.waiters else self.available

    def try_take(self, nbytes: int) -> bool:
        """Charge ``nbytes`` and return True if they are free. While claims wait, only bytes within
        :meth:`spend` are free."""
        if nbytes > self.available and nbytes > 0:
            return False
        if self.waiters and nbytes > self._spendable:
            return False
        self.available -= nbytes
        if self._spendable:
            self._spendable = max(0, self._spendable - nbytes)
        return True

    def force(self, nbytes: int) -> None:
        """Charge ``nbytes`` even if they are not free, for records that are in memory already."""
        self.available -= nbytes

    def ask(self, nbytes: int, granted: Callable[[], None]) -> Claim | None:
        """Charge ``nbytes`` now (None), or call ``granted()`` once they are charged."""
        if self.try_take(nbytes):
            return None
        claim = Claim(nbytes, granted)
        self.waiters.append(claim)
        return claim

    def withdraw(self, claim: Claim) -> None:
        """Withdraw a claim that was not granted. The next one may need fewer bytes."""
        self.waiters.remove(claim)
        self.admit()

    def spend(self, nbytes: int) -> Spending:
        """Hand a charge of ``nbytes`` over to code that calls :meth:`try_take` or :meth:`force`::

            with buffer_pool.spend(nbytes):
                ...try_take(...)

        The charge is free inside the block, for this code only: do not await, and do not call
        :meth:`give_back` or :meth:`admit` inside. Bytes left over go to the waiting claims.
        """
        return Spending(self, nbytes)

    def give_back(self, nbytes: int) -> None:
        """Return a charge, and grant as many claims as now fit, in their order."""
        self.available += nbytes
        if self.waiters:
            self.admit()

    def admit(self) -> None:
        """Grant as many claims as fit, in their order."""
        # Only the first claim is looked at: a release costs O(1) plus O(1) for each granted claim,
        # with thousands of waiting callers, too.
        while self.waiters and self.waiters[0].nbytes <= self.available:
            claim = self.waiters.popleft()
            self.available -= claim.nbytes
            claim.granted()


class Spending:
    """See :meth:`BufferPool.spend`."""

    __slots__ = ("_buffer_pool", "_nbytes")

    def __init__(self, buffer_pool: BufferPool, nbytes: int) -> None:
        self._buffer_pool = buffer_pool
        self._nbytes = nbytes

    def __enter__(self) -> None:
        self._buffer_pool.available += self._nbytes
        self._buffer_pool._spendable = self._nbytes

    def __exit__(self, *exc: object) -> None:
        self._buffer_pool._spendable = 0
        self._buffer_pool.admit()
