"""What a partitioner implements, the load that it can see, and the client's own rack.

Pure: no I/O, no clock; random numbers are passed in. ``CustomPartitioner`` in
partition_strategies.py calls a partitioner once for each record without an explicit partition, and
checks the answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkaclient.wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkaclient.cluster.view import Broker, ClusterView, TopicView
    from kafkaclient.producer.partitioning.kip794 import Random31


# --- The load of a producer that partitioners can choose by ---------------------------------------


class PartitionLoad(NamedTuple):
    """Queued: not sent, or waiting for a retry. Bound: sent for the first time, whatever the
    outcome. Sent: acknowledged. Bytes are counted as on the wire."""

    topic: str
    partition: int
    leader: int
    queued_batches: int
    queued_bytes: int
    in_flight_batches: int
    bytes_sent: int
    records_sent: int
    batches_bound: int
    bytes_bound: int


class BrokerLoad(NamedTuple):
    """``oldest_in_flight_s``: age of the oldest unanswered Produce request, 0.0 when there is
    none. ``bytes_sent`` and ``requests_sent`` count Produce requests since the start.
    ``window``: how many requests the broker may have in flight at present. ``excluded``: why the
    broker got no records without key at the last look (broker_lane.py has the reasons:
    ``overdue``, ``slow``, ``availability``, ``throttled``, ``connection``), None when it did;
    ``exclusions`` counts how often a reason came up. ``latency_s``: the median of the latest
    responses, None before the first."""

    node_id: int
    queued_batches: int
    queued_bytes: int
    in_flight_requests: int
    oldest_in_flight_s: float
    bytes_sent: int
    requests_sent: int
    window: int = 1
    excluded: str | None = None
    exclusions: int = 0
    latency_s: float | None = None


class LoadSnapshot(NamedTuple):
    """Brokers in the order of their ids; partitions that have been used, by topic; each topic's
    :func:`partition_skew`."""

    brokers: tuple[BrokerLoad, ...]
    partitions: tuple[PartitionLoad, ...]
    skew: Mapping[str, float]
    unbound: Mapping[str, int]
    """By topic, the bytes that wait without a partition (late binding); topics with none are left
    out."""


class LoadView(Protocol):
    """A producer's load, read-only and live: each method returns the present value.

    A method for one partition or broker costs the same with any number of them; :meth:`snapshot`
    goes over all. A partition or broker that is not known has nothing queued or in flight.
    """

    def queued_batches(self, topic: str, partition: int) -> int:
        """Batches that wait to be sent, the open one too."""
        ...

    def queued_bytes(self, topic: str, partition: int) -> int:
        """The size of those batches."""
        ...

    def in_flight_batches(self, topic: str, partition: int) -> int:
        """Batches that were sent and are not answered yet."""
        ...

    def in_flight_requests(self, node_id: int) -> int:
        """Produce requests that a broker has not answered yet."""
        ...

    def oldest_in_flight_s(self, node_id: int) -> float:
        """Age in seconds of the oldest of them, 0.0 when there is none."""
        ...

    def recent_latency_s(self, node_id: int) -> float | None:
        """How long a broker took for its latest Produce requests (64 at most), on average in
        seconds; None when it has answered none yet."""
        ...

    def window(self, node_id: int) -> int:
        """How many Produce requests a broker is given before an answer is waited for."""
        ...

    def snapshot(self) -> LoadSnapshot:
        """Everything at once."""
        ...


# --- Which brokers are in the client's own rack, where traffic is fast or free --------------------


class Rack:
    """``name`` is the client's rack. "": racks are ignored, and no broker is near."""

    __slots__ = ("brokers", "name")

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.brokers: frozenset[int] = frozenset()
        """The node ids of the brokers in the rack."""

    def __repr__(self) -> str:
        return f"<Rack {self.name!r} brokers={sorted(self.brokers)}>"

    def update(self, brokers: Iterable[Broker]) -> bool:
        """Note the brokers in the rack. Returns whether they have changed."""
        if not self.name:
            return False
        before = self.brokers
        self.brokers = frozenset(b.node_id for b in brokers if b.rack == self.name)
        return self.brokers != before

    def near(self, view: TopicView) -> tuple[int, ...]:
        """The numbers of the topic's partitions whose leader is in the rack."""
        if not self.brokers:
            return ()
        return tuple(p.partition for p in view.partitions if p.leader in self.brokers)


# --- Partitioners that choose a partition for each record: the protocol ---------------------------


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
