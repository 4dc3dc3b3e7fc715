"""Commits how far a streaming read is to a consumer group, for tools that show the group's lag."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from kafkaclient.admin import Admin
from kafkaclient.config.reader import AdminConfig
from kafkaclient.spark.given_options import spellings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.net.dialer import Dialer
    from kafkaclient.types import TopicPartition

_log = logging.getLogger(__name__)

_TIMEOUT_S = 10.0  # of a commit
_PAUSE_S = 10.0  # after a failed commit


def new_admin(options: Mapping[str, str], dialer: Dialer | None) -> Admin:
    """An admin client with a reader's options. It accepts none for fetches."""
    accepted = spellings(AdminConfig)
    shared = {name: value for name, value in options.items() if name in accepted}
    return Admin(shared, dialer=dialer)


class GroupProgress:
    """Commits in the background, one commit at a time: the newest offsets follow a slow commit.

    The offsets are only for display: a query continues from its checkpoint. A failed commit is
    therefore a warning. The next one is tried 10 s later, or by :meth:`finish`.
    """

    def __init__(
        self, admin: Admin, group: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._admin = admin
        self._group = group
        self._clock = clock
        self._paused_until = float("-inf")
        self._wanted: Mapping[TopicPartition, int] = {}
        self._committed: Mapping[TopicPartition, int] = {}
        self._running: asyncio.Task[None] | None = None
        self._warned = ""

    async def start(self) -> None:
        await self._admin.start()

    async def close(self) -> None:
        """Also after a failed start."""
        try:
            await self.finish()
        finally:
            await self._admin.close()

    def report(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets, unless the last commit was the same. Must be called in the event
        loop."""
        self._wanted = offsets
        if self._clock() >= self._paused_until:
            self._run()

    async def finish(self) -> None:
        """Commit what is not committed yet, and wait for it: at most 10 s for a commit."""
        await self._run()

    def _run(self) -> asyncio.Task[None]:
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._commit(), name="kafkaclient-group-progress")
        return self._running

    async def _commit(self) -> None:
        while (offsets := self._wanted) != self._committed:
            try:
                await self._admin.alter_offsets(self._group, offsets, timeout_s=_TIMEOUT_S)
            except Exception as error:  # noqa: BLE001 - the query must go on
                self._warn(error)
                self._paused_until = self._clock() + _PAUSE_S
                return
            self._committed, self._warned = offsets, ""

    def _warn(self, error: Exception) -> None:
        """Once for failures of a kind in succession."""
        if type(error).__name__ != self._warned:
            self._warned = type(error).__name__
            _log.warning(
                "offsets cannot be committed to group %s (option commitOffsetsToGroup); the query "
                "is not affected, but the group's lag is not up to date: %s. No consumer may be a "
                "member of the group, and the client needs the permission Read of the group",
                self._group,
                error,
            )
