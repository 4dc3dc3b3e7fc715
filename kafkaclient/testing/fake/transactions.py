"""The transaction coordinator of the fake cluster: transactional ids and their open transactions.

Behavior
    KIP-98, KIP-360, KIP-890, Java's ``TransactionCoordinator`` and ``TransactionMetadata``, except
    that the end of a transaction takes effect at once: markers and committed offsets are written
    before the answer. If a new producer uses a transactional id with an open transaction, the
    transaction is aborted under the next epoch, which fences the old producer. The first request of
    the new producer gets CONCURRENT_TRANSACTIONS. A request belongs to transactions v1 or v2,
    depending on its version.

    Transactions do not time out by themselves; see :meth:`FakeCluster.expire_transaction`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol
from zlib import crc32

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.testing.fake.log import RefusedError
from kafkaclient.wire.transactions import TxnState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.testing.fake.log import FakePartition

MAX_EPOCH = 2**15 - 1
_NO_PRODUCER = -1
_NO_EPOCH = -1


class Committed(NamedTuple):
    """A committed offset of a group."""

    offset: int
    metadata: str


@dataclass(slots=True)
class FakeTransaction:
    """The state of a transactional id."""

    producer_id: int
    epoch: int
    last_epoch: int = _NO_EPOCH
    """The previous epoch of the same producer, to recognize a repeated request."""
    previous_id: int = _NO_PRODUCER
    """The producer id before this one, if its epochs were used up."""
    state: TxnState = TxnState.EMPTY
    partitions: set[tuple[str, int]] = field(default_factory=set)
    offsets: dict[tuple[str, str, int], Committed] = field(default_factory=dict)
    """Pending offsets: (group, topic, partition) -> offset."""
    groups: set[str] = field(default_factory=set)
    timeout_ms: int = 60_000
    started_ms: int = -1
    """The time of the transaction's first partition or group, by the cluster's clock."""


class _Cluster(Protocol):
    """The part of :class:`~kafkaclient.testing.fake.state.ClusterState` for the coordinator."""

    now: Callable[[], float]
    transactions_v2: bool

    def alive_brokers(self) -> list[int]: ...

    def new_producer_id(self) -> int: ...

    def has_partition(self, topic: str, index: int) -> bool: ...

    def partition(self, topic: str, index: int) -> FakePartition: ...


class TransactionCoordinator:
    """The transactional ids of a cluster, and the coordinators of transactional ids and groups."""

    def __init__(self, state: _Cluster) -> None:
        self.ids: dict[str, FakeTransaction] = {}
        self.committed: dict[tuple[str, str, int], Committed] = {}
        self.generations: dict[str, int] = {}
        """Group -> its generation, if a test has set one."""
        self.moved: dict[str, int] = {}
        """Key -> its coordinator, if a test has set one."""
        self._state = state

    def node_of(self, key: str) -> int:
        """The coordinator of a group or transactional id; -1 if no broker is alive."""
        alive = self._state.alive_brokers()
        chosen = self.moved.get(key)
        if chosen in alive:
            return chosen
        return alive[crc32(key.encode()) % len(alive)] if alive else -1

    def check_coordinator(self, key: str, broker: int) -> None:
        """Refuse a request if the broker is not the coordinator."""
        if self.node_of(key) != broker:
            raise RefusedError(ErrorCode.NOT_COORDINATOR)

    def check(self, name: str, producer_id: int, epoch: int) -> FakeTransaction:
        """The transactional id, if this producer id and epoch may write under it."""
        known = self.ids.get(name)
        if known is None or known.producer_id != producer_id:
            raise RefusedError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if known.epoch != epoch:
            raise RefusedError(ErrorCode.PRODUCER_FENCED)
        return known

    def is_open(self, name: str, topic: str, partition: int) -> bool:
        known = self.ids[name]
        return known.state is TxnState.ONGOING and (topic, partition) in known.partitions

    def initialize(self, name: str, producer_id: int, epoch: int) -> FakeTransaction:
        """Assign the next epoch to a new producer (-1, -1) or to the current producer."""
        known = self.ids.get(name)
        if known is None:
            known = self.ids[name] = FakeTransaction(self._state.new_producer_id(), 0)
            return known
        is_new = producer_id == _NO_PRODUCER
        if not is_new:
            if _is_repeated(known, producer_id, epoch):
                return known
            if (producer_id, epoch) != (known.producer_id, known.epoch):
                raise RefusedError(ErrorCode.PRODUCER_FENCED)
        was_open = known.state is TxnState.ONGOING
        if was_open:
            self._finish(known, commit=False, bump=True)
        else:
            self._next_epoch(known)
            known.state = TxnState.EMPTY
        if is_new:
            known.last_epoch, known.previous_id = _NO_EPOCH, _NO_PRODUCER
        if was_open:
            raise RefusedError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return known

    def add(
        self, name: str, partitions: Iterable[tuple[str, int]] = (), group: str | None = None
    ) -> None:
        known = self.ids[name]
        if known.state is not TxnState.ONGOING:
            known.started_ms = int(self._state.now() * 1000)
        known.state = TxnState.ONGOING
        known.partitions.update(partitions)
        if group is not None:
            known.groups.add(group)

    def pending(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has a pending offset for the partition."""
        return any((group, topic, partition) in known.offsets for known in self.ids.values())

    def end(
        self, name: str, producer_id: int, epoch: int, *, commit: bool, v2: bool
    ) -> FakeTransaction:
        known = self.ids.get(name)
        result = TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT
        if v2 and known is not None and _is_repeated(known, producer_id, epoch):
            # A repeated request, or a commit after a timeout aborted the transaction.
            return _ended(known, result)
        known = self.check(name, producer_id, epoch)
        if known.state is not TxnState.ONGOING and (commit or not v2):
            return _ended(known, None if v2 else result)
        self._finish(known, commit=commit, bump=v2)
        return known

    def expire(self, name: str) -> None:
        """Abort the open transaction, as after transaction.timeout.ms."""
        known = self.ids[name]
        self._finish(known, commit=False, bump=True)
        if not self._state.transactions_v2:
            known.last_epoch = _NO_EPOCH  # the producer is fenced

    def _next_epoch(self, known: FakeTransaction) -> None:
        if known.epoch >= MAX_EPOCH - 1:
            known.previous_id, known.producer_id = known.producer_id, self._state.new_producer_id()
            known.epoch, known.last_epoch = 0, _NO_EPOCH
        else:
            known.epoch, known.last_epoch = known.epoch + 1, known.epoch

    def _finish(self, known: FakeTransaction, *, commit: bool, bump: bool) -> None:
        """Write the markers. With ``bump`` they have the next epoch, which fences late batches."""
        producer_id, epoch = known.producer_id, known.epoch + bump
        for topic, index in sorted(known.partitions):
            if self._state.has_partition(topic, index):
                log = self._state.partition(topic, index).log
                log.end_transaction(producer_id, epoch, commit=commit)
        if bump:
            self._next_epoch(known)
        if commit:
            self.committed.update(known.offsets)
        known.partitions.clear()
        known.offsets.clear()
        known.groups.clear()
        known.started_ms = -1
        known.state = TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT


def _ended(known: FakeTransaction, result: TxnState | None) -> FakeTransaction:
    if known.state is not result:
        raise RefusedError(ErrorCode.INVALID_TXN_STATE)
    return known


def _is_repeated(known: FakeTransaction, producer_id: int, epoch: int) -> bool:
    """Whether the producer has sent a request again whose answer, with the next epoch, was lost."""
    if producer_id == known.producer_id:
        return epoch == known.last_epoch
    used_up = epoch >= MAX_EPOCH - 1 and known.epoch == 0
    return used_up and producer_id == known.previous_id
