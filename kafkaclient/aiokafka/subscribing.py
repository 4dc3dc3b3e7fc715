"""aiokafka's rebalance listeners, patterns and assignors, and consumers without a group."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any

from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import IllegalStateError

from kafkaclient.aiokafka.errors import Translation
from kafkaclient.aiokafka.structs import TopicPartition
from kafkaclient.consumer import RebalanceListener
from kafkaclient.errors import ConfigError, KafkaError
from kafkaclient.topic_names import several, several_partitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    from kafkaclient import Consumer

__all__ = ["SubscriptionMixin", "assignor_names", "check_partitions", "theirs"]

_log = logging.getLogger(__name__)


def theirs(partitions: Iterable[tuple[str, int]]) -> set[TopicPartition]:
    """Partitions as aiokafka's class."""
    return {TopicPartition(*each) for each in partitions}


# --- Rebalance listeners --------------------------------------------------------------------------


class ListenerAdapter(RebalanceListener):
    """Calls an ``aiokafka.abc.ConsumerRebalanceListener`` as aiokafka does: ``revoked`` (with what
    was given up, maybe nothing) before every ``assigned``, not at the end of the consumer. What the
    listener raises is logged."""

    def __init__(self) -> None:
        self.listener: Any = None
        self.is_closing = False
        self.is_assigning = False
        """Whether ``on_partitions_assigned`` is called now."""
        self.is_revoking = False
        """Whether ``on_partitions_revoked`` is called now."""
        self._was_revoked = False

    async def on_assigned(self, partitions: Set[tuple[str, int]]) -> None:
        if not self._was_revoked:
            await self._revoke(frozenset())
        self._was_revoked = False
        self.is_assigning = True
        try:
            await self._call("on_partitions_assigned", partitions)
        finally:
            self.is_assigning = False

    async def on_revoked(self, partitions: Set[tuple[str, int]]) -> None:
        if not self.is_closing and self.listener is not None:
            self._was_revoked = True
            await self._revoke(partitions)

    async def _revoke(self, partitions: Set[tuple[str, int]]) -> None:
        self.is_revoking = True
        try:
            await self._call("on_partitions_revoked", partitions)
        finally:
            self.is_revoking = False

    async def _call(self, name: str, partitions: Set[tuple[str, int]]) -> None:
        if self.listener is None:
            return
        try:
            result = getattr(self.listener, name)(theirs(partitions))
            if asyncio.iscoroutine(result):
                await result
        except Exception:  # noqa: BLE001 - it is the application's
            _log.exception("the rebalance listener %s failed in %s", self.listener, name)


def check_partitions(partitions: Iterable[object], text: str) -> None:
    """Raises TypeError unless all are aiokafka's partitions."""
    if not all(isinstance(each, TopicPartition) for each in partitions):
        raise TypeError(text)


# --- Patterns and assignors -----------------------------------------------------------------------


def prefix_pattern(pattern: str) -> str:
    """A pattern that matches the whole of each name that begins with ``pattern``, as aiokafka's
    patterns do. Raises ValueError if it is not a regular expression."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a valid pattern: {error}") from error
    flags, _, rest = re.match(r"((\(\?[aiLmsux]+\))?)(.*)", compiled.pattern, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{flags}(?:{rest}).*"


def assignor_names(assignors: Iterable[Any]) -> list[str]:
    """aiokafka's assignors, also instances, by their names. Names are passed on."""
    names = [getattr(each, "name", each) for each in assignors]
    for name, given in zip(names, assignors, strict=True):
        if not isinstance(name, str):
            raise ConfigError(f"partition_assignment_strategy: {given!r} is not an assignor")
    return names


# --- Without a group ------------------------------------------------------------------------------


class TopicFollower:
    """Assigns all partitions of topics to a consumer without a group, also new ones. These begin at
    their first record: nothing is lost that is written before they are found."""

    def __init__(
        self, consumer: Consumer, topics: Set[str], pattern: str | None, interval_s: float
    ) -> None:
        self.topics = topics
        """The topics, also those that match the pattern."""
        self._consumer = consumer
        self._matches = None if pattern is None else re.compile(pattern).fullmatch
        self._interval_s = interval_s
        self._known: set[Any] | None = None
        self._task: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Assign what exists now."""
        consumer = self._consumer
        listed = await consumer.list_topics(None if self._matches else self.topics)
        if self._matches is not None:
            self.topics = {name for name in listed if self._matches(name)}
        found = {
            tp for name, each in listed.items() if name in self.topics for tp in each.partitions
        }
        if found == self._known:
            return
        new, self._known = found - (found if self._known is None else self._known), found
        consumer.assign(found)
        if consumer.config.auto_offset_reset == "latest":
            for where in new:
                consumer.seek(where, 0)

    def start(self) -> None:
        """Look again and again, until :meth:`stop`."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="kafkaclient-topics")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except KafkaError as error:
                _log.warning("the topics could not be looked for; it is tried again: %s", error)
            await asyncio.sleep(self._interval_s)


