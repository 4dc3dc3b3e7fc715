"""The methods of FakeCluster for topics, logs, transactions and groups."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkaclient.testing.fake.fetch_sessions import FakeFetchSessions
from kafkaclient.testing.fake.log import NO_LEADER, FakePartition, FakeTopic, ScriptedError
from kafkaclient.testing.fake.serving import runs_in_its_thread
from kafkaclient.wire.records import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from uuid import UUID

    from kafkaclient.testing.fake.log import FakeRecord, Marker
    from kafkaclient.testing.fake.serving import ServingThread
    from kafkaclient.testing.fake.state import ClusterState, FakeBroker
    from kafkaclient.testing.fake.transactions import FakeTransaction
    from kafkaclient.types import HeadersLike
    from kafkaclient.wire.record_reader import BatchHeader

_CAPACITY = 2**31 - 1  # of a batch in bytes


@runs_in_its_thread
class ClusterContents:
    """The base class of :class:`~kafkaclient.testing.fake.FakeCluster`."""

    _state: ClusterState
    _thread: ServingThread | None

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int = 1,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        max_message_bytes: int | None = None,
        min_insync_replicas: int | None = None,
    ) -> None:
        """Create a topic. The leader of partition n is broker n modulo the number of brokers,
        unless ``assignments`` lists the replicas of each partition, the leader first."""
        if name in self._state.topics:
            raise ValueError(f"topic {name!r} exists")
        self._state.create_topic(name, partitions, replication_factor, assignments=assignments)
        self.configure_topic(
            name, max_message_bytes=max_message_bytes, min_insync_replicas=min_insync_replicas
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its records, and the groups' offsets. A new topic with the same name gets
        another topic id."""
        self._state.delete_topic(self._topic(name).name)

    def topic_id(self, name: str) -> UUID:
        """The id of the topic (KIP-516)."""
        return self._topic(name).topic_id

    def cordon(self, node_id: int, *, cordoned: bool = True) -> None:
        """Cordon all log directories of a broker (KIP-1066), or end that."""
        self._broker(node_id).cordoned = cordoned

    def add_partitions(self, name: str, total: int) -> None:
        """Increase the number of partitions of a topic to ``total``."""
        self._state.grow_topic(self._topic(name), total)

    def configure_topic(
        self,
        name: str,
        *,
        max_message_bytes: int | None = None,
        min_insync_replicas: int | None = None,
    ) -> None:
        """Change the given settings. They apply from the next request on."""
        given = {
            "max.message.bytes": max_message_bytes,
            "min.insync.replicas": min_insync_replicas,
        }
        changed = {key: str(value) for key, value in given.items() if value is not None}
        self._topic(name).configs.update(changed)

    def leader(self, topic: str, partition: int) -> int:
        """The node id of a partition's leader; -1 without a leader."""
        return self._partition(topic, partition).leader

    def leader_epoch(self, topic: str, partition: int) -> int:
        """The leader epoch of a partition, which starts at 0."""
        return self._partition(topic, partition).leader_epoch

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Elect a leader under a new leader epoch (-1: no leader). The leader becomes an in-sync
        replica.

        Clients learn the leader from their next Metadata or Produce response (KIP-951).
        """
        moved = self._partition(topic, partition)
        if node_id != NO_LEADER:
            self._broker(node_id)
            for nodes in (moved.replicas, moved.isr):
                if node_id not in nodes:
                    nodes.append(node_id)
        moved.elect(node_id)
        self._state.serve_waiting_fetches()

    def truncate(self, topic: str, partition: int, end: int, node_id: int) -> None:
        """Elect a leader that has the log only up to an offset, as an unclean election does."""
        self._partition(topic, partition).log.truncate(end)
        self.move_leader(topic, partition, node_id)

    def set_isr(self, topic: str, partition: int, isr: Sequence[int]) -> None:
        """Set a partition's in-sync replicas. If they are too few, ``acks=all`` fails."""
        self._partition(topic, partition).isr = list(isr)

    def copy_replica(self, topic: str, partition: int, node_id: int, records: int) -> None:
        """Set the number of records of a replica that is being added or has lost others."""
        self._partition(topic, partition).copied[node_id] = records

    def finish_reassignments(self) -> None:
        """Complete all ongoing reassignments."""
        for topic in self._state.topics.values():
            for partition in topic.partitions:
                partition.finish_reassignment()

    def log(self, topic: str, partition: int) -> list[FakeRecord]:
        """The records of a partition, in order."""
        return self._partition(topic, partition).log.records()

    def batches(self, topic: str, partition: int) -> list[BatchHeader]:
        """The batch headers of a partition, in order, with their offsets."""
        return [header for header, _ in self._partition(topic, partition).log.batches]

    def forget_producers(self, topic: str, partition: int) -> None:
        """Delete the log's state of idempotent producers and their sequence numbers."""
        self._partition(topic, partition).log.forget_producers()

    def add_record(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int = 0,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> int:
        """Append a record as the partition's leader does; returns its offset. A topic that does not
        exist is created. ``timestamp_ms`` defaults to the time. Raises ValueError if there is no
        such partition."""
        if topic not in self._state.topics:
            self.create_topic(topic)
        given = headers.items() if isinstance(headers, Mapping) else headers or ()
        pairs = tuple((name, None if each is None else bytes(each)) for name, each in given)
        batch = BatchBuilder(_CAPACITY)
        at = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        batch.append(at, key, value, pairs)
        batch.seal()
        return self.append(topic, partition, bytes(batch.buffer()))

    def append(self, topic: str, partition: int, batch: bytes) -> int:
        """Append a sealed batch as its leader does. Returns its first offset."""
        log = self._partition(topic, partition).log
        appended = log.append(batch, self._state.topics[topic].max_message_bytes)
        self._state.serve_waiting_fetches()
        return appended.base_offset

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
        failures = self._state.fetch_failures[topic, partition]
        failures.extend(ScriptedError(error_code) for _ in range(times))

    def prefer_followers(self) -> None:
        """Redirect consumers to followers in their rack, as RackAwareReplicaSelector (KIP-392)."""
        self._state.rack_aware_fetch = True

    def limit_fetch_sessions(self, slots: int = 1_000) -> None:
        """Forget all fetch sessions (KIP-227), and have room for ``slots`` of them from now on."""
        self._state.fetch_sessions = FakeFetchSessions(slots)

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
        self._state.serve_waiting_fetches()

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

    def _topic(self, name: str) -> FakeTopic:
        if name not in self._state.topics:
            raise ValueError(f"unknown topic {name!r}; known: {sorted(self._state.topics)}")
        return self._state.topics[name]

    def _partition(self, topic: str, partition: int) -> FakePartition:
        known = self._topic(topic).partitions
        if not 0 <= partition < len(known):
            raise ValueError(f"topic {topic!r} has {len(known)} partitions, but no {partition}")
        return known[partition]

    def _broker(self, node_id: int) -> FakeBroker:
        if node_id not in self._state.brokers:
            raise ValueError(f"unknown broker {node_id}; known: {list(self._state.brokers)}")
        return self._state.brokers[node_id]
