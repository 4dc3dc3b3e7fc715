"""The methods of :class:`~kafkaclient.testing.fake.FakeCluster` for logs and fetches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.testing.fake.failures import ProduceFailure

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkaclient.testing.fake.log import FakeRecord
    from kafkaclient.testing.fake.state import ClusterState
    from kafkaclient.testing.fake.topics import FakePartition
    from kafkaclient.wire.record_reader import BatchHeader

__all__ = ["LogControls"]


class LogControls:
    """The log methods of :class:`~kafkaclient.testing.fake.FakeCluster`."""

    _state: ClusterState

    def log(self, topic: str, partition: int) -> list[FakeRecord]:
        """The records of a partition, in order."""
        return self._partition(topic, partition).log.records()

    def batches(self, topic: str, partition: int) -> list[BatchHeader]:
        """The batch headers of a partition, in order, with their offsets."""
        return [header for header, _ in self._partition(topic, partition).log.batches]

    def forget_producers(self, topic: str, partition: int) -> None:
        """Delete the log's state of idempotent producers and their sequence numbers."""
        self._partition(topic, partition).log.forget_producers()

    def append(self, topic: str, partition: int, batch: bytes) -> int:
        """Append a sealed batch as its leader does. Returns its first offset."""
        log = self._partition(topic, partition).log
        return log.append(batch, self._state.topics[topic].max_message_bytes).base_offset

    def damage(self, topic: str, partition: int, number: int, batch: bytes) -> None:
        """Replace the bytes of batch ``number``, which counts from 0. Its offsets stay."""
        batches = self._partition(topic, partition).log.batches
        batches[number] = (batches[number][0], batch)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records before an offset, as retention and DeleteRecords do."""
        self._partition(topic, partition).log.start_offset = before

    def compact(self, topic: str, partition: int, gone: Collection[int]) -> None:
        """Remove the batches with these base offsets, as compaction does."""
        log = self._partition(topic, partition).log
        log.batches = [batch for batch in log.batches if batch[0].base_offset not in gone]

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset of the next record."""
        return self._partition(topic, partition).log.end_offset

    def fail_fetch(self, topic: str, partition: int, error_code: int, times: int = 1) -> None:
        """Answer the next ``times`` fetches of a partition with an error."""
        self._state.fetch_failures.add(topic, partition, ProduceFailure(error_code), times)

    def prefer_followers(self) -> None:
        """Redirect consumers to followers in their rack, as RackAwareReplicaSelector (KIP-392)."""
        self._state.rack_aware_fetch = True

    def _partition(self, topic: str, partition: int) -> FakePartition:
        raise NotImplementedError
