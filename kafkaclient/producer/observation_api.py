"""The producer's methods that show what it knows: metadata, health, metrics, load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.cluster.health import Health, check_brokers
from kafkaclient.errors import ProducerStateError
from kafkaclient.producer.base import ProducerBase
from kafkaclient.producer.settings import ProducerState

if TYPE_CHECKING:
    from uuid import UUID

    from kafkaclient.cluster.view import PartitionView
    from kafkaclient.metrics.snapshot import MetricsSnapshot
    from kafkaclient.producer.partitioning.partitioners import LoadSnapshot


class ObservationApi(ProducerBase):
    """The methods of :class:`~kafkaclient.Producer` that show the cluster and the producer."""

    async def partitions_for(self, topic: str) -> tuple[PartitionView, ...]:
        """The topic's partitions in order, with leader, replicas and in-sync replicas.

        Raises:
            InvalidTopicError: no topic can have this name.
            MetadataTimeoutError: the topic's metadata did not arrive within ``max.block.ms``.
        """
        core = self._started("partitions_for")
        self._check_loop(core, "partitions_for")
        return (await core.metadata.wait_topic(topic, core.max_block)).partitions

    def known_partitions(self, topic: str) -> tuple[PartitionView, ...] | None:
        """The topic's partitions as :meth:`partitions_for` returns them, without a wait and without
        a request: from the metadata that the producer has now. None: it has no metadata of the
        topic, because the topic is not in use or the producer was not started. Raises nothing, and
        can be called in any thread.
        """
        known = None if self._core is None else self._core.metadata.view.topics.get(topic)
        return None if known is None else known.partitions

    async def refresh_metadata(
        self, *, max_age_s: float = 0.0, forget_topics: bool = False
    ) -> None:
        """Fetch the metadata of all topics in use now, instead of within ``metadata.max.age.ms``:
        for example when a topic was given more partitions, or was deleted and created again. Does
        nothing if the metadata is at most ``max_age_s`` seconds old.

        With ``forget_topics`` the topics without unfinished records are not in use any more, until
        the next record. So a topic that was deleted is not created again by the refresh
        (``allow.auto.create.topics``).

        Raises:
            MetadataTimeoutError: no broker answered within ``max.block.ms`` (if that is 0, within
                ``request.timeout.ms``).
            KafkaError: the producer cannot send any more, with this error.
        """
        core = self._open(in_transaction=False)
        await core.metadata.refresh(max_age_s=max_age_s, forget_topics=forget_topics)

    async def healthy(self, timeout: float = 2.0) -> Health:
        """Ask the brokers whether records can be delivered now, for a readiness probe: ``if not
        (health := await producer.healthy()): return 503, str(health)``.

        The leaders of the topics in use, or all brokers before the first record, are asked on
        connections of their own, so that no record delays the answer. Not healthy: the producer
        does not run, or cannot send any more; no broker answers within ``timeout`` seconds; or none
        of the partitions of a topic in use can be written. Raises ProducerStateError in another
        event loop, and can be called before :meth:`start`.
        """
        core = self._core
        if core is not None and core.fatal is not None:
            return Health((f"the producer cannot send any more: {core.fatal}",))
        if core is None or self._state is not ProducerState.RUNNING:
            return Health((f"the producer {self._state.value}",))
        self._check_loop(core, "healthy")
        return await check_brokers(
            core.metadata,
            core.router,
            timeout,
            core.now(),
            core.sender.misrouting.reasons(core.now()),
            [q.tp for q in core.accumulator.ready_queues.leaderless if q.is_deleted and q.batches],
        )

    def metrics(self, *, partitions: bool = True) -> MetricsSnapshot:
        """All metrics under Java's names; see docs/how-to/operations.md.

        ``partitions`` False leaves out those of partitions: with a thousand of them, the call takes
        a tenth of the time.
        """
        return self._started("metrics").snapshot_metrics(partitions=partitions)

    async def client_instance_id(self, timeout: float = 10.0) -> UUID | None:
        """The id under which the cluster gets metrics of this producer (KIP-714), for logs; it
        stays the same until the producer is stopped. None if the cluster has no receiver for
        metrics, or has not answered within ``timeout`` seconds.

        Raises ProducerStateError with ``enable.metrics.push=false``, and before :meth:`start`.
        """
        core = self._started("client_instance_id")
        self._check_loop(core, "client_instance_id")
        if not self.config.enable_metrics_push:
            raise ProducerStateError("client_instance_id: enable.metrics.push is false")
        return await core.metrics_push.client_instance_id(timeout)

    def load(self, *, partitions: bool = True) -> LoadSnapshot:
        """What is queued and in flight at this moment, per broker and partition.

        ``partitions`` False leaves out the load of each partition, which takes most of the time.
        """
        return self._started("load").load.snapshot(partitions=partitions)
