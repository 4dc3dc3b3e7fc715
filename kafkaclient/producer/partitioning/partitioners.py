"""Partitioners that choose a partition for each record: the protocol, and Java's before KIP-794.

Pure: no I/O, no clock; random numbers are passed in. ``CustomPartitioner`` (custom_strategy.py)
calls a partitioner once for each record without an explicit partition, and checks the answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from kafkaclient.wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    from kafkaclient.cluster.view import ClusterView, TopicView
    from kafkaclient.producer.partitioning.kip794 import Random31
    from kafkaclient.producer.partitioning.load_view import LoadView


class Partitioner(Protocol):
    """An object for ``partitioner=`` that chooses a partition for each record (as in Java).

    :meth:`partition` is called once for every record that has no explicit partition, with a key or
    without, on the event loop, before the record is appended to a batch. It should be quick: every
    record waits for it. An exception, or an answer that is not a partition of the topic, fails
    that record alone with PartitionerError.

    A partitioner may also have a method ``on_new_batch(topic: str, cluster: ClusterView, previous:
    int) -> None`` (KIP-480). It is called when the answer ``previous`` would open a new batch. Then
    :meth:`partition` is called a second time for the same record, and the second answer counts.
    """

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        cluster: ClusterView,
        load: LoadView,
        /,
    ) -> int:
        """The number of a partition, from 0 to ``cluster.topics[topic].partition_count - 1``.

        ``key`` and ``value`` are serialized. ``cluster.topics[topic].available`` are the partitions
        that have a leader. ``load`` shows what is queued and in flight now.
        """


class StickyPartitioner:
    """KIP-480: one random partition until a new batch is opened, then another one.

    Records with a key go by its hash unless ``ignore_keys`` (Java: ``DefaultPartitioner``, and
    ``UniformStickyPartitioner``, with ``StickyPartitionCache``). Unlike Java's, it leaves a
    partition that has lost its leader, or was deleted, at the next record.
    """

    __slots__ = ("_at", "_ignore_keys", "_random")

    def __init__(self, random31: Random31, *, ignore_keys: bool = False) -> None:
        self._random = random31
        self._ignore_keys = ignore_keys
        self._at: dict[str, int] = {}

    def partition(
        self, topic: str, key: bytes | None, _value: object, cluster: ClusterView, _load: object
    ) -> int:
        view = cluster.topics[topic]
        if key is not None and not self._ignore_keys:
            return partition_for_key(key, view.partition_count)
        at = self._at.get(topic)
        if at is None or not _usable(view, at):
            at = self._at[topic] = self._other_than(at, view)
        return at

    def on_new_batch(self, topic: str, cluster: ClusterView, previous: int) -> None:
        """Draw another partition, unless ``previous`` has been left already."""
        if self._at.get(topic, previous) == previous:
            self._at[topic] = self._other_than(self._at.get(topic), cluster.topics[topic])

    def _other_than(self, at: int | None, view: TopicView) -> int:
        available, draw = view.available, self._random()
        if not available:
            return draw % view.partition_count
        if at is None or len(available) == 1 or not _usable(view, at):
            return available[draw % len(available)]
        # One draw among the others, where Java draws among all until it gets another one.
        index = draw % (len(available) - 1)
        return available[index + (index >= bisect_left(available, at))]


class RoundRobinPartitioner:
    """The partitions that have a leader in turn, record by record, with any key (Java:
    ``RoundRobinPartitioner``). It is called once per record, so it skips none (KAFKA-9965)."""

    __slots__ = ("_turns",)

    def __init__(self) -> None:
        self._turns: Counter[str] = Counter()

    def partition(
        self, topic: str, _key: object, _value: object, cluster: ClusterView, _load: object
    ) -> int:
        turn = self._turns[topic]
        self._turns[topic] += 1
        return _nth(cluster.topics[topic], turn)


class RandomPartitioner:
    """Records with a key go by its hash unless ``ignore_keys``, each other record goes to a random
    partition that has a leader."""

    __slots__ = ("_ignore_keys", "_random")

    def __init__(self, random31: Random31, *, ignore_keys: bool = False) -> None:
        self._random = random31
        self._ignore_keys = ignore_keys

    def partition(
        self, topic: str, key: bytes | None, _value: object, cluster: ClusterView, _load: object
    ) -> int:
        view = cluster.topics[topic]
        if key is not None and not self._ignore_keys:
            return partition_for_key(key, view.partition_count)
        return _nth(view, self._random())


def named_partitioner(
    setting: Any, random31: Random31, *, ignore_keys: bool = False
) -> Partitioner | None:
    """The partitioner that the option ``partitioner`` names. None: a built-in strategy (``late``,
    ``kip794``)."""
    if not isinstance(setting, str):
        custom: Partitioner = setting
        return custom
    match setting:
        case "sticky":
            return StickyPartitioner(random31, ignore_keys=ignore_keys)
        case "uniform-sticky":
            return StickyPartitioner(random31, ignore_keys=True)
        case "round-robin":
            return RoundRobinPartitioner()
        case "random":
            return RandomPartitioner(random31, ignore_keys=ignore_keys)
    return None


def _usable(view: TopicView, partition: int) -> bool:
    """Whether the partition exists, and has a leader if any has."""
    if partition >= view.partition_count:
        return False
    return view.partitions[partition].leader >= 0 or not view.available


def _nth(view: TopicView, n: int) -> int:
    available = view.available
    return available[n % len(available)] if available else n % view.partition_count
