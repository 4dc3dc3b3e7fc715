"""When a member may commit offsets, and as whom."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from kafkaclient.broker_errors import broker_error
from kafkaclient.types import ConsumerGroupMetadata

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_UNKNOWN_MEMBER_ID = 25


class CommitGate:
    """Closed while the group begins a generation: the coordinator refuses commits until all members
    have their assignments, and commits of the generation before. The member opens and closes it.
    """

    def __init__(self, group_id: str, instance_id: str | None) -> None:
        self.group = ConsumerGroupMetadata(group_id, group_instance_id=instance_id)
        """Who commits: the member in its last generation. A member that was evicted stays here, so
        that the coordinator refuses what it still tries to commit."""
        self._opened = asyncio.Event()
        self._nobody_inside = asyncio.Event()
        self._nobody_inside.set()
        self._inside = 0
        self.losses = 0
        """How often the member has lost its partitions."""

    @property
    def is_open(self) -> bool:
        return self._opened.is_set()

    async def opened(self) -> None:
        """Wait until the gate is open."""
        while not self._opened.is_set():
            await self._opened.wait()

    @asynccontextmanager
    async def commit(self, losses: int | None = None) -> AsyncIterator[ConsumerGroupMetadata]:
        """Enter to commit, as soon as the gate is open. Raises BrokerError (UNKNOWN_MEMBER_ID) if
        the member has lost its partitions since :attr:`losses` was ``losses``, or this call."""
        if losses is None:
            losses = self.losses
        await self.opened()
        if losses != self.losses:
            raise broker_error(
                _UNKNOWN_MEMBER_ID,
                f"committing offsets of group {self.group.group_id!r}",
                "this member has lost its partitions before the commit",
            )
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

    def lose(self) -> None:
        """The partitions are lost: refuse the commits that wait."""
        self.losses += 1
