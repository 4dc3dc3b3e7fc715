"""Fakes of the consumer, the inputs, the changelog reader and the output: they record calls."""

from __future__ import annotations

import asyncio
import math
import time
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from kafkaclient.config import ProducerConfig
from kafkaclient.errors import PartitionOutOfRangeError
from kafkaclient.group.commit_gate import CommitGate
from kafkaclient.producer.batches.record import RawRecord, checked_record
from kafkaclient.streams.declarations import Store, Topic
from kafkaclient.streams.key_value_store import KeyValueStore
from kafkaclient.streams.runtime.task import TaskOptions
from kafkaclient.streams.runtime.task_manager import TaskManager
from kafkaclient.streams.runtime.task_store import RocksStore
from kafkaclient.streams.state_directory import UNKNOWN_CHANGELOG, Checkpoint
from kafkaclient.streams.topology import Processor, Topology
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from kafkaclient.streams.runtime.outputs import OutgoingRecord, Work
    from kafkaclient.streams.runtime.task import Task
    from kafkaclient.streams.state_directory import StateDirectory
    from kafkaclient.streams.tasks import TaskId

CONFIG = ProducerConfig.build({"bootstrap_servers": "127.0.0.1:9092"})


class Clock:
    """Stands still, unless a test changes ``now``."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class GiveUp(BaseException):
    """No Exception."""


class Record(NamedTuple):
    """The fields of fetched records that tasks read."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = 1_000
    headers: tuple[tuple[str, bytes], ...] = ()
    topic: str = "words"


def record(offset: int, key: bytes | None, value: bytes | None = b"") -> Any:
    return Record(offset, key, value)


async def count(record: Any, store: Any, emit: Any) -> None:
    """Count keys. The key ``boom`` fails after its change."""
    number = int(store.get(record.key) or 0) + 1
    store[record.key] = b"%d" % number
    if record.key == b"boom":
        raise ZeroDivisionError("boom")
    await emit("counts", b"%d" % number, record.key)


def counting() -> Topology:
    return topology_of(count)


def sources(tasks: Iterable[TaskId]) -> dict[TaskId, list[TopicPartition]]:
    """An assignment of active tasks that read ``words``."""
    return {task: [TopicPartition("words", task.partition)] for task in tasks}


def topology_of(
    process: Any, topic: str = "words", store: str = "counts", value: Any = bytes, **options: Any
) -> Topology:
    """One processor of a topic with a store, both of bytes."""
    processor = Processor(
        topics=(Topic(topic, value=value),), stores=(Store(store),), process=process, **options
    )
    return Topology("app").with_processor(processor)


def bytes_store(rocks: Any) -> KeyValueStore[bytes, bytes]:
    return KeyValueStore(Store("counts"), rocks)


def on_disk(directory: StateDirectory, task: TaskId, offset: int, store: str = "counts") -> None:
    """Prepare a directory as if the task had been here recently."""
    place = directory.task(task).store(store)
    place.load_or_wipe(UNKNOWN_CHANGELOG, time.time())
    rocks = RocksStore(place.rocksdb)
    rocks.flush(offset)
    rocks.close()
    place.write_checkpoint(Checkpoint(offset, None, time.time()))


class FakeInputs:
    def __init__(self) -> None:
        self.positions: dict[TopicPartition, int] = {}
        """Partitions that are read, and where their reading began."""
        self.first = 3
        self.topic_id = UUID(int=1)
        self.rows = 1_000
        self.at_end = False

    def begins_at_end(self, partition: TopicPartition) -> bool:
        return self.at_end

    async def beginning(self, partition: TopicPartition) -> int:
        return self.first

    async def topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        return dict.fromkeys(topics, self.topic_id)

    def add(self, partition: TopicPartition, offset: int, topic_id: UUID | None) -> None:
        assert topic_id == self.topic_id
        assert partition not in self.positions
        self.positions[partition] = offset

    def remove(self, partition: TopicPartition) -> None:
        self.positions.pop(partition, None)

    def most_rows(self, partition: TopicPartition) -> int:
        return self.rows

    def wake(self) -> None:
        """Nothing waits."""


class FakeReader:
    def __init__(self) -> None:
        self.followed: list[Task] = []

    def follow(self, tasks: Iterable[Task]) -> None:
        self.followed = list(tasks)


