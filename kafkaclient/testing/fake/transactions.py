"""The transaction coordinator of the fake cluster: who writes under which id, and what is open.

Behaviour
    KIP-98, KIP-360, KIP-890, Java's ``TransactionCoordinator`` and ``TransactionMetadata``, but an
    end takes effect at once: markers are in the logs and offsets in the groups before the answer.
    An id that a new instance asks for while a transaction is open has that aborted under the next
    epoch, which fences the old instance; the new one is told CONCURRENT_TRANSACTIONS that once.
    Whether a call belongs to transactions v1 or v2, its version tells.

    Time does not abort anything: a test does (:meth:`FakeCluster.expire_transaction`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol
from zlib import crc32

from kafkaclient.testing.fake.error_code import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.testing.fake.topics import FakePartition

__all__ = ["MAX_EPOCH", "Committed", "FakeTransaction", "TransactionCoordinator", "TxnState"]

MAX_EPOCH = 2**15 - 1
_NO_PRODUCER = -1
_NO_EPOCH = -1


class TxnState(Enum):
    """Java: ``TransactionState``, without the states that take time."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    COMMITTED = "CompleteCommit"
    ABORTED = "CompleteAbort"


class Committed(NamedTuple):
    """A group's offset of a partition."""

    offset: int
    metadata: str


@dataclass(slots=True)
class FakeTransaction:
    """What is known of a transactional id."""

    producer_id: int
    epoch: int
    last_epoch: int = _NO_EPOCH
    """The epoch before, of the same instance, so that a call made again is known."""
    state: TxnState = TxnState.EMPTY
    partitions: set[tuple[str, int]] = field(default_factory=set)
    offsets: dict[tuple[str, str, int], Committed] = field(default_factory=dict)
    """To be committed: (group, topic, partition) -> offset."""
    groups: set[str] = field(default_factory=set)
    timeout_ms: int = 60_000
    started_ms: int = -1
    """When the open transaction got its first partition or group, by the cluster's clock."""


class _Cluster(Protocol):
    """What the coordinator asks of the :class:`~kafkaclient.testing.fake.state.ClusterState`."""

    now: Callable[[], float]
    transactions_v2: bool

    def alive_brokers(self) -> list[int]: ...

    def new_producer_id(self) -> int: ...

    def partition(self, topic: str, index: int) -> FakePartition | None: ...


class TransactionCoordinator:
    """All transactional ids of a cluster; also which broker answers for them, and for groups."""

    def __init__(self, state: _Cluster) -> None:
        self.ids: dict[str, FakeTransaction] = {}
        self.committed: dict[tuple[str, str, int], Committed] = {}
        self.generations: dict[str, int] = {}
        """Group -> its generation, if a test lets it matter."""
        self.moved: dict[str, int] = {}
        """Key -> the broker that coordinates it, where a test has decided."""
        self._state = state

    def node_of(self, key: str) -> int:
        """The broker that coordinates a group or transactional id; -1: none is alive."""
        alive = self._state.alive_brokers()
        chosen = self.moved.get(key)
        if chosen in alive:
            return chosen
        return alive[crc32(key.encode()) % len(alive)] if alive else -1

    def refusal(self, key: str, broker: int) -> ErrorCode:
        """NOT_COORDINATOR unless the broker is the one."""
        return ErrorCode.NONE if self.node_of(key) == broker else ErrorCode.NOT_COORDINATOR

    def check(self, name: str, producer_id: int, epoch: int) -> ErrorCode:
        """Whether that is who may write under the id."""
        known = self.ids.get(name)
        if known is None or known.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if known.epoch == epoch else ErrorCode.PRODUCER_FENCED

    def is_open(self, name: str, topic: str, partition: int) -> bool:
        known = self.ids[name]
        return known.state is TxnState.ONGOING and (topic, partition) in known.partitions

    # --- InitProducerId -----------------------------------------------------------------------

    def initialize(self, name: str, producer_id: int, epoch: int) -> ErrorCode:
        """Give the next epoch, to a new instance (-1, -1) or to the one that presents itself."""
        known = self.ids.get(name)
        if known is None:
            self.ids[name] = FakeTransaction(self._state.new_producer_id(), 0)
            return ErrorCode.NONE
        anew = producer_id == _NO_PRODUCER
        if not anew:
            if producer_id != known.producer_id or epoch not in (known.epoch, known.last_epoch):
                return ErrorCode.PRODUCER_FENCED
            if epoch != known.epoch:
                return ErrorCode.NONE  # asked for again
        if known.state is TxnState.ONGOING:
            self._finish(known, commit=False, bump=True)
            if anew:
                known.last_epoch = _NO_EPOCH
            return ErrorCode.CONCURRENT_TRANSACTIONS
        self._next_epoch(known)
        if anew:
            known.last_epoch = _NO_EPOCH
        known.state = TxnState.EMPTY
        return ErrorCode.NONE

    # --- within a transaction -----------------------------------------------------------------

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
        """Whether an open transaction is about to change the offset."""
        return any((group, topic, partition) in known.offsets for known in self.ids.values())

    # --- the end ------------------------------------------------------------------------------

    def end(self, name: str, producer_id: int, epoch: int, *, commit: bool, v2: bool) -> ErrorCode:
        known = self.ids.get(name)
        result = TxnState.COMMITTED if commit else TxnState.ABORTED
        if v2 and known is not None and epoch == known.last_epoch:
            # Asked for again; or it was the other way round, when it had taken too long.
            return ErrorCode.NONE if known.state is result else ErrorCode.INVALID_TXN_STATE
        code = self.check(name, producer_id, epoch)
        if code or known is None:
            return code
        if known.state is not TxnState.ONGOING:
            if not v2:
                return ErrorCode.NONE if known.state is result else ErrorCode.INVALID_TXN_STATE
            if commit:
                return ErrorCode.INVALID_TXN_STATE
        self._finish(known, commit=commit, bump=v2)
        return ErrorCode.NONE

    def expire(self, name: str) -> None:
        """Abort what is open, as after transaction.timeout.ms."""
        known = self.ids[name]
        self._finish(known, commit=False, bump=True)
        if not self._state.transactions_v2:
            known.last_epoch = _NO_EPOCH  # whoever had it open is fenced

    def _next_epoch(self, known: FakeTransaction) -> None:
        if known.epoch >= MAX_EPOCH - 1:
            known.producer_id, known.epoch, known.last_epoch = (
                self._state.new_producer_id(),
                0,
                _NO_EPOCH,
            )
        else:
            known.epoch, known.last_epoch = known.epoch + 1, known.epoch

    def _finish(self, known: FakeTransaction, *, commit: bool, bump: bool) -> None:
        """Write the markers, under the next epoch with ``bump``: nothing comes after them then."""
        producer_id, epoch = known.producer_id, known.epoch + bump
        for topic, index in sorted(known.partitions):
            partition = self._state.partition(topic, index)
            if partition is not None:
                partition.log.end_transaction(producer_id, epoch, commit=commit)
        if bump:
            self._next_epoch(known)
        if commit:
            self.committed.update(known.offsets)
        known.partitions.clear()
        known.offsets.clear()
        known.groups.clear()
        known.started_ms = -1
        known.state = TxnState.COMMITTED if commit else TxnState.ABORTED
