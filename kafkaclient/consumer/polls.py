"""What the callers of ``getone`` and ``getmany`` await: records of chosen partitions."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kafkaclient.consumer.partitions import Partitions
    from kafkaclient.consumer.records import Record
    from kafkaclient.consumer.steps import RowFeed
    from kafkaclient.types import TopicPartition

NO_LIMIT = sys.maxsize


class Polls:
    """Hands out records, to any number of tasks at the same time. One of them waits for the
    brokers, for all."""

    def __init__(
        self, feed: RowFeed, partitions: Partitions, now: Callable[[], float], *, finish: bool
    ) -> None:
        self._feed = feed
        self._partitions = partitions
        self._now = now
        self._finish = finish
        """Whether records are finished when they are handed out, not at the next call."""
        self._is_waiting = False
        self._news = asyncio.Event()

    async def poll(
        self, wanted: Collection[TopicPartition], timeout_s: float | None, most: int
    ) -> dict[TopicPartition, list[Record]] | None:
        """Records of these partitions (empty: of all), at most so many; an empty dictionary after
        ``timeout_s`` (None: no limit), None when the consumer is closed. What was handed out of
        these partitions before is finished. Raises as :meth:`.RowFeed.wait`."""
        until = None if timeout_s is None else self._now() + timeout_s
        self._partitions.finish_polled(wanted)
        self._feed.on_ask()
        left_s: float | None = 0.0
        is_first = True
        while not self._feed.is_over:
            found = self._partitions.poll(wanted, most)
            if found and self._finish:
                self._partitions.finish_polled(wanted)
            if found or not (is_first or left_s is None or left_s > 0):
                return found
            await self._wait(left_s, wanted)
            left_s = None if until is None else until - self._now()
            is_first = False
        return None

    async def _wait(self, timeout_s: float | None, wanted: Collection[TopicPartition]) -> None:
        """Wait for what a broker sends, or until another call that waits for it is done."""
        if self._is_waiting:
            self._feed.go_on(wanted)  # the other call wants other partitions
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
            return
        self._is_waiting = True
        try:
            await self._feed.wait(timeout_s, wanted)
        finally:
            self._is_waiting = False
            news, self._news = self._news, asyncio.Event()
            news.set()
