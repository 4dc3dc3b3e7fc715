"""What a consumer subscribes to, and who is told of its rebalances."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING

from kafkaclient.errors import ConfigError
from kafkaclient.topic_names import check_topic_name, several

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping
    from uuid import UUID

    from kafkaclient.types import TopicListing, TopicPartition


in_listener: ContextVar[bool] = ContextVar("in_listener", default=False)
"""Whether a rebalance listener is called now."""


def check_topics_are_named(
    client: object, first: object, others: tuple[object, ...], options: Mapping[str, object]
) -> None:
    """Raises TypeError if topics were given by position, as other clients take them. ``first`` is
    the argument for the bootstrap servers, ``others`` are those that follow."""
    topics = list(others)
    if len(topics) == 1 and isinstance(topics[0], Iterable) and not isinstance(topics[0], str):
        topics = list(topics[0])
    if isinstance(first, str) and ":" not in first and "bootstrap_servers" in options:
        topics.insert(0, first)
    if topics:
        raise TypeError(
            f"{type(client).__name__} takes topics by name: give topics={topics!r}, or call "
            f"subscribe({topics!r}). Only the bootstrap servers are given without a name"
        )


class RebalanceListener:
    """Base class for what an application does when its partitions change. The methods may be
    ordinary ones or ``async``. While they run, the member stays in its group, for at most
    ``max.poll.interval.ms``. What they raise ends the consumer's loop, and each later one."""

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """Partitions were added. Nothing is fetched before this method has returned; it may seek
        them. In a classic group the set is empty if the group has no partition for this member."""

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """Partitions are given up. What was in hand is finished. What is finished is committed when
        this method has returned; it may commit offsets of its own."""

    def on_lost(self, partitions: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """Other members may have these partitions already: nothing can be committed. By default
        the same as ``on_revoked``."""
        return self.on_revoked(partitions)


class Subscription:
    """Names of topics, or a pattern that matches whole names. With the protocol of KIP-848 the
    coordinator matches the pattern (RE2), otherwise this client does (Python's ``re``)."""

    def __init__(self, topics: Iterable[str] = (), pattern: str | None = None) -> None:
        self.topics = frozenset(several(topics, "topics"))
        """The names, also those that match the pattern, as far as this client matches it."""
        self.pattern = pattern
        self._first: Mapping[str, TopicListing] | None = None
        """The topics when the consumer joined with this subscription."""
        if bool(self.topics) == (pattern is not None):
            raise ConfigError("subscribe to topics, or to a pattern")
        for topic in self.topics:
            check_topic_name(topic)

    @property
    def names(self) -> frozenset[str] | None:
        """The topics to look for in the metadata; None: all of them."""
        return self.topics if self.pattern is None else None

    def learn(self, found: Mapping[str, TopicListing], *, match: bool) -> bool:
        """The topics that exist. Whether other topics match the pattern now, if this client is to
        ``match`` it."""
        if self._first is None:
            self._first = found
        if self.pattern is None or not match:
            return False
        try:
            matches = re.compile(self.pattern).fullmatch
        except re.error as error:
            raise ConfigError(
                f"pattern={self.pattern!r} is not a regular expression: {error}"
            ) from error
        before, self.topics = self.topics, frozenset(name for name in found if matches(name))
        return before != self.topics

    def is_new(self, partition: TopicPartition) -> bool:
        """Whether there was no such partition when the consumer joined."""
        if self._first is None:
            return False
        known = self._first.get(partition.topic)
        return known is None or partition.partition >= len(known.partitions)

    def first_id(self, topic: str) -> UUID | None:
        """The topic's id when the consumer joined. A topic with another id was created later."""
        known = (self._first or {}).get(topic)
        return None if known is None else known.topic_id


def ends_in_silence(error: BaseException) -> bool:
    """Whether a loop that raised this error of application code would only end, or be taken for
    cancelled."""
    if isinstance(error, asyncio.CancelledError):  # of a task that the listener has awaited
        task = asyncio.current_task()
        return task is not None and not task.cancelling()
    if isinstance(error, Exception):
        return isinstance(error, StopIteration | StopAsyncIteration)
    return not isinstance(error, KeyboardInterrupt | SystemExit)
