"""``AIOKafkaProducer``: aiokafka's producer API on :class:`kafkaclient.Producer`."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from aiokafka.errors import UnknownTopicOrPartitionError

from kafkaclient import Producer
from kafkaclient.aiokafka.errors import Translation, aiokafka_error
from kafkaclient.aiokafka.futures import future_class
from kafkaclient.aiokafka.lifecycle import LoopBound
from kafkaclient.aiokafka.options import (
    MISSING,
    acks_and_idempotence,
    checked_compression,
    checked_partition,
    security_options,
    servers_with_ports,
    time_limits,
    timestamp_as_int,
    token_provider_for,
)
from kafkaclient.aiokafka.structs import (
    DEFAULT_PARTITIONER,
    BatchBuilder,
    ClientFacade,
    option_for,
    prediction,
)
from kafkaclient.aiokafka.transactions import TransactionMixin
from kafkaclient.errors import (
    KafkaError,
    PartitionOutOfRangeError,
    ProducerClosedError,
    ProducerStateError,
)

if TYPE_CHECKING:
    import asyncio
    import ssl
    from collections.abc import Callable, Iterable

    from kafkaclient.aiokafka.structs import RecordMetadata
    from kafkaclient.types import HeadersLike

__all__ = ["AIOKafkaProducer"]


class DropInProducer(Producer):
    """The producer of a drop-in. Instrumentations tell by the class that a drop-in calls it."""


class AIOKafkaProducer(TransactionMixin, LoopBound):
    """Publishes records to Kafka, with the constructor, methods, results and errors of aiokafka
    0.14's ``AIOKafkaProducer``::

        from kafkaclient.aiokafka import AIOKafkaProducer

        async with AIOKafkaProducer(bootstrap_servers="localhost:9092") as producer:
            metadata = await producer.send_and_wait("flights", b"value", key=b"UA")

    The parameters are aiokafka's, with its names and defaults. ``options`` are any further options
    of :class:`kafkaclient.Producer`; if one of them concerns the same as a parameter, the option
    counts. docs/reference/aiokafka.md says what each parameter becomes, and what differs on
    purpose.

    The errors are of aiokafka's classes, and of kafkaclient's too.

    Raises:
        ValueError: a parameter is not usable (kafkaclient's ConfigError is a ValueError).
        RuntimeError: no event loop is running, and ``loop`` is not given.
    """

    _PRODUCER_CLIENT_ID_SEQUENCE = 0
    _started = _starting = False

    def __init__(  # noqa: PLR0913 - aiokafka's signature
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | Iterable[str] = "localhost",
        client_id: str | None = None,
        metadata_max_age_ms: float = 300_000,
        request_timeout_ms: float = 40_000,
        api_version: str | None = None,
        acks: int | str = MISSING,
        key_serializer: Callable[[Any], Any] | None = None,
        value_serializer: Callable[[Any], Any] | None = None,
        compression_type: str | None = None,
        max_batch_size: int = 16_384,
        partitioner: Any = DEFAULT_PARTITIONER,
        max_request_size: int = 1_048_576,
        linger_ms: float = 0,
        retry_backoff_ms: float = 100,
        security_protocol: str = "PLAINTEXT",
        ssl_context: ssl.SSLContext | None = None,
        connections_max_idle_ms: float | None = 540_000,
        enable_idempotence: bool = False,
        transactional_id: str | None = None,
        transaction_timeout_ms: float = 60_000,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(loop, api_version)
        idempotent = bool(enable_idempotence) or transactional_id is not None
        acks = acks_and_idempotence(acks, idempotent=idempotent)
        AIOKafkaProducer._PRODUCER_CLIENT_ID_SEQUENCE += 1
        if client_id is None:
            client_id = f"aiokafka-producer-{AIOKafkaProducer._PRODUCER_CLIENT_ID_SEQUENCE}"
        sasl = {
            "sasl_mechanism": sasl_mechanism,
            "sasl_username": sasl_plain_username,
            "sasl_password": sasl_plain_password,
            "sasl_oauth_token_provider": token_provider_for(sasl_oauth_token_provider),
            "sasl_kerberos_service_name": sasl_kerberos_service_name,
            "sasl_kerberos_domain_name": sasl_kerberos_domain_name,
        }
        mapped: dict[str, Any] = {
            "bootstrap_servers": servers_with_ports(bootstrap_servers),
            "client_id": client_id,
            "metadata_max_age_ms": math.ceil(metadata_max_age_ms),
            "acks": acks,
            "compression_type": checked_compression(compression_type),
            "batch_size": max_batch_size,
            "partitioner": option_for(partitioner),
            "max_request_size": max_request_size,
            "connections_max_idle_ms": (
                -1 if connections_max_idle_ms is None else math.ceil(connections_max_idle_ms)
            ),
            "enable_idempotence": idempotent,
            **time_limits(request_timeout_ms, linger_ms, retry_backoff_ms, idempotent=idempotent),
            **security_options(security_protocol, ssl_context, sasl, options),
        }
        if not idempotent:
            # Keep the order when a batch is retried. aiokafka allows one batch in flight for each
            # partition; one request for each connection is the nearest option.
            mapped["max_in_flight_requests_per_connection"] = 1
        if transactional_id is not None:
            mapped["transactional_id"] = transactional_id
            mapped["transaction_timeout_ms"] = math.ceil(transaction_timeout_ms)
        self._options = {**mapped, **options}
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._producer = DropInProducer(**self._options)
        self._future_of = future_class(self._producer.config.acks)
        self._predict_partition = prediction(self._producer)
        """For instrumentations: which partition a record will get."""
        self.client: ClientFacade = ClientFacade(bootstrap_servers, client_id, self._producer)
        self._closed = False

    def __repr__(self) -> str:
        return f"<AIOKafkaProducer {getattr(self, '_producer', None)!r}>"

    def _native(self) -> Producer:
        return self._producer

    # --- life cycle ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster. After an error the call can be repeated.

        Raises:
            KafkaConnectionError: no bootstrap server answered within ``request_timeout_ms``, or
                the credentials were refused (then it is an AuthenticationFailedError as well).
            AssertionError: this is not the event loop of the constructor.
        """
        self._check_loop()
        owns_start = not (self._started or self._starting)
        self._starting = True
        try:
            with Translation():
                await self._producer.start()
            self._started = True
        except BaseException:
            if owns_start and not self._closed:
                # A core producer starts once. Replace it, so that start() can be repeated.
                # The class stays: instrument_producer() may have made it.
                self._producer = type(self._producer)(**self._options)
                self.client.attach(self._producer)
            raise
        finally:
            if owns_start:
                self._starting = False

    async def stop(self) -> None:
        """Send all records, wait for their outcome, and disconnect. An open transaction is
        aborted. A second call waits for the same."""
        closed, self._closed = self._closed, True
        with Translation():
            try:
                await self._producer.stop()
            except ProducerStateError:  # it was not stopped: this is another event loop
                self._closed = closed
                raise

    async def flush(self) -> None:
        """Send all records without lingering, and wait until each has an outcome."""
        if self._started:
            with Translation():
                await self._producer.flush()

    # --- sending ------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: float | None = None,
        headers: HeadersLike = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Hand over a record. The result is a future of its RecordMetadata (None with ``acks=0``).

        The call waits only for the topic's metadata and for buffer space, for both together up to
        ``request_timeout_ms``. If the call is cancelled while it waits, the record is not sent.
        Cancelling the future does not take the record back.

        Raises:
            AssertionError: key and value are None, or there is no such partition.
            TypeError: key, value, partition, headers or timestamp have a wrong type.
            ValueError: the timestamp is negative, infinite or NaN.
            MessageSizeTooLargeError: the record is larger than ``max_request_size``.
            UnknownTopicOrPartitionError: the topic's metadata did not arrive in time.
            KafkaTimeoutError: the buffer stayed full.
            ProducerClosed, IllegalOperation: the producer is stopped; it is not started, or no
                transaction is open.
        """
        if value is None and key is None:
            raise AssertionError("Need at least one: key or value")
        if partition is not None and (partition.__class__ is not int or partition < 0):
            partition = checked_partition(partition)
        if timestamp_ms is not None and timestamp_ms.__class__ is not int:
            timestamp_ms = timestamp_as_int(timestamp_ms)
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        try:
            delivery = await self._producer.send(
                topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
            )
        except KafkaError as error:
            translated = aiokafka_error(error)
            raise translated from translated.__cause__
        return self._future_of(delivery)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: float | None = None,
        headers: HeadersLike = None,
    ) -> RecordMetadata:
        """:meth:`send`, then wait for the acknowledgement. Raises the error of a failed delivery
        as well."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    def create_batch(self) -> BatchBuilder:
        """An empty batch of at most ``max_batch_size`` bytes, to be filled by the caller."""
        records = self._producer.create_batch()
        wall_clock = self._options.get("wall_clock", time.time)
        return BatchBuilder(records, self._key_serializer, self._value_serializer, wall_clock)

    async def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int | None
    ) -> asyncio.Future[RecordMetadata]:
        """Send a batch as one record batch: the broker writes all its records, or none. The result
        is a future of the first record's RecordMetadata; of None if the batch is empty.

        With ``partition`` None a partition is chosen. The batch is closed. A batch is sent once.
        Raises what :meth:`send` raises.
        """
        if partition is not None:
            partition = checked_partition(partition)
        if not batch.record_count():
            return await self._send_nothing(batch, topic, partition)
        with Translation():
            delivery = await self._producer.send_batch(batch._records, topic, partition=partition)
        return self._future_of(delivery)

    async def _send_nothing(
        self, batch: BatchBuilder, topic: str, partition: int | None
    ) -> asyncio.Future[Any]:
        """:meth:`send_batch` for an empty batch: the same checks, and a future that is done."""
        producer = self._producer
        with Translation():
            if self._closed:
                raise ProducerClosedError("the batch was not sent: the producer is stopped")
            partitions = await producer.partitions_for(topic)
            if producer.config.transactional_id is not None:
                self._check_in_transaction("the batch was not sent")
            if partition is not None and partition >= len(partitions):
                raise PartitionOutOfRangeError(f"Unrecognized partition {partition}")
        batch.close()
        future: asyncio.Future[Any] = self._loop.create_future()
        future.set_result(None)
        return future

    async def partitions_for(self, topic: str) -> set[int]:
        """The numbers of the topic's partitions.

        Raises UnknownTopicOrPartitionError after ``request_timeout_ms``.
        """
        return await self.client._wait_on_metadata(topic)

    def _partition(
        self,
        topic: str,
        partition: int | None,
        key: Any,
        value: Any,
        serialized_key: bytes | None,
        serialized_value: bytes | None,
    ) -> int | None:
        """The partition that the record will get, for instrumentations. None if the producer
        chooses the partition later, when the batch is sent."""
        everything = self.client.cluster.partitions_for_topic(topic)
        if everything is None:
            raise UnknownTopicOrPartitionError(topic)
        if partition is not None:
            assert partition >= 0
            assert partition in everything, "Unrecognized partition"
            return partition
        available = self.client.cluster.available_partitions_for_topic(topic) or set()
        return self._predict_partition(serialized_key, sorted(everything), sorted(available))
