"""Waits for the metadata of topics whose records are held, with a task for each topic."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from kafkaclient.errors import (
    DeliveryTimeoutError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
)
from kafkaclient.producer.time_constants import NEVER
from kafkaclient.time_limit import time_limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.cluster.view import TopicView
    from kafkaclient.config.kinds import Limit
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer
    from kafkaclient.producer.topic_waiters import HeldRecord


class HeldWatches:
    """The tasks. Each fetches its topic's metadata until every held record of the topic is appended
    or has failed, and fails the records that have waited too long.

    ``oldest_held(topic)`` gives the oldest record that is held. ``take_up(topic, view)`` is called
    with new metadata. ``fail(topic, held, error)`` ends a held record. ``metadata_limit`` is for
    the wait for metadata, ``delivery_limit`` for all of a record's wait. Times in seconds.
    """

    def __init__(
        self,
        metadata: Metadata,
        *,
        metadata_limit: Limit,
        delivery_limit: Limit,
        clock: Callable[[], float],
        oldest_held: Callable[[TopicBuffer], HeldRecord | None],
        take_up: Callable[[TopicBuffer, TopicView], None],
        fail: Callable[[TopicBuffer, HeldRecord, KafkaError], None],
    ) -> None:
        self.held_changed = asyncio.Event()
        """Set when a held record was appended or has failed."""
        self._metadata = metadata
        self._metadata_limit = metadata_limit
        self._delivery_limit = delivery_limit
        self._clock = clock
        self._oldest_held = oldest_held
        self._take_up = take_up
        self._fail = fail
        self._tasks: dict[TopicBuffer, asyncio.Task[None]] = {}

    def start(self, topic: TopicBuffer) -> None:
        """Watch the topic, unless it is being watched."""
        if topic in self._tasks:
            return
        task = asyncio.get_running_loop().create_task(
            self._watch(topic), name=f"kafkaclient-metadata-{topic.name}"
        )
        self._tasks[topic] = task
        task.add_done_callback(partial(self._ended, topic))

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _watch(self, topic: TopicBuffer) -> None:
        while (oldest := self._oldest_held(topic)) is not None:
            if topic.view is not None:
                await self._wait_turn(topic, oldest)
                continue
            limit = self._metadata_limit
            remaining = oldest.created + limit.seconds - self._clock()
            try:
                view = await self._metadata.wait_topic(topic.name, remaining, limit=limit)
                self._take_up(topic, view)
            except MetadataTimeoutError as error:
                self._fail_until(topic, oldest.created, error)
            except KafkaError as error:
                self._fail_until(topic, NEVER, error)

    async def _wait_turn(self, topic: TopicBuffer, oldest: HeldRecord) -> None:
        """Wait until a held record is appended or has failed. ``oldest``, which waits for its
        serializer or behind other waiters, fails after delivery.timeout.ms."""
        self.held_changed.clear()
        try:
            async with time_limit(oldest.created + self._delivery_limit.seconds - self._clock()):
                await self.held_changed.wait()
        except TimeoutError:
            if self._oldest_held(topic) is not oldest:
                return  # appended, or failed, at the same time
            error: KafkaError = DeliveryTimeoutError(
                f"the record for topic {topic.name!r} waited behind earlier records of the topic "
                f"for {self._delivery_limit}; it was not sent"
            )
            if oldest.serializer_task is not None:
                error = oldest.serializer_task.timeout_error()
            self._fail(topic, oldest, error)

    def _fail_until(self, topic: TopicBuffer, until: float, error: KafkaError) -> None:
        """Fail the topic's held records that were sent at the time ``until`` or before."""
        while (held := self._oldest_held(topic)) is not None and held.created <= until:
            self._fail(topic, held, error)

    def _ended(self, topic: TopicBuffer, task: asyncio.Task[None]) -> None:
        """No record stays held without a task."""
        del self._tasks[topic]
        if not task.cancelled() and task.exception() is None:
            if self._oldest_held(topic) is not None:  # it came after the last check of the task
                self.start(topic)
            return
        cause = "was cancelled" if task.cancelled() else f"failed: {task.exception()!r}"
        error = ProducerClosedError(
            f"the record was not sent: the task that waits for the metadata of topic "
            f"{topic.name!r} {cause}"
        )
        self._fail_until(topic, NEVER, error)
