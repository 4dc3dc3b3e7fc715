"""The drop-ins with the private attributes that aiokafka's own tests read.

Only these tests use the facade. Applications and frameworks get the drop-in itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka.producer.transaction_manager import TransactionState as Theirs

from kafkaclient.aiokafka import CONSUMER_PLACES, PLACES, AIOKafkaConsumer, AIOKafkaProducer
from kafkaclient.aiokafka.structs import ClientFacade, ClusterFacade
from kafkaclient.errors import KafkaError
from kafkaclient.producer.transactions.states import TransactionState as Ours

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient import Producer
    from kafkaclient.producer.runtime import ProducerRuntime

__all__ = ["FacadeProducer", "install_facade"]

_STATES = {
    Ours.UNINITIALIZED: Theirs.UNINITIALIZED,
    Ours.INITIALIZING: Theirs.UNINITIALIZED,
    Ours.READY: Theirs.READY,
    Ours.IN_TRANSACTION: Theirs.IN_TRANSACTION,
    Ours.COMMITTING: Theirs.COMMITTING_TRANSACTION,
    Ours.ABORTING: Theirs.ABORTING_TRANSACTION,
    Ours.ABORTABLE_ERROR: Theirs.ABORTABLE_ERROR,
    Ours.FATAL: Theirs.FATAL_ERROR,
}


def install_facade() -> None:
    """As ``kafkaclient.aiokafka.install()``, with the facade."""
    for module in PLACES:
        module.AIOKafkaProducer = FacadeProducer
    for module in CONSUMER_PLACES:
        module.AIOKafkaConsumer = FacadeConsumer


class FacadeProducer(AIOKafkaProducer):
    """``_sender`` and ``_txn_manager``, read from the drop-in's own producer; and the client's
    methods that the tests wait for topics with."""

    def __init__(self, **given: Any) -> None:
        self._sender = _SenderFacade(self)
        super().__init__(**given)
        shipped = self.client
        self.client = _Client(shipped._bootstrap_servers, shipped._client_id, self._producer)

    @property
    def _txn_manager(self) -> _TransactionFacade | None:
        return _TransactionFacade(self) if self._producer.config.enable_idempotence else None

    async def flush(self) -> None:
        """Call ``_sender._send_produce_req`` for each batch that the flush has sent."""
        before = self._batches_sent()
        await super().flush()
        for _ in range(self._batches_sent() - before):
            self._sender._send_produce_req()

    def _batches_sent(self) -> int:
        if self._producer._core is None:
            return 0
        partitions = self._producer.metrics().partitions.values()
        return sum(int(partition["batch-send-total"]) for partition in partitions)

    def _core(self) -> ProducerRuntime | None:
        return self._producer._core


class _SenderFacade:
    """``aiokafka.producer.sender.Sender``."""

    def __init__(self, producer: FacadeProducer) -> None:
        self._producer = producer
        self._send_produce_req: Callable[[], None] = _nothing
        """A test replaces it, and counts the calls."""

    @property
    def _sender_task(self) -> Any:
        core = self._producer._core()
        return None if core is None else core._task

    @property
    def _acks(self) -> int:
        return int(self._producer._producer.config.acks)


def _nothing() -> None:
    pass


class _TransactionFacade:
    """``aiokafka.producer.transaction_manager.TransactionManager``."""

    def __init__(self, producer: FacadeProducer) -> None:
        self._producer = producer

    @property
    def state(self) -> Theirs:
        core = self._producer._core()
        if core is None or core.transactions is None:
            return Theirs.UNINITIALIZED
        return _STATES[core.transactions.state]

    @property
    def producer_id(self) -> int:
        core = self._producer._core()
        assert core is not None
        return core.accumulator.identity.producer_id


class FacadeConsumer(AIOKafkaConsumer):
    """The private attributes, as far as the tests read them."""

    _client: Any

    def __init__(self, *topics: str, **given: Any) -> None:
        super().__init__(*topics, **given)
        shipped = self._client
        self._client = _ConsumerClient(
            shipped._bootstrap_servers, shipped._client_id, self._consumer
        )
        self._client.cluster.topics = self.subscription

    @property
    def _subscription(self) -> _SubscriptionFacade:
        return _SubscriptionFacade(self)

    @property
    def _coordinator(self) -> _CoordinatorFacade:
        return _CoordinatorFacade(self)

    @property
    def _fetcher(self) -> _FetcherFacade:
        return _FetcherFacade(self)


class _SubscriptionFacade:
    def __init__(self, consumer: FacadeConsumer) -> None:
        self._consumer = consumer._consumer

    async def wait_for_assignment(self) -> None:
        await self._consumer.wait_assigned()


class _CoordinatorFacade:
    """The options as the drop-in's consumer has them."""

    def __init__(self, consumer: FacadeConsumer) -> None:
        self.group_id = consumer._group_id
        self._config = consumer._consumer.config
        self._adapter = consumer._adapter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name.removeprefix("_"))

    @property
    def _rejoin_needed_fut(self) -> _CoordinatorFacade:
        return self

    def done(self) -> bool:
        return self._adapter.is_revoking


class _FetcherFacade:
    def __init__(self, consumer: FacadeConsumer) -> None:
        self._runtime = consumer._consumer._runtime

    @property
    def _records(self) -> set[Any]:
        """The partitions with records that were fetched and not handed out."""
        partitions = self._runtime.partitions if self._runtime is not None else None
        held = partitions._held if partitions is not None else []
        return {each.topic_partition for each in held if each.rows is not None}


class _ConsumerClient(ClientFacade):
    """``consumer._client.cluster.topics()`` and ``force_metadata_update()``."""

    cluster: Any

    async def force_metadata_update(self) -> bool:
        return True


class _Client(ClientFacade):
    """``aiokafka.AIOKafkaClient``: what ``wait_topic`` of aiokafka's tests calls."""

    cluster: _Cluster

    def attach(self, producer: Producer) -> None:
        super().attach(producer)
        self.cluster = _Cluster(producer)

    def add_topic(self, topic: str) -> None:
        self.cluster.added.add(topic)

    async def force_metadata_update(self) -> bool:
        """Whether a broker has answered."""
        try:
            await self._producer.refresh_metadata()
            for topic in self.cluster.added:
                await asyncio.wait_for(self._wait_on_metadata(topic), 1)
        except (KafkaError, TimeoutError):
            return False
        return True


class _Cluster(ClusterFacade):
    def __init__(self, producer: Producer) -> None:
        super().__init__(producer)
        self.added: set[str] = set()

    def topics(self) -> set[str]:
        """The added topics whose metadata is known."""
        return {topic for topic in self.added if self.partitions_for_topic(topic) is not None}
