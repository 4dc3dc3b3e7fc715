"""The methods of ``SyncProducer`` that show what the producer knows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from kafkaclient.cluster.health import Health
from kafkaclient.errors import KafkaError, KafkaTimeoutError, ProducerStateError
from kafkaclient.metrics_push.points import PushesMetricsMixin
from kafkaclient.sync.futures import NOT_RESPONDING, check_may_wait, within
from kafkaclient.time_limit import monotonic

if TYPE_CHECKING:
    from uuid import UUID

    from kafkaclient.cluster.view import PartitionView
    from kafkaclient.metrics.snapshot import MetricsSnapshot
    from kafkaclient.producer.producer import Producer
    from kafkaclient.sync.thread import ProducerThread

_ANSWER_S = 0.2  # how much longer healthy() waits for the producer's thread than for brokers


class SyncObservationMixin(PushesMetricsMixin, ABC):
    """The methods of :class:`~kafkaclient.SyncProducer` that show the cluster and the producer."""

    _thread: ProducerThread | None

    def partitions_for(self, topic: str) -> tuple[PartitionView, ...]:
        """See :meth:`kafkaclient.Producer.partitions_for`."""
        check_may_wait("partitions_for")
        thread = self._running()
        thread.started.result()
        return within(thread.call(lambda producer: producer.partitions_for(topic)), None)

    def client_instance_id(self, timeout: float = 10.0) -> UUID | None:
        """See :meth:`kafkaclient.Producer.client_instance_id`; starts the producer."""
        check_may_wait("client_instance_id", timeout)
        thread = self._running()
        thread.started.result()
        return within(thread.call(lambda producer: producer.client_instance_id(timeout)), None)

    def healthy(self, timeout: float = 2.0) -> Health:
        """Whether records can be delivered now, for a readiness probe; starts the producer. See
        :meth:`kafkaclient.Producer.healthy`. Not healthy, too: the producer has not started within
        ``timeout`` seconds, or its thread does not respond, for example because a callback of the
        application does not end. Raises ProducerStateError in a thread that runs an event loop."""
        check_may_wait("healthy", timeout)
        try:
            thread = self._running()
            ends = monotonic() + timeout
            thread.started.result(timeout)
        except TimeoutError as error:
            why = error if isinstance(error, KafkaError) else "it is being started"
            return Health((f"the producer does not run: {why}",))
        except KafkaError as error:
            return Health((f"the producer does not run: {error}",))
        left = max(0.0, ends - monotonic())
        try:
            return within(thread.call(lambda producer: producer.healthy(left)), left + _ANSWER_S)
        except TimeoutError:
            return Health((NOT_RESPONDING,))
        except KafkaError as error:
            return Health((f"the producer does not run: {error}",))

    def metrics(self, *, partitions: bool = True, timeout: float = 10.0) -> MetricsSnapshot:
        """All metrics under Java's names, by group; see docs/how-to/operations.md.

        ``partitions`` False leaves out those of partitions. ``timeout``: how long the call waits
        for the producer's thread, in seconds.

        Raises:
            ProducerStateError: nothing was sent yet, or this thread runs an event loop.
            KafkaTimeoutError: the producer has not started within ``timeout``, or its thread does
                not respond.
        """
        check_may_wait("metrics", timeout)
        thread = self._thread
        if thread is None:
            raise ProducerStateError("metrics: the SyncProducer has not been started")
        ends = monotonic() + timeout

        async def snapshot(producer: Producer) -> MetricsSnapshot:
            return producer.metrics(partitions=partitions)

        try:
            thread.started.result(timeout)
            if thread.ended.done():
                return thread.producer.metrics(partitions=partitions)
            return within(thread.call(snapshot), max(0.0, ends - monotonic()))
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise  # the producer could not be started
            raise KafkaTimeoutError(f"metrics: {NOT_RESPONDING} within {timeout} s") from None

    @abstractmethod
    def _running(self) -> ProducerThread:
        """See :class:`~kafkaclient.SyncProducer`."""
