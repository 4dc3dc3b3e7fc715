"""``AIOKafkaConsumer``: aiokafka's consumer API on :class:`kafkaclient.Consumer`."""

from __future__ import annotations

import asyncio
import math
import warnings
from typing import TYPE_CHECKING, Any, Self

import aiokafka
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import ConsumerStoppedError
from aiokafka.structs import ConsumerRecord

from kafkaclient import Consumer
from kafkaclient.aiokafka.errors import Translation, aiokafka_error
from kafkaclient.aiokafka.lifecycle import LoopBound
from kafkaclient.aiokafka.offsets import OffsetsMixin
from kafkaclient.aiokafka.options import security_options, servers_with_ports, token_provider_for
from kafkaclient.aiokafka.structs import ClientFacade, GroupFacade, TopicPartition
from kafkaclient.aiokafka.subscribing import SubscriptionMixin, assignor_names
from kafkaclient.errors import KafkaError
from kafkaclient.types import TopicPartition as OwnPartition

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable

    from kafkaclient.consumer import Record
    from kafkaclient.types import LastFetch

__all__ = ["AIOKafkaConsumer"]


class DropInConsumer(Consumer):
    """The consumer of a drop-in, as in aiokafka: what is handed out is finished, and after the end
    it is still known which partitions there were. Then ``pause``, ``resume`` and ``seek`` of them
    do nothing, and ``subscribe`` and ``assign`` only change what is told."""

    _finishes_at_once = True
    _had: dict[OwnPartition, tuple[int | None, LastFetch | None]] | None = None
    """From :meth:`stop` on: the partitions, with their positions and last fetches."""
    _had_paused: frozenset[OwnPartition] = frozenset()

    async def stop(self) -> None:
        if self._had is None and self.has_assignment:
            self._had_paused = self.paused
            self._had = {p: (self.position(p), self.last_fetch(p)) for p in self.assignment}
        await super().stop()

    @property
    def has_assignment(self) -> bool:
        return self._had is not None or (self.is_running and super().has_assignment)

    @property
    def assignment(self) -> frozenset[OwnPartition]:
        return super().assignment if self._had is None else frozenset(self._had)

    @property
    def paused(self) -> frozenset[OwnPartition]:
        return super().paused if self.is_running else self._had_paused

    async def wait_position(self, partition: tuple[str, int]) -> int:
        position, _ = (self._had or {}).get(OwnPartition(*partition), (None, None))
        return await super().wait_position(partition) if position is None else position

    def last_fetch(self, partition: tuple[str, int]) -> LastFetch | None:
        if self._had is not None:
            return self._had[OwnPartition(*partition)][1]
        return super().last_fetch(partition)

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        if partition not in (self._had or ()):
            super().seek(partition, offset)

    def pause(self, *partitions: tuple[str, int]) -> None:
        super().pause(*(each for each in partitions if each not in (self._had or ())))

    def resume(self, *partitions: tuple[str, int]) -> None:
        super().resume(*(each for each in partitions if each not in (self._had or ())))

    def subscribe(self, topics: Iterable[str] = (), *, pattern: str | None = None) -> None:
        if self.is_running:
            super().subscribe(topics, pattern=pattern)
        else:
            self._had = self._subscription = None

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        if self.is_running:
            super().assign(partitions)
        else:
            self._had = {OwnPartition(*each): (None, None) for each in partitions}

    def unsubscribe(self) -> None:
        self._had, self._had_paused = None, frozenset()
        if self.is_running:
            super().unsubscribe()


