"""The records of a mock producer, also those sent in bulk, its transactions, and the script of its
failures."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from kafkaclient.errors import (
    KafkaError,
    PartitionOutOfRangeError,
    ProducerFencedError,
    TransactionAbortedError,
)
from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.batches.delivery import new_delivery
from kafkaclient.producer.batches.record import RawRecord, record_of_bytes
from kafkaclient.producer.bulk.send_many import BulkSend
from kafkaclient.producer.transactions.states import TransactionState, TransactionStatus
from kafkaclient.types import OffsetAndMetadata, PreparedTransaction, TopicPartition
from kafkaclient.wire.murmur2 import partition_for_key
from kafkaclient.wire.record_reader import iter_records

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping

    from kafkaclient.config import ProducerConfig
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.batches.record import Record
    from kafkaclient.producer.batches.serializers import Serializers
    from kafkaclient.producer.bulk.rows import Rows
    from kafkaclient.producer.runtime import ProducerRuntime
    from kafkaclient.types import ConsumerGroupMetadata, Headers


# --- The records of a mock producer, and the script of its failures -------------------------------

MockCall: TypeAlias = Literal[
    "start",
    "send",
    "delivery",
    "flush",
    "partitions_for",
    "begin_transaction",
    "prepare_transaction",
    "commit_transaction",
    "abort_transaction",
    "send_offsets_to_transaction",
]
"""What :meth:`MockProducer.fail` can let fail. ``send`` stands for all methods that send records,
``delivery`` for the delivery of one record."""


class MockRecord(NamedTuple):
    """A record that a mock producer was given.

    ``value`` and ``key`` are as the caller gave them, ``value_bytes`` and ``key_bytes`` as the
    serializers returned them. For ``send_arrow`` and ``send_batch``, and for ``send_many`` with
    serializers, both are bytes. ``timestamp_ms`` is in milliseconds since the epoch."""

    topic: str
    value: Any
    key: Any
    partition: int
    timestamp_ms: int
    headers: Headers
    value_bytes: bytes | None
    key_bytes: bytes | None


def _check_error(error: object) -> None:
    """Raise TypeError if a client cannot raise ``error``."""
    if not isinstance(error, KafkaError):
        raise TypeError(
            "error must be an instance of KafkaError, such as "
            f"kafkaclient.errors.BufferFullError('full'), not {error!r}"
        )


class Script:
    """The errors that ``calls`` raise, in order."""

    def __init__(self, calls: tuple[str, ...]) -> None:
        self._calls = calls
        self._errors: defaultdict[str, deque[KafkaError]] = defaultdict(deque)

    def add(self, call: str, error: KafkaError, times: int) -> None:
        if call not in self._calls:
            raise ValueError(f"call must be one of {', '.join(self._calls)}, not {call!r}")
        _check_error(error)
        if not isinstance(times, int):
            raise TypeError(f"times must be an int, not {times!r}")
        if times < 1:
            raise ValueError(f"times must be at least 1, not {times}")
        self._errors[call].extend([error] * times)

    def next(self, call: str) -> KafkaError | None:
        """Take the error of the next call; None: it succeeds."""
        errors = self._errors[call]
        return errors.popleft().for_one() if errors else None

    def run(self, call: str) -> None:
        """Raise the error of the next call, if there is one."""
        error = self.next(call)
        if error is not None:
            raise error

    def clear(self) -> None:
        self._errors.clear()


class PendingDeliveries:
    """The deliveries without an outcome, in the order of the records.

    ``partitions`` is the number of partitions of every topic, or by topic; a topic that is left out
    has one."""

    def __init__(self, config: ProducerConfig, partitions: int | Mapping[str, int]) -> None:
        self._config = config
        self._partitions = partitions
        self._pending: deque[BatchResult] = deque()
        self._ends: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._unkeyed: defaultdict[str, int] = defaultdict(int)

    def __len__(self) -> int:
        return len(self._pending)

    def partition_count(self, topic: str) -> int:
        if isinstance(self._partitions, int):
            return self._partitions
        return self._partitions.get(topic, 1)

    def choose_partition(self, topic: str, record: Record) -> int:
        """The record's own partition, the partition of its key as in Kafka, or the next in turn."""
        count = self.partition_count(topic)
        if record.partition is not None:
            if record.partition >= count:
                raise PartitionOutOfRangeError(
                    f"topic {topic!r} of the mock producer has {count} partitions, but no "
                    f"{record.partition}; pass partitions= to MockProducer"
                )
            return record.partition
        if record.key is not None and not self._config.partitioner_ignore_keys:
            return partition_for_key(record.key, count)
        self._unkeyed[topic] += 1
        return (self._unkeyed[topic] - 1) % count

    def add(self, topic: str, partition: int, timestamps: list[int], *, atomic: bool) -> Delivery:
        """The delivery of records that have one outcome."""
        result = BatchResult(topic)
        result.partition, result.atomic = partition, atomic
        result.on_delivery = self._config.on_delivery
        result.count = len(timestamps)
        delivery = new_delivery(result, timestamps[0])
        self._pending.append(result)
        return delivery

    def complete_next(self) -> bool:
        """Acknowledge the oldest; False: there is none."""
        if not self._pending:
            return False
        result = self._pending.popleft()
        place = result.topic, result.partition
        base_offset, self._ends[place] = self._ends[place], self._ends[place] + result.count
        result.resolve(base_offset, log_start_offset=0)
        return True

    def fail_next(self, error: KafkaError) -> bool:
        """Fail the oldest; False: there is none."""
        _check_error(error)
        if not self._pending:
            return False
        self._pending.popleft().fail(error)
        return True


