"""When a member may commit offsets, and as whom."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from kafkaclient.broker_errors import ErrorCode, broker_error
from kafkaclient.errors import KafkaTimeoutError
from kafkaclient.types import ConsumerGroupMetadata

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)
session_clock = time.monotonic if _BOOT_CLOCK is None else partial(time.clock_gettime, _BOOT_CLOCK)
"""Goes on while the process is stopped, and on Linux while the machine is suspended."""


class CommitGate:
    """Lets offset commits through. It is closed while a generation begins, because the coordinator
    refuses all commits until all members have assignments, and commits of an older generation from
    then on. The member opens and closes it.

    The coordinator checks only offset commits. Other writes, such as changelog records, are made
    only while the member is surely in its group: :meth:`while_in_session`. ``timeout_s``: how long
    the coordinator keeps a member after an answer (the shorter one of session.timeout.ms and
    rebalance.timeout.ms).
    """

    def __init__(
        self,
        group_id: str,
        instance_id: str | None,
        timeout_s: float = math.inf,
        clock: Callable[[], float] = session_clock,
    ) -> None:
        self.group = ConsumerGroupMetadata(group_id, group_instance_id=instance_id)
        """Who commits: the member in its last generation. A member that was evicted stays here, so
        that the coordinator refuses what it still tries to commit."""
        self._opened = asyncio.Event()
        self._nobody_inside = asyncio.Event()
        self._nobody_inside.set()
        self._inside = 0
        self.times_lost = 0
        """How often the member has lost its partitions."""
        self._timeout_s = timeout_s
        self._clock = clock
        self._session_ends = -math.inf
        self._changed = asyncio.Event()
        """The coordinator has answered, or the partitions are lost."""
        self._writing: set[asyncio.Timeout] = set()
        """End what is written when the member may be out of its group."""

    @property
    def is_open(self) -> bool:
        return self._opened.is_set()

    async def opened(self) -> None:
        """Wait until the gate is open."""
        while not self._opened.is_set():
            await self._opened.wait()

    @asynccontextmanager
    async def commit(self, times_lost: int | None = None) -> AsyncIterator[ConsumerGroupMetadata]:
        """Enter to commit, as soon as the gate is open. Raises BrokerError (UNKNOWN_MEMBER_ID) if
        the member has lost its partitions since this call, or since :attr:`times_lost` had the
        value that is given."""
        if times_lost is None:
            times_lost = self.times_lost
        await self.opened()
        self._check(times_lost)
        self._inside += 1
        self._nobody_inside.clear()
        try:
            yield self.group
        finally:
            self._inside -= 1
            if not self._inside:
                self._nobody_inside.set()

    def shut(self) -> None:
        """Let nobody in."""
        self._opened.clear()

    async def shut_and_clear(self, timeout_s: float) -> None:
        """Let nobody in, and wait for those inside for up to ``timeout_s`` seconds."""
        self.shut()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._nobody_inside.wait()

    def begin_generation(self, generation_id: int, member_id: str) -> None:
        """The member has joined a generation."""
        self.group = self.group._replace(generation_id=generation_id, member_id=member_id)

    def open(self) -> None:
        """Let commits in, unless this was never a member: a commit without generation would count
        as one from outside the group."""
        if self.group.generation_id >= 0:
            self._opened.set()

    def open_without_member(self) -> None:
        """Let commits in from outside the group: its coordinator accepts them while the group has
        no members."""
        self.group = self.group._replace(generation_id=-1, member_id="")
        self._opened.set()

    def refuse_waiting(self) -> None:
        """The partitions are lost: refuse the commits that wait."""
        self.times_lost += 1
        self._changed.set()
        self._set_session_end(-math.inf)

    def _check(self, times_lost: int) -> None:
        if times_lost != self.times_lost:
            raise broker_error(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"committing offsets of group {self.group.group_id!r}",
                "this member has lost its partitions before the commit",
            )

    # --- whether the member is still in its group -----------------------------------------------

    @property
    def _left_s(self) -> float:
        return self._session_ends - self._clock()

    @property
    def is_in_session(self) -> bool:
        """Whether the member is surely in its group: the last answered request was sent less than
        ``timeout_s`` ago. Compares with the clock, so it is also correct after the process was
        stopped."""
        return self._clock() < self._session_ends

    def answered(self, asked_at: float) -> None:
        """The coordinator confirmed the member's generation. ``asked_at`` is when the request was
        sent (the gate's clock), because the answer may be read much later."""
        self._set_session_end(max(self._session_ends, asked_at + self._timeout_s))
        self._changed.set()

    def _set_session_end(self, at: float) -> None:
        self._session_ends = at
        for writing in self._writing:
            if not writing.expired():
                writing.reschedule(asyncio.get_running_loop().time() + self._left_s)

    async def wait_in_session(self, times_lost: int | None = None) -> None:
        """Wait until the member is surely in its group. Raises as :meth:`commit`."""
        if times_lost is None:
            times_lost = self.times_lost
        while times_lost == self.times_lost and not self.is_in_session:
            self._changed.clear()
            await self._changed.wait()
        self._check(times_lost)

    @asynccontextmanager
    async def while_in_session(self, times_lost: int) -> AsyncIterator[None]:
        """Enter to write, as :meth:`wait_in_session`. The body of the ``async with`` is cancelled
        and ends with KafkaTimeoutError when the coordinator has not answered for a session, and
        with BrokerError when the member has lost its partitions."""
        await self.wait_in_session(times_lost)
        writing = asyncio.timeout(self._left_s)
        try:
            async with writing:
                self._writing.add(writing)
                yield
        except TimeoutError as error:
            if not writing.expired():
                raise
            self._check(times_lost)
            self._session_ends = -math.inf  # timers may be early
            raise KafkaTimeoutError(
                f"the coordinator of group {self.group.group_id!r} has not answered for "
                f"{self._timeout_s:g} s, so the group may have given this member's partitions to "
                "others: the commit is given up. A part of it may be written"
            ) from error
        finally:
            self._writing.discard(writing)