class FakeEnds:
    """Fetches end offsets. Calls ``problem`` first, if it is set."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.end = 0
        """The end offset of changelogs."""
        self.source_end = 1_000_000
        self.problem: Callable[[], Awaitable[None]] | None = None

    async def __call__(
        self, partitions: Iterable[TopicPartition], *, read_committed: bool = True
    ) -> dict[TopicPartition, int]:
        self.log.append("ends")
        if self.problem is not None:
            await self.problem()
        return {p: self.source_end if p.topic == "words" else self.end for p in partitions}


class InlineDisk(Executor):
    """Runs its work immediately."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - raised by the future's result
            future.set_exception(error)
        return future


async def commit_all(manager: TaskManager) -> None:
    """Commit the work of all tasks now."""
    for task in list(manager.tasks.values()):
        await manager.committers.of(task).commit()


def checked(record: OutgoingRecord) -> OutgoingRecord:
    """The record as a producer checks it. Raises InvalidRecordError."""
    made = checked_record(CONFIG, time.time, RawRecord(*record))
    return record._replace(value=made.value, key=made.key, headers=made.headers)


class FakeDelivery:
    """Done. ``error`` is why the broker refused the record."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def done(self) -> bool:
        return True

    def exception(self) -> Exception | None:
        return self.error


class FakeOutput:
    """``refused`` has values that the broker refuses. ``fail`` is raised by the next commit,
    ``problem`` by each :meth:`prepare`. Records its calls in ``log``."""

    is_transactional = True
    max_change_bytes = 1_000
    small_bytes = 0

    def __init__(self, log: list[str] | None = None) -> None:
        self.log = [] if log is None else log
        self.fail: BaseException | None = None
        self.refused: dict[bytes, Exception] = {}
        self.problem: BaseException | None = None
        self.offset: int | None = None
        """The committed offset of each partition."""
        self.next_position: int | None = 10
        self.emitted: list[OutgoingRecord] = []
        self.partitions = 1
        self.commits: list[dict[TopicPartition, int]] = []
        """The offsets of each commit."""
        self.changes: list[dict[bytes, bytes | None]] = []
        """The changes of each commit."""
        self.is_running = False
        self.may_commit = asyncio.Event()
        self.may_commit.set()

    async def start(self) -> None:
        if not self.is_running:
            self.log.append("start")
        self.is_running = True

    async def stop(self) -> None:
        self.log.append("stop")
        self.is_running = False

    async def abandon(self) -> None:
        self.log.append("abandon")
        self.is_running = False

    def checked(self, record: OutgoingRecord) -> OutgoingRecord:
        return checked(record)

    async def prepare(self, records: Iterable[OutgoingRecord]) -> None:
        if self.problem is not None:
            raise self.problem
        for record in records:
            if record.partition is not None and record.partition >= self.partitions:
                raise PartitionOutOfRangeError(
                    f"topic {record.topic!r} has no partition {record.partition}"
                )

    async def begin(self) -> None:
        """There is always a transaction."""

    async def send(self, record: OutgoingRecord) -> FakeDelivery:
        return self.send_nowait(record)

    def send_nowait(self, record: OutgoingRecord) -> FakeDelivery:
        self.emitted.append(record)
        return FakeDelivery(self.refused.get(record.value))

    async def commit(
        self, work: Iterable[Work], emitted: Any, times_lost: int
    ) -> dict[TopicPartition, int]:
        await self.may_commit.wait()
        if self.fail is not None:
            failure, self.fail = self.fail, None
            raise failure
        self.commits.append({p: offset for one in work for p, offset in one.offsets.items()})
        changes = {c: found for one in work for c, found in one.changes.items() if found}
        self.changes.append({k: v for found in changes.values() for k, v in found.items()})
        return {} if self.next_position is None else dict.fromkeys(changes, self.next_position)

    async def fetch_committed(self, sources: Any, topic_ids: Any) -> dict[Any, int | None]:
        self.log.append("committed")
        return dict.fromkeys(sources, self.offset)


def opened_gate() -> CommitGate:
    gate = CommitGate("app", None)
    gate.begin_generation(1, "member")
    gate.open()
    gate.answered(math.inf)
    return gate


def new_manager(
    topology: Topology,
    directory: StateDirectory,
    inputs: Any,
    reader: Any,
    ends: Any,
    output: Any,
    crash: Callable[[BaseException], None],
    disk: Executor | None = None,
    **options: Any,
) -> TaskManager:
    """A manager with a member's gate that is open."""
    return TaskManager(
        *(topology, directory, inputs, reader, ends, output, opened_gate()),
        crash=crash,
        disk=disk or InlineDisk(),
        options=TaskOptions(**options),
    )