# --- ``send_many``, ``send_arrow`` and ``send_batch`` of a mock producer --------------------------


class Guard(NamedTuple):
    """What a bulk send uses of a producer's admission."""

    check_open: Callable[[], object]
    serializers: set[asyncio.Task[Record]]

    def new_guard(self) -> Callable[[], object]:
        """Raises if the producer does not take records any more."""
        return self.check_open


class Core(NamedTuple):
    """What a bulk send uses of a producer's runtime."""

    config: ProducerConfig
    wall_clock: Callable[[], float]
    now: Callable[[], float]
    admission: Guard

    @property
    def max_block(self) -> float:
        return self.config.max_block_ms / 1000


class MockBulkSend(BulkSend):
    """Checks records as a producer does, and gives each of them to ``take``."""

    def __init__(
        self,
        core: Core,
        shared: RawRecord,
        serializers: Serializers | None,
        partitions: int,
        take: Callable[[RawRecord, Record], Delivery],
    ) -> None:
        super().__init__(cast("ProducerRuntime", core), shared, serializers)
        self.partitions = partitions
        self._mock_core = core
        self._take = take

    async def wait_for_partitions(self) -> None:
        """The number of partitions is known."""

    async def _wait_new_partition(self, partition: int | None) -> int:
        return self.partitions

    async def append_rows(self, rows: Rows) -> None:
        config, wall_clock = self._mock_core.config, self._mock_core.wall_clock
        for at in range(len(rows)):
            raw = RawRecord(self.delivery._topic, *rows.record(at))
            delivery = self._take(raw, record_of_bytes(config, wall_clock, raw))
            delivery._batch_result.live_deliveries += 1  # the bulk delivery counts as one, too
            self.delivery.add([(delivery._batch_result, 0, 1)])


def records_in(batch: Record, topic: str) -> list[RawRecord]:
    """The records of a ``send_batch``."""
    assert batch.batch is not None
    batch.batch.seal()
    return [
        RawRecord(topic, r.value, r.key, batch.partition, r.timestamp, r.headers, in_bytes=True)
        for r in iter_records(bytes(batch.batch.buffer()))
    ]


_S = TransactionState