class AIOKafkaConsumer(SubscriptionMixin, OffsetsMixin, LoopBound):
    """Consumes records, with the constructor, methods, results and errors of aiokafka 0.14's
    ``AIOKafkaConsumer``::

        from kafkaclient.aiokafka import AIOKafkaConsumer

        async with AIOKafkaConsumer(
            "flights", bootstrap_servers="localhost:9092", group_id="board"
        ) as consumer:
            async for record in consumer:
                print(record.key, record.value)

    The parameters are aiokafka's, with its names and defaults. ``options`` are any further options
    of :class:`kafkaclient.Consumer`; if one of them concerns the same as a parameter, the option
    counts. docs/reference/aiokafka.md says what each parameter becomes, and what differs on
    purpose.

    The errors are of aiokafka's classes, and of kafkaclient's too.

    Raises:
        ValueError: a parameter is not usable (kafkaclient's ConfigError is a ValueError).
        RuntimeError: no event loop is running, and ``loop`` is not given.
    """

    def __init__(  # noqa: PLR0913 - aiokafka's signature
        self,
        *topics: str,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | Iterable[str] = "localhost",
        client_id: str = f"aiokafka-{aiokafka.__version__}",
        group_id: str | None = None,
        group_instance_id: str | None = None,
        key_deserializer: Callable[[bytes | None], Any] | None = None,
        value_deserializer: Callable[[bytes | None], Any] | None = None,
        fetch_max_wait_ms: int = 500,
        fetch_max_bytes: int = 52_428_800,
        fetch_min_bytes: int = 1,
        max_partition_fetch_bytes: int = 1_048_576,
        request_timeout_ms: float = 40_000,
        retry_backoff_ms: float = 100,
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: float = 5000,
        check_crcs: bool = True,
        metadata_max_age_ms: float = 300_000,
        partition_assignment_strategy: Iterable[Any] = (RoundRobinPartitionAssignor,),
        max_poll_interval_ms: float = 300_000,
        rebalance_timeout_ms: float | None = None,
        session_timeout_ms: float = 10_000,
        heartbeat_interval_ms: float = 3000,
        consumer_timeout_ms: float = 200,
        max_poll_records: int | None = None,
        ssl_context: ssl.SSLContext | None = None,
        security_protocol: str = "PLAINTEXT",
        api_version: str | None = None,
        exclude_internal_topics: bool = True,
        connections_max_idle_ms: float | None = 540_000,
        isolation_level: str = "read_uncommitted",
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
        client_rack: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(loop, api_version)
        _check_records(max_poll_records, "`max_poll_records` should be positive Integer")
        for name, is_given in (
            ("rebalance_timeout_ms", rebalance_timeout_ms is not None),
            ("consumer_timeout_ms", consumer_timeout_ms != 200),
        ):
            if is_given:
                warnings.warn(f"{name} has no effect in kafkaclient", UserWarning, stacklevel=2)
        if isolation_level not in ("read_uncommitted", "read_committed"):
            raise ValueError(f"Incorrect isolation level {isolation_level}")
        sasl = {
            "sasl_mechanism": sasl_mechanism,
            "sasl_username": sasl_plain_username,
            "sasl_password": sasl_plain_password,
            "sasl_oauth_token_provider": token_provider_for(sasl_oauth_token_provider),
            "sasl_kerberos_service_name": sasl_kerberos_service_name,
            "sasl_kerberos_domain_name": sasl_kerberos_domain_name,
        }
        backoff = math.ceil(retry_backoff_ms)
        self._options: dict[str, Any] = {
            "bootstrap_servers": servers_with_ports(bootstrap_servers),
            "client_id": client_id,
            "group_id": group_id,
            "group_instance_id": group_instance_id,
            "group_protocol": "classic",
            "partition_assignment_strategy": assignor_names(partition_assignment_strategy),
            "fetch_max_wait_ms": math.ceil(fetch_max_wait_ms),
            "fetch_max_bytes": fetch_max_bytes,
            "fetch_min_bytes": fetch_min_bytes,
            "max_partition_fetch_bytes": max_partition_fetch_bytes,
            "request_timeout_ms": math.ceil(request_timeout_ms),
            "max_block_ms": math.ceil(request_timeout_ms),
            "retry_backoff_ms": backoff,
            "retry_backoff_max_ms": backoff,
            "auto_offset_reset": auto_offset_reset,
            "enable_auto_commit": bool(enable_auto_commit),
            "auto_commit_interval_ms": math.ceil(auto_commit_interval_ms),
            "check_crcs": bool(check_crcs),
            "metadata_max_age_ms": math.ceil(metadata_max_age_ms),
            "max_poll_interval_ms": math.ceil(max_poll_interval_ms),
            "session_timeout_ms": math.ceil(session_timeout_ms),
            "heartbeat_interval_ms": math.ceil(heartbeat_interval_ms),
            "exclude_internal_topics": bool(exclude_internal_topics),
            "connections_max_idle_ms": (
                -1 if connections_max_idle_ms is None else math.ceil(connections_max_idle_ms)
            ),
            "isolation_level": isolation_level,
            "client_rack": client_rack or "",
            "allow_auto_create_topics": True,
            **security_options(security_protocol, ssl_context, sasl, options),
            **options,
        }
        self._group_id = group_id
        self._group_instance_id = group_instance_id
        self._max_poll_records = max_poll_records
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._begin_subscription()
        self._consumer: Consumer = self._new_consumer()
        self._client = ClientFacade(bootstrap_servers, client_id, self._consumer)
        self._is_started = False
        self._closed = False
        if topics:
            self.subscribe(topics)

    def __repr__(self) -> str:
        return f"<AIOKafkaConsumer {getattr(self, '_consumer', None)!r}>"

    def _native(self) -> Consumer:
        return self._consumer

    def _new_consumer(self, **more: Any) -> Consumer:
        return DropInConsumer(listener=self._adapter, **{**self._options, **more})

    @property
    def _coordinator(self) -> GroupFacade:
        """For FastStream, with :attr:`_subscription`."""
        is_member = self._group_id is not None and self._consumer.is_running
        member_id = self._consumer.group_metadata.member_id if is_member else ""
        return GroupFacade(member_id, self.subscription())

    _subscription = _coordinator

    # --- life cycle -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster. With topics, also wait until they exist, and until the group has
        assigned partitions, maybe none. After an error the call can be repeated.

        Raises:
            KafkaConnectionError: no bootstrap server answered within ``request_timeout_ms``, or
                the credentials were refused (then it is an AuthenticationFailedError as well).
            UnknownTopicOrPartitionError: a topic does not exist, and brokers do not create it.
            KafkaError: the group refuses this member.
            AssertionError: this is not the event loop of the constructor, or a second call.
        """
        self._check_loop()
        assert not self._is_started, "Did you call `start` twice?"
        try:
            with Translation():
                await self._consumer.start()
                self._is_started = True
                for topic in self._topics:
                    await self._consumer.partitions_for(topic)
                self._apply()
                if self._is_subscribed and self._by_hand is None:
                    await self._consumer.wait_assigned()
        except BaseException:
            if not self._closed:
                # A consumer of this package starts once. Replace it, to repeat start().
                self._is_started = False
                await self._consumer.stop()
                self._consumer = self._new_consumer(hooks=self._consumer.config.hooks)
                self._client.attach(self._consumer)
            raise

    async def stop(self) -> None:
        """Commit what was handed out (with ``enable_auto_commit``), leave the group, disconnect.
        Calls under way end: ``getone`` with ConsumerStoppedError. A second call returns at once."""
        if self._closed:
            return
        self._closed = self._adapter.is_closing = True
        if self._follower is not None:
            self._follower.stop()
        with Translation():
            await self._consumer.stop()

    @property
    def _is_stopped(self) -> bool:
        return bool(self._closed)

    # --- records ----------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Any, Any]:
        """The next record, of these partitions or of all. It counts as consumed, and is committed
        next. Nothing is lost if the call is canceled.

        Raises ConsumerStoppedError when the consumer is stopped, NoOffsetForPartitionError and
        OffsetOutOfRangeError with ``auto_offset_reset="none"``, what a deserializer raises (then
        the record is the next one again), and KafkaError if the group refuses this member.
        """
        assert all(isinstance(each, TopicPartition) for each in partitions)
        if self._closed:
            raise ConsumerStoppedError
        consumer = self._consumer
        try:
            if not consumer.has_assignment:
                await consumer.wait_assigned()
            record = await consumer.getone(*partitions)
        except KafkaError as error:
            if self._is_stopped:
                raise ConsumerStoppedError from None
            translated = aiokafka_error(error)
            raise translated from translated.__cause__
        return self._converted([record])[0]

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """The records that were fetched, of these partitions or of all, at most ``max_records``
        (default: ``max_poll_records``). If there are none, it waits for up to ``timeout_ms``.
        Returns {} if there are none then, or if the consumer is stopped. Raises as :meth:`getone`.
        """
        assert all(isinstance(each, TopicPartition) for each in partitions)
        if self._closed:
            raise ConsumerStoppedError
        _check_records(max_records, "`max_records` must be a positive Integer")
        most = max_records or self._max_poll_records
        until = self._loop.time() + timeout_ms / 1000
        consumer = self._consumer
        try:
            if not consumer.has_assignment:
                async with asyncio.timeout_at(until):
                    await consumer.wait_assigned()
            left_ms = max(0.0, until - self._loop.time()) * 1000
            found = await consumer.getmany(*partitions, timeout_ms=left_ms, max_records=most)
        except TimeoutError:
            return {}
        except KafkaError as error:
            if self._is_stopped:
                return {}
            translated = aiokafka_error(error)
            raise translated from translated.__cause__
        records = self._converted([each for some in found.values() for each in some])
        return {
            TopicPartition(*where): [records.pop(0) for _ in some] for where, some in found.items()
        }

    def _converted(self, records: list[Record]) -> list[ConsumerRecord[Any, Any]]:
        """aiokafka's records. If a deserializer raises, all these records come again."""
        try:
            return [self._record(each) for each in records]
        except BaseException:
            firsts = {each.topic_partition: each.offset for each in reversed(records)}
            for where in firsts.keys() & self._consumer.assignment:
                self._consumer.seek(where, firsts[where])
            raise

    def _record(self, record: Record) -> ConsumerRecord[Any, Any]:
        key, value = record.key, record.value
        return ConsumerRecord(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            key if self._key_deserializer is None else self._key_deserializer(key),
            value if self._value_deserializer is None else self._value_deserializer(value),
            None,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
            tuple(record.headers),
        )

    def __aiter__(self) -> Self:
        if self._closed:
            raise ConsumerStoppedError
        return self

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None


def _check_records(most: object, text: str) -> None:
    if most is not None and (not isinstance(most, int) or most < 1):
        raise ValueError(text)
