"""The methods of :class:`Consumer` that look at the cluster, and at what is consumed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

from kafkaclient.cluster.health import Health
from kafkaclient.errors import ConsumerStateError
from kafkaclient.metrics_push.points import PushesMetricsMixin
from kafkaclient.reader.cluster import timestamp_of
from kafkaclient.topic_names import partition_of, several, several_partitions
from kafkaclient.types import OffsetAndTimestamp

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from kafkaclient.cluster.view import PartitionView
    from kafkaclient.consumer.runtime import ConsumerRuntime
    from kafkaclient.metrics.consumer import ConsumerMetricsSnapshot
    from kafkaclient.types import (
        ConsumerGroupMetadata,
        LastFetch,
        TopicListing,
        TopicPartition,
    )


class ObservationMixin(PushesMetricsMixin, ABC):
    """What a consumer knows, or asks of brokers, without consuming."""

    _runtime: ConsumerRuntime | None
    _is_closing: bool

    @abstractmethod
    def _running(self) -> ConsumerRuntime: ...

    # --- topics -----------------------------------------------------------------------------------

    async def list_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicListing]:
        """The topics that exist now, as :meth:`.Reader.list_topics`; internal ones only with
        ``exclude_internal_topics=False``, or if they are named."""
        named = None if names is None else several(names, "names")
        runtime = self._running()
        internal = not runtime.config.exclude_internal_topics
        return await runtime.cluster.list_topics(named, internal=internal)

    async def partitions_for(self, topic: str) -> tuple[PartitionView, ...]:
        """The topic's partitions in order, as :meth:`.Producer.partitions_for`."""
        cluster = self._running().cluster
        view = await cluster.metadata.wait_topic(topic, cluster.config.max_block_ms / 1000)
        return view.partitions

    def known_partitions(self, topic: str) -> tuple[PartitionView, ...] | None:
        """The topic's partitions, from the metadata that this consumer has now; None if it has none
        of the topic. Raises nothing."""
        view = None if self._runtime is None else self._runtime.cluster.metadata.view
        known = None if view is None else view.topics.get(topic)
        return None if known is None else known.partitions

    # --- offsets ----------------------------------------------------------------------------------

    async def offsets(
        self, partitions: Iterable[tuple[str, int]], at: Literal["earliest", "latest"] | int
    ) -> dict[TopicPartition, int | None]:
        """The first offsets of partitions, the ends, or the offsets of the first records that are
        not older than a time (milliseconds since the epoch; None if there is none).

        Raises:
            MetadataTimeoutError: a topic is not known within ``max.block.ms``.
            PartitionOutOfRangeError: a topic has no such partition.
            ConfigError: ``at`` is none of these, such as a negative time.
            KafkaError: a broker answered with an error; a retriable error is raised after
                ``max.block.ms``, another error at once.
        """
        given = several_partitions(partitions)
        return await self._running().offsets(given, at)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition that is not older than a time (milliseconds since the
        epoch); None if there is none. Raises as :meth:`offsets`."""
        cluster = self._running().cluster
        wanted = {partition_of(where): timestamp_of(at) for where, at in timestamps.items()}
        await cluster.find(wanted)
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for at in set(wanted.values()):
            same = [where for where, each in wanted.items() if each == at]
            for where, answer in (await cluster.list_offsets(same, at)).items():
                is_found = answer.offset >= 0
                found[where] = (
                    OffsetAndTimestamp(answer.offset, answer.timestamp) if is_found else None
                )
        return {where: found[where] for where in wanted}

    def last_fetch(self, partition: tuple[str, int]) -> LastFetch | None:
        """The end of an assigned partition at its last fetch, None before it. Without requests to
        brokers. Raises ConsumerStateError if the partition is not assigned."""
        runtime = self._running()
        return runtime.last_fetch(runtime.partitions[partition].topic_partition)

    def lag(self) -> dict[TopicPartition, int | None]:
        """How many offsets are between the position and the end of each assigned partition, as of
        its last fetch; None before it. Without requests to brokers."""
        return self._running().lag()

    # --- what is consumed -------------------------------------------------------------------------

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer has now."""
        return self._running().partitions.assigned

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """The member, for :meth:`.Producer.send_offsets_to_transaction`."""
        gate = self._running().gate
        if gate is None:
            raise ConsumerStateError("only a consumer with a group_id is a member of a group")
        return gate.group

    @property
    def has_assignment(self) -> bool:
        """Whether partitions were assigned, maybe none, since the last :meth:`subscribe`, and not
        lost since: a member that was evicted, or had to leave, has no assignment until it has
        joined again."""
        return self._running().has_assignment

    async def wait_assigned(self) -> frozenset[TopicPartition]:
        """Wait until the group has answered the last :meth:`subscribe`, or partitions are assigned
        by hand, and return them. Raises what a loop would raise, such as BrokerError if the group
        refuses this member; ConsumerStateError when the consumer is closed."""
        runtime = self._running()
        await runtime.until(runtime.ask_assignment)
        return runtime.partitions.assigned

    async def wait_position(self, partition: tuple[str, int]) -> int:
        """Wait until it is known where the partition begins, and return its position. In a
        rebalance listener, records of the partition may be handed out from then on.

        Raises ConsumerStateError if the partition is not assigned, or given up meanwhile;
        NoOffsetError with ``auto.offset.reset=none``, and what a loop would raise."""
        runtime = self._running()
        partitions = runtime.partitions
        partitions.start([partitions[partition].topic_partition])

        def is_known() -> bool:
            found = partitions[partition]
            if found.error is not None:
                raise found.error
            return found.position is not None

        await runtime.until(is_known)
        position = partitions[partition].position
        assert position is not None
        return position

    async def healthy(self, timeout: float = 2.0) -> Health:
        """Ask the brokers whether records can be consumed now, for a readiness probe: ``if not
        (health := await consumer.healthy()): return 503, str(health)``.

        Not healthy: the consumer does not run, or has neither topics nor partitions; its loop has
        raised an error and no other one takes records or waits for them (what your code in the loop
        raises is not seen); no broker that leads a topic in use answers within ``timeout`` seconds;
        no partition of a topic can be read; a topic may not be read, as of the last request for it;
        or the consumer is not in its group, such as after ``max.poll.interval.ms``. A rebalance
        that lasts longer than 5 s is a warning.
        Raises ConsumerStateError in another event loop, and can be called before the start.
        """
        if self._runtime is None or self._is_closing:
            return Health((f"the consumer is {'closed' if self._is_closing else 'not started'}",))
        return await self._running().healthy(timeout)

    def metrics(self) -> ConsumerMetricsSnapshot:
        """All metrics under Java's names; docs/how-to/consume.md lists them. Without requests to
        brokers; also after the end of the consumer. Raises ConsumerStateError before the start."""
        if self._runtime is None:
            raise ConsumerStateError("the consumer is not started: it has no metrics yet")
        return self._runtime.snapshot_metrics()

    async def client_instance_id(self, timeout: float = 10.0) -> UUID | None:
        """The id under which the cluster gets metrics of this consumer (KIP-714), as
        :meth:`.Producer.client_instance_id`. Raises ConsumerStateError with
        ``enable.metrics.push=false``, and if the consumer is not running."""
        runtime = self._running()
        if not runtime.config.enable_metrics_push:
            raise ConsumerStateError("client_instance_id: enable.metrics.push is false")
        return await runtime.metrics_push.client_instance_id(timeout)

    @property
    def is_running(self) -> bool:
        """Whether the consumer is started, and not stopped."""
        return self._runtime is not None and not self._is_closing

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the consumer; None before its start."""
        return None if self._runtime is None else self._runtime.loop
