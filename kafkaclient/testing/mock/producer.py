"""``MockProducer``, the public class: a producer that keeps what it is given."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast, get_args, overload

from kafkaclient.cluster.health import Health
from kafkaclient.cluster.view import PartitionView
from kafkaclient.errors import FlushTimeoutError, ProducerStateError
from kafkaclient.metrics.snapshot import MetricsSnapshot
from kafkaclient.producer.batches.record import PendingRecord, RawRecord, serialized_record
from kafkaclient.producer.partitioning.partitioners import LoadSnapshot
from kafkaclient.producer.producer import Producer
from kafkaclient.producer.settings import ProducerState
from kafkaclient.producer.transactions.states import TransactionState
from kafkaclient.testing.mock.records import (
    Core,
    Guard,
    MockBulkSend,
    MockCall,
    MockOffsets,
    MockRecord,
    MockTransactions,
    PendingDeliveries,
    Script,
    records_in,
)
from kafkaclient.topic_names import check_topic_name
from kafkaclient.types import Key_contra, Value_contra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random
    from typing import Unpack
    from uuid import UUID

    from kafkaclient.config import ProducerConfig
    from kafkaclient.config.keywords import ProducerKeywords, SerializingKeywords
    from kafkaclient.errors import KafkaError
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.batches.record import Record
    from kafkaclient.producer.bulk.batch_builder import RecordBatchBuilder
    from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
    from kafkaclient.producer.transactions.manager import TransactionManager
    from kafkaclient.types import Buffer, HeadersLike


class MockProducer(Producer[Key_contra, Value_contra]):
    """A producer for unit tests, without brokers, threads and waiting (Java: ``MockProducer``).

    It has the methods of :class:`~kafkaclient.Producer`, checks options and records as a producer
    does, applies serializers, and keeps the records in :attr:`history`::

        producer = MockProducer()
        await place_order(producer, "ann", 7)  # awaits start(), send_and_wait(), ...
        assert [(r.topic, r.value) for r in producer.history] == [("orders", b"7")]

    Every delivery is acknowledged at once. With ``auto_complete=False`` it waits for
    :meth:`complete_next` or :meth:`error_next`; :meth:`flush`, :meth:`stop` and a commit
    acknowledge all. :meth:`fail` lets calls or deliveries fail.

    Parameters: those of a producer; bootstrap servers may be left out and are not used.
    ``partitions``: the number of partitions of every topic, or of topics by name (others have one).
    A record without key and
    partition goes to the next partition in turn, whatever ``partitioner.class`` is.

    :meth:`metrics` and :meth:`load` have no values. ``send_nowait`` with a serializer that is async
    raises NotImplementedError. Failures that no caller looks at are neither logged nor given to
    ``on_error``. For timeouts, retries and slow brokers use
    :class:`~kafkaclient.testing.FakeCluster`."""

    @overload
    def __init__(
        self: MockProducer[Buffer, Buffer],
        bootstrap: str | list[str] | tuple[str, ...] | None = None,
        /,
        *,
        dialer: Dialer | None = None,
        clock: Callable[[], float] | None = None,
        wall_clock: Callable[[], float] = time.time,
        rng: Random | None = None,
        auto_complete: bool = True,
        partitions: int | Mapping[str, int] = 1,
        **options: Unpack[ProducerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self,
        bootstrap_or_mapping: (
            str | Iterable[str] | Mapping[str, object] | ProducerConfig | None
        ) = None,
        /,
        *,
        dialer: Dialer | None = None,
        clock: Callable[[], float] | None = None,
        wall_clock: Callable[[], float] = time.time,
        rng: Random | None = None,
        auto_complete: bool = True,
        partitions: int | Mapping[str, int] = 1,
        **options: Unpack[SerializingKeywords[Key_contra, Value_contra]],
    ) -> None: ...

    def __init__(
        self,
        bootstrap_or_mapping: (
            str | Iterable[str] | Mapping[str, object] | ProducerConfig | None
        ) = None,
        /,
        *,
        dialer: Dialer | None = None,
        clock: Callable[[], float] | None = None,
        wall_clock: Callable[[], float] = time.time,
        rng: Random | None = None,
        auto_complete: bool = True,
        partitions: int | Mapping[str, int] = 1,
        **options: Unpack[SerializingKeywords[Key_contra, Value_contra]],
    ) -> None:
        if bootstrap_or_mapping is None and "bootstrap_servers" not in options:
            bootstrap_or_mapping = "mock:9092"
        elif isinstance(bootstrap_or_mapping, Mapping):
            bootstrap_or_mapping = {"bootstrap.servers": "mock:9092", **bootstrap_or_mapping}
        super().__init__(
            bootstrap_or_mapping,
            dialer=dialer,
            clock=clock,
            wall_clock=wall_clock,
            rng=rng,
            **options,
        )
        self.auto_complete = auto_complete
        """Whether each delivery is acknowledged at once."""
        self.health: Health = Health()
        """What :meth:`healthy` returns while the producer runs."""
        self._script = Script(get_args(MockCall))
        self._deliveries = PendingDeliveries(self.config, partitions)
        self._transactional = self.config.transactional_id is not None
        name = self.config.transactional_id or ""
        self._mock_transactions = MockTransactions(name, self._deliveries, self._script)

    def __repr__(self) -> str:
        return f"<MockProducer {len(self.history)} records, {self.pending} pending>"

    # --- what the service has done ------------------------------------------------------------

    @property
    def history(self) -> list[MockRecord]:
        """The records in the order of the calls, whatever became of their deliveries. With a
        ``transactional.id``: the records of committed transactions."""
        return list(self._mock_transactions.committed_records)

    @property
    def uncommitted(self) -> list[MockRecord]:
        """The records of the open transaction."""
        return list(self._mock_transactions.records)

    @property
    def committed_offsets(self) -> list[MockOffsets]:
        """What committed transactions sent with ``send_offsets_to_transaction``."""
        return list(self._mock_transactions.committed_offsets)

    @property
    def commits(self) -> int:
        """The number of committed transactions."""
        return self._mock_transactions.commits

    @property
    def aborts(self) -> int:
        """The number of aborted transactions."""
        return self._mock_transactions.aborts

    @property
    def pending(self) -> int:
        """The number of deliveries without an outcome."""
        return len(self._deliveries)

    def clear(self) -> None:
        """Forget the history, and the failures that :meth:`fail` has set."""
        self._script.clear()
        self._mock_transactions.clear()

    # --- what the test decides ----------------------------------------------------------------

    def complete_next(self) -> bool:
        """Acknowledge the oldest pending delivery. False: there is none."""
        return self._deliveries.complete_next()

    def error_next(self, error: KafkaError) -> bool:
        """Fail the oldest pending delivery. False: there is none. In a transaction, the transaction
        can only be aborted then. Raises TypeError if ``error`` is no KafkaError."""
        failed = self._deliveries.fail_next(error)
        if failed:
            self._mock_transactions.fail_transaction(error)
        return failed

    def fail(self, call: MockCall, error: KafkaError, times: int = 1) -> None:
        """Raise ``error`` from the next ``times`` calls of a method. ``"send"``: any method that
        sends records; ``"delivery"``: the call succeeds, and its delivery fails. Raises
        ValueError for another call and for ``times`` below 1, TypeError if ``error`` is no
        KafkaError."""
        self._script.add(call, error, times)

    def fence(self) -> None:
        """Let every further call raise ProducerFencedError, as when a newer producer with the same
        transactional id was started. Raises ProducerStateError without a ``transactional.id``."""
        if not self._transactional:
            raise ProducerStateError("fence: the producer has no transactional.id")
        self._mock_transactions.fence()

    # --- life cycle ---------------------------------------------------------------------------

    async def start(self) -> None:
        if self._state is not ProducerState.NEW:
            raise ProducerStateError(f"the producer cannot be started: it {self._state.value}")
        self._script.run("start")
        if self._transactional:
            self._mock_transactions.initialize()
        self._state = ProducerState.RUNNING

    async def stop(self, timeout: float | None = None) -> int:
        ended_by_stop = (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR)
        if self._mock_transactions.state in ended_by_stop:
            await self._mock_transactions.abort()
        self._complete_all()
        self._state = ProducerState.STOPPED
        await asyncio.sleep(0)  # the callbacks of the deliveries
        return 0

    # --- sending ------------------------------------------------------------------------------

    async def _append(self, raw: RawRecord) -> Delivery:
        self._check("send")
        record = serialized_record(self.config, self._wall_clock, raw, self._serializers)
        if isinstance(record, PendingRecord):
            record = await record.finish()
        return self._take(raw, record)

    def _send_slowly(self, raw: RawRecord) -> Delivery:
        self._check("send")
        record = serialized_record(self.config, self._wall_clock, raw, self._serializers)
        if isinstance(record, PendingRecord):
            record.close()
            raise NotImplementedError(
                "MockProducer.send_nowait needs serializers that are not async"
            )
        return self._take(raw, record)

    def _take(self, raw: RawRecord, record: Record) -> Delivery:
        partition = self._deliveries.choose_partition(raw.topic, record)
        self._keep(raw, record, partition)
        return self._deliver(raw.topic, partition, [record.timestamp])

    def _keep(self, raw: RawRecord, record: Record, partition: int) -> None:
        kept = MockRecord(
            str(raw.topic),
            raw.value,
            raw.key,
            partition,
            record.timestamp,
            record.headers,
            record.value,
            record.key,
        )
        known = self._mock_transactions
        (known.records if self._transactional else known.committed_records).append(kept)

    def _deliver(
        self, topic: str, partition: int, timestamps: list[int], *, atomic: bool = False
    ) -> Delivery:
        delivery = self._deliveries.add(str(topic), partition, timestamps, atomic=atomic)
        if self.auto_complete:
            error = self._script.next("delivery")
            if error is None:
                self._complete_all()
            else:
                self.error_next(error)
        return delivery

    async def send_many(
        self,
        topic: str,
        values: Iterable[Value_contra | None],
        *,
        keys: Iterable[Key_contra | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
        timestamps_ms: Iterable[int | None] | None = None,
        record_headers: Iterable[HeadersLike] | None = None,
    ) -> BulkDelivery:
        from kafkaclient.producer.bulk.send_many import send_values  # noqa: PLC0415

        bulk = self._bulk(RawRecord(topic, None, None, partition, timestamp_ms, headers))
        columns = {"keys": keys, "timestamps_ms": timestamps_ms, "record_headers": record_headers}
        return await bulk.run(send_values(bulk, values, columns))

    async def send_arrow(
        self,
        topic: str,
        data: Any,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> BulkDelivery:
        columns = import_module("kafkaclient.producer.bulk.arrow")  # it needs pyarrow
        bulk = self._bulk(RawRecord(topic, None, None, partition, timestamp_ms, in_bytes=True))
        return await bulk.run(columns.send_columns(bulk, data))

    def _bulk(self, shared: RawRecord) -> MockBulkSend:
        self._check("send")
        core = Core(self.config, self._wall_clock, time.monotonic, Guard(self._check, set()))
        partitions = self._deliveries.partition_count(shared.topic)
        serializers = None if shared.in_bytes else self._serializers
        return MockBulkSend(core, shared, serializers, partitions, self._take)

    async def send_batch(
        self, batch: RecordBatchBuilder, topic: str, *, partition: int | None = None
    ) -> Delivery:
        self._check("send")
        taken = batch.take(self.config, topic, partition)
        chosen = self._deliveries.choose_partition(topic, taken)
        records = records_in(taken, topic)
        for raw in records:
            record = serialized_record(self.config, self._wall_clock, raw, None)
            assert not isinstance(record, PendingRecord)
            self._keep(raw, record, chosen)
        timestamps = [cast("int", raw.timestamp_ms) for raw in records]
        return self._deliver(topic, chosen, timestamps, atomic=True)

    # --- waiting and looking ------------------------------------------------------------------

    async def flush(self, timeout: float | None = None) -> None:
        self._check_started("flush")
        error = self._script.next("flush")
        if isinstance(error, FlushTimeoutError):
            error.undelivered = self.pending
        if error is not None:
            raise error
        self._complete_all()
        await asyncio.sleep(0)  # the callbacks of the deliveries

    async def partitions_for(self, topic: str) -> tuple[PartitionView, ...]:
        self._check_started("partitions_for")
        check_topic_name(topic)
        self._script.run("partitions_for")
        return self._partitions(topic)

    def known_partitions(self, topic: str) -> tuple[PartitionView, ...] | None:
        return None if self._state is ProducerState.NEW else self._partitions(topic)

    def _partitions(self, topic: str) -> tuple[PartitionView, ...]:
        count = self._deliveries.partition_count(topic)
        return tuple(PartitionView(number, 0, 0, (0,), (0,)) for number in range(count))

    async def refresh_metadata(
        self, *, max_age_s: float = 0.0, forget_topics: bool = False
    ) -> None:
        self._check_started("refresh_metadata")

    async def healthy(self, timeout: float = 2.0) -> Health:
        if self._state is not ProducerState.RUNNING:
            return Health((f"the producer {self._state.value}",))
        return self.health

    def metrics(self, *, partitions: bool = True) -> MetricsSnapshot:
        self._check_started("metrics")
        return MetricsSnapshot({}, {}, {}, {}, {}, {})

    async def client_instance_id(self, timeout: float = 10.0) -> UUID | None:
        self._check_started("client_instance_id")
        return None

    def load(self, *, partitions: bool = True) -> LoadSnapshot:
        self._check_started("load")
        return LoadSnapshot((), (), {}, {})

    # --- transactions -------------------------------------------------------------------------

    @property
    def in_transaction(self) -> bool:
        return self._mock_transactions.state is TransactionState.IN_TRANSACTION

    def _transactions(self, what: str) -> TransactionManager:
        if not self._transactional:
            raise ProducerStateError(f"{what}: the producer has no transactional.id")
        self._check_running("nothing was done")
        return cast("TransactionManager", self._mock_transactions)

    def _check(self, call: MockCall | None = None) -> None:
        """Raise what a producer raises that takes no records now, or what the test has set."""
        self._check_running("the record was not sent")
        asyncio.get_running_loop()
        if self._transactional:
            self._mock_transactions.check_open()
        if call is not None:
            self._script.run(call)

    def _check_running(self, what: str) -> None:
        if self._state is not ProducerState.RUNNING:
            raise self._not_running(what)

    def _check_started(self, what: str) -> None:
        if self._state is ProducerState.NEW:
            raise self._not_running(what)

    def _complete_all(self) -> None:
        while self.complete_next():
            pass
