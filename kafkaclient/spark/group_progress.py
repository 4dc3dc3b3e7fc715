"""Commits how far a streaming read is to a consumer group, for tools that show the group's lag."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.admin import Admin
    from kafkaclient.types import TopicPartition

_log = logging.getLogger(__name__)

_TIMEOUT_S = 10.0


class GroupProgress:
    """Commits in the background, one commit at a time: the newest offsets follow a slow commit.

    The offsets are only for display: a query continues from its checkpoint. A failed commit is
    therefore a warning, and the next one is tried again.
    """

    def __init__(self, admin: Admin, group: str) -> None:
        self._admin = admin
        self._group = group
        self._wanted: Mapping[TopicPartition, int] = {}
        self._committed: Mapping[TopicPartition, int] = {}
        self._running: asyncio.Task[None] | None = None
        self._warned = ""

    def report(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets, unless the last commit was the same. Must be called in the event
        loop."""
        self._wanted = offsets
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._commit(), name="kafkaclient-group-progress")

    async def finish(self) -> None:
        """Wait for the last commit, which ends within 10 s."""
        if self._running is not None:
            await self._running

    async def _commit(self) -> None:
        while self._wanted != self._committed:
            offsets = self._wanted
            try:
                await self._admin.alter_offsets(self._group, offsets, timeout_s=_TIMEOUT_S)
            except KafkaError as error:
                self._warn(error)
                if self._wanted is offsets:
                    return
            else:
                self._committed, self._warned = offsets, ""

    def _warn(self, error: KafkaError) -> None:
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