# --- The consumer's methods -----------------------------------------------------------------------


class SubscriptionMixin:
    """What is consumed, with aiokafka's methods and errors."""

    _consumer: Consumer
    _group_id: str | None
    _is_started: bool

    def _begin_subscription(self) -> None:
        self._adapter = ListenerAdapter()
        self._topics: frozenset[str] = frozenset()
        self._pattern: str | None = None
        self._by_hand: set[TopicPartition] | None = None
        self._follower: TopicFollower | None = None

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Consume topics (a list, tuple or set), or the topics whose names begin with a match of
        the pattern, in place of former ones. Without ``group_id`` all their partitions. After
        ``stop`` it only changes what :meth:`subscription` returns.

        Raises TypeError or ValueError for what is neither, IllegalStateError after :meth:`assign`,
        or after a subscription of the other kind.
        """
        if not (topics or pattern):
            raise TypeError("You should provide either `topics` or `pattern`")
        if topics and pattern:
            raise TypeError("You can't provide both `topics` and `pattern`")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError("listener should be an instance of ConsumerRebalanceListener")
        topics = several(topics, "topics")
        wanted = None if pattern is None else prefix_pattern(pattern)
        self._check_kind(
            self._by_hand is not None or bool(self._topics if pattern else self._pattern)
        )
        self._topics, self._pattern = frozenset(topics), wanted
        self._adapter.listener = listener
        if self._is_started:
            with Translation():
                self._resubscribe()

    def _check_kind(self, is_other: bool) -> None:
        if is_other:
            raise IllegalStateError(
                "Subscription to topics, partitions and pattern are mutually exclusive"
            )

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Consume these partitions, in place of former ones, without being a member of a group.
        After ``stop`` it only changes what :meth:`assignment` returns. Raises IllegalStateError
        after :meth:`subscribe`."""
        given = several_partitions(partitions)
        self._check_kind(bool(self._topics or self._pattern))
        self._by_hand = theirs(given)
        if self._is_started:
            with Translation():
                self._consumer.assign(self._by_hand)

    def unsubscribe(self) -> None:
        """Give up all topics and partitions. The group is left in the background. It can
        be called after ``stop``: kstreams does."""
        self._topics, self._pattern, self._by_hand = frozenset(), None, None
        self._adapter.listener = None
        if self._follower is not None:
            self._follower.stop()
            self._follower = None
        if self._is_started:
            with Translation():
                self._consumer.unsubscribe()

    def _resubscribe(self) -> None:
        if self._follower is not None:
            self._follower.stop()
            self._follower = None
            self._consumer.unsubscribe()
        if self._group_id is not None or not self._consumer.is_running:
            self._consumer.subscribe(self._topics, pattern=self._pattern)
            return
        interval_s = self._consumer.config.look_every_s
        self._follower = TopicFollower(self._consumer, self._topics, self._pattern, interval_s)
        self._follower.start()

    def _apply(self) -> None:
        """At the start: consume what was subscribed to, or assigned, before."""
        if self._by_hand is not None:
            self._consumer.assign(self._by_hand)
        elif self._is_subscribed:
            self._resubscribe()

    def subscription(self) -> frozenset[str]:
        """The topics that are consumed; with a pattern those that match it."""
        if self._by_hand is not None:
            return frozenset(where.topic for where in self._by_hand)
        if self._follower is not None:
            return frozenset(self._follower.topics)
        return self._consumer.subscription if self._pattern else self._topics

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer has now, had when it was stopped, or was assigned by
        hand since."""
        if not self._is_started:
            return set(self._by_hand or ())
        return theirs(self._consumer.assignment) if self._is_assigned else set()

    @property
    def _is_subscribed(self) -> bool:
        return bool(self._topics or self._pattern or self._by_hand is not None)

    @property
    def _is_assigned(self) -> bool:
        return self._consumer.has_assignment or self._adapter.is_assigning

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these partitions until :meth:`resume`."""
        check_partitions(partitions, "partitions must be TopicPartition namedtuples")
        with Translation():
            self._consumer.pause(*partitions)

    def paused(self) -> set[TopicPartition]:
        """The assigned partitions that are paused."""
        with Translation():
            return theirs(self._consumer.paused)

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo :meth:`pause`."""
        check_partitions(partitions, "partitions must be TopicPartition namedtuples")
        with Translation():
            self._consumer.resume(*partitions)