class MockOffsets(NamedTuple):
    """The arguments of one ``send_offsets_to_transaction``."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    group: ConsumerGroupMetadata


class MockTransactions:
    """Stands in for ``TransactionManager``, with the same states and no coordinator."""

    def __init__(
        self, transactional_id: str, deliveries: PendingDeliveries, script: Script
    ) -> None:
        self._transactional_id = transactional_id
        self._status = TransactionStatus(transactional_id)
        self._deliveries = deliveries
        self._script = script
        self.records: list[MockRecord] = []
        """The records of the open transaction."""
        self.offsets: list[MockOffsets] = []
        """The offsets of the open transaction."""
        self.committed_records: list[MockRecord] = []
        """Without a ``transactional.id``: all records."""
        self.committed_offsets: list[MockOffsets] = []
        self.commits = self.aborts = 0
        self._group_offsets: dict[tuple[str, TopicPartition], OffsetAndMetadata] = {}

    @property
    def state(self) -> TransactionState:
        return self._status.state

    @property
    def abortable(self) -> bool:
        return self.state in (_S.IN_TRANSACTION, _S.PREPARED, _S.ABORTABLE_ERROR)

    def is_fatal(self, error: KafkaError) -> bool:
        return isinstance(error, ProducerFencedError)

    def initialize(self) -> None:
        self._status.move(_S.INITIALIZING)
        self._status.move(_S.READY)

    def check_open(self) -> None:
        if self.state is not _S.IN_TRANSACTION:
            advice = "begin_transaction comes first"
            raise self._status.not_allowed("the record was not sent", advice)

    def fail_transaction(self, error: KafkaError) -> None:
        """Leave the open transaction only its abort."""
        if self.state in (_S.IN_TRANSACTION, _S.PREPARED):
            self._status.cause = error
            self._status.move(_S.ABORTABLE_ERROR)

    def fence(self) -> None:
        """Every further call raises ProducerFencedError."""
        who = f"a newer producer with the transactional id {self._transactional_id!r} was started"
        self._status.cause = ProducerFencedError(who)
        if self.state is not _S.FATAL:
            self._status.move(_S.FATAL)
        self._drop("it was fenced")

    def clear(self) -> None:
        """Forget the ended transactions, except the groups' offsets."""
        self.committed_records.clear()
        self.committed_offsets.clear()
        self.commits = self.aborts = 0

    async def timed(self, _: str, work: Awaitable[None]) -> None:
        await work

    async def begin(self) -> None:
        self._script.run("begin_transaction")
        if self.state is not _S.READY:
            raise self._status.not_allowed("no transaction was begun", "it has to end first")
        self._status.move(_S.IN_TRANSACTION)

    async def prepare(self) -> PreparedTransaction | None:
        self._script.run("prepare_transaction")
        if self.state is not _S.PREPARED:
            if self.state is not _S.IN_TRANSACTION:
                raise self._status.not_allowed(
                    "nothing was prepared", "there is nothing to prepare"
                )
            self._status.move(_S.PREPARED)
        self._complete_all()
        used = self.records or self.offsets
        return PreparedTransaction(self._transactional_id, 0, 0) if used else None

    async def commit(self) -> None:
        if self.state not in (_S.IN_TRANSACTION, _S.PREPARED):
            raise self._status.not_allowed("nothing was committed", "there is nothing to commit")
        error = self._script.next("commit_transaction")
        if error is not None:
            self.fail_transaction(error)
            raise error
        self._complete_all()
        self._status.move(_S.COMMITTING)
        self._status.move(_S.READY)
        self.commits += 1
        self.committed_records += self.records
        self.committed_offsets += self.offsets
        for sent in self.offsets:
            for tp, offset in sent.offsets.items():
                self._group_offsets[sent.group.group_id, tp] = offset
        self.records, self.offsets = [], []

    async def abort(self) -> None:
        if not self.abortable:
            raise self._status.not_allowed("nothing was aborted", "there is nothing to abort")
        self._script.run("abort_transaction")
        self._drop("it was aborted")
        self._status.move(_S.ABORTING)
        self._status.move(_S.READY)
        self.aborts += 1

    def refuse_offsets(self, error: Exception) -> None:
        cause = KafkaError(f"send_offsets_to_transaction: {error}")
        cause.__cause__ = error
        self.fail_transaction(cause)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        self.check_open()
        error = self._script.next("send_offsets_to_transaction")
        if error is not None:
            self.fail_transaction(error)
            raise error
        self.offsets.append(MockOffsets(offsets, group))

    async def committed(
        self, group_id: str, partitions: tuple[TopicPartition, ...]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return {tp: self._group_offsets.get((group_id, tp)) for tp in partitions}

    def _complete_all(self) -> None:
        while self._deliveries.complete_next():
            pass

    def _drop(self, why: str) -> None:
        """Forget the records and offsets of the open transaction."""
        error = TransactionAbortedError(f"the record was not sent: its transaction ended, {why}")
        while self._deliveries.fail_next(error.for_one()):
            pass
        self.records, self.offsets = [], []
