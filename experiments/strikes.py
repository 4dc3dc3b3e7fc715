"""What campaigns share: faults that happen at their times, and a supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["BaseStrikes", "coordinator_partition"]

FaultT = TypeVar("FaultT")
StruckT = TypeVar("StruckT")


class BaseStrikes(ABC, Generic[FaultT, StruckT]):
    """``await run()`` makes the ``faults`` happen; at its end every broker runs.

    Faults with the same lock wait for each other. ``say`` tells what happens.
    """

    def __init__(
        self, cluster: ClusterHandle, faults: Sequence[FaultT], say: Callable[[str], None]
    ) -> None:
        self.struck: list[StruckT] = []
        self.ended: list[str] = []
        """The last words of processes that ended by themselves."""
        self._cluster = cluster
        self._faults = faults
        self._say = say
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def run(self) -> None:
        """Strike; returns when the last fault is over."""
        begins = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for fault in self._faults:
                tasks.create_task(self._strike(fault, begins))
        await self._cluster.heal()

    @contextlib.asynccontextmanager
    async def supervised(self) -> AsyncIterator[None]:
        """Start processes again that end by themselves, until the block ends."""
        watching = asyncio.create_task(self._supervise())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    @abstractmethod
    async def _supervise(self) -> None:
        """Start again what has ended by itself, without end."""

    @abstractmethod
    async def _strike(self, fault: FaultT, begins: float) -> None:
        """Wait for the fault's time, counted from ``begins`` (of ``time.monotonic``), and make it
        happen."""


def coordinator_partition(name: str, partitions: int) -> int:
    """The partition of ``__consumer_offsets`` or ``__transaction_state`` whose leader coordinates a
    group or a transactional id, in ASCII. Java: ``Utils.abs(name.hashCode) % partitions``."""
    found = 0
    for character in name:
        found = (31 * found + ord(character)) & 0xFFFFFFFF
    value = found - ((found >> 31) << 32)  # as a signed int
    return (abs(value) & 0x7FFFFFFF) % partitions
