"""What a test does to the logs of the fake cluster, and to those who read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.testing.fake.failures import ProduceFailure

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkaclient.testing.fake.state import ClusterState
    from kafkaclient.testing.fake.topics import FakePartition

__all__ = ["LogControls"]


class LogControls:
    """A part of :class:`~kafkaclient.testing.fake.FakeCluster`."""

    _state: ClusterState

    def append(self, topic: str, partition: int, batch: bytes) -> int:
        """Write a sealed batch, as its leader would; returns its first offset."""
        log = self._partition(topic, partition).log
        return log.append(batch, self._state.topics[topic].max_message_bytes).base_offset

    def damage(self, topic: str, partition: int, number: int, batch: bytes) -> None:
        """Put other bytes in the place of a batch, counted from 0; its offsets stay."""
        batches = self._partition(topic, partition).log.batches
        batches[number] = (batches[number][0], batch)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Begin the log at an offset, as retention and DeleteRecords do."""
        self._partition(topic, partition).log.start_offset = before

    def compact(self, topic: str, partition: int, gone: Collection[int]) -> None:
        """Remove the batches that begin at these offsets, as compaction does."""
        log = self._partition(topic, partition).log
        log.batches = [each for each in log.batches if each[0].base_offset not in gone]

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset that the next record will get."""
        return self._partition(topic, partition).log.end_offset

    def fail_fetch(self, topic: str, partition: int, error_code: int, times: int = 1) -> None:
        """Answer the next ``times`` fetches of a partition with an error."""
        self._state.fetch_failures.add(topic, partition, ProduceFailure(error_code), times)

    def prefer_followers(self) -> None:
        """Send readers to followers in their rack, as with RackAwareReplicaSelector (KIP-392)."""
        self._state.rack_aware_fetch = True

    def _partition(self, topic: str, partition: int) -> FakePartition:
        raise NotImplementedError
