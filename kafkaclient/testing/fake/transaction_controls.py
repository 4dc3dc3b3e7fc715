"""The methods of :class:`~kafkaclient.testing.fake.FakeCluster` for transactions and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkaclient.testing.fake.broker import FakeBroker
    from kafkaclient.testing.fake.log import FakeRecord, Marker
    from kafkaclient.testing.fake.state import ClusterState
    from kafkaclient.testing.fake.topics import FakePartition
    from kafkaclient.testing.fake.transactions import FakeTransaction

__all__ = ["TransactionControls"]


class TransactionControls:
    """The transaction methods of :class:`~kafkaclient.testing.fake.FakeCluster`."""

    _state: ClusterState

    def committed_log(self, topic: str, partition: int) -> list[FakeRecord]:
        """The records that a consumer with ``isolation.level=read_committed`` gets."""
        return self._partition(topic, partition).log.committed()

    def markers(self, topic: str, partition: int) -> list[Marker]:
        """The transaction markers in a partition, in order."""
        return list(self._partition(topic, partition).log.markers)

    def last_stable_offset(self, topic: str, partition: int) -> int:
        """The last stable offset of a partition."""
        return self._partition(topic, partition).log.last_stable_offset

    def transaction(self, transactional_id: str) -> FakeTransaction:
        """The coordinator's state of a transactional id."""
        return self._state.transactions.ids[transactional_id]

    def expire_transaction(self, transactional_id: str) -> None:
        """Abort an open transaction, as its coordinator does after ``transaction.timeout.ms``."""
        self._state.transactions.expire(transactional_id)

    def coordinator(self, key: str) -> int:
        """The node id of the coordinator of a group or transactional id."""
        return self._state.transactions.node_of(key)

    def move_coordinator(self, key: str, node_id: int) -> None:
        """Make another broker the coordinator of a group or transactional id."""
        self._state.transactions.moved[key] = self._broker(node_id).node_id

    def committed_offset(self, group: str, topic: str, partition: int) -> int | None:
        """The committed offset of a group; None without one."""
        found = self._state.transactions.committed.get((group, topic, partition))
        return None if found is None else found.offset

    def rebalance(self, group: str, generation: int) -> None:
        """Start a generation of a group. Offset commits of other generations are refused."""
        self._state.transactions.generations[group] = generation

    def _broker(self, node_id: int) -> FakeBroker:
        raise NotImplementedError

    def _partition(self, topic: str, partition: int) -> FakePartition:
        raise NotImplementedError
