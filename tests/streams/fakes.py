"""Fakes of the consumer, the inputs, the changelog reader and the writers: they record calls."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.config import ProducerConfig
from kafkaclient.errors import PartitionOutOfRangeError
from kafkaclient.producer.batches.record import RawRecord, checked_record
from kafkaclient.streams.declarations import Store, Topic
from kafkaclient.streams.state.directory import UNKNOWN_CHANGELOG, Checkpoint
from kafkaclient.streams.state.key_value_store import KeyValueStore
from kafkaclient.streams.topology import Processor, Topology

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from kafkaclient.streams.runtime.task import Task
    from kafkaclient.streams.runtime.writers import OutgoingRecord
    from kafkaclient.streams.state.directory import StateDirectory
    from kafkaclient.streams.tasks import TaskId
    from kafkaclient.types import TopicPartition

CONFIG = ProducerConfig.build({"bootstrap_servers": "127.0.0.1:9092"})


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
    place.write_checkpoint(Checkpoint(offset, None, time.time()))


class FakeInputs:
    def __init__(self) -> None:
        self.positions: dict[TopicPartition, int] = {}
        """Partitions that are read, and where their reading began."""
        self.paused: set[TopicPartition] = set()
        self.first = 3

    async def beginning(self, partition: TopicPartition) -> int:
        return self.first

    def add(self, partition: TopicPartition, offset: int) -> None:
        assert partition not in self.positions
        self.positions[partition] = offset
        self.paused.add(partition)

    def remove(self, partition: TopicPartition) -> None:
        self.positions.pop(partition, None)
        self.paused.discard(partition)

    def resume(self, partition: TopicPartition) -> None:
        self.paused.remove(partition)

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

    async def __call__(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
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


def checked(record: OutgoingRecord) -> OutgoingRecord:
    """The record as a producer checks it. Raises InvalidRecordError."""
    made = checked_record(CONFIG, time.time, RawRecord(*record))
    return record._replace(value=made.value, key=made.key, headers=made.headers)


class FakeWriter:
    """``fail`` is raised by the next commit."""

    def __init__(self, log: list[str], name: str = "w") -> None:
        self.log = log
        self.name = name
        self.fail: BaseException | None = None
        self.offset: int | None = None
        self.next_position: int | None = 10
        self.emitted: list[tuple[Any, ...]] = []
        self.partitions = 1
        self.commits: list[tuple[dict[bytes, bytes | None], int]] = []
        self.may_stop = asyncio.Event()
        self.may_stop.set()

    async def start(self) -> None:
        self.log.append(f"{self.name} start")

    async def begin(self) -> None:
        self.log.append(f"{self.name} begin")

    def checked(self, record: OutgoingRecord) -> OutgoingRecord:
        return checked(record)

    async def send(self, record: OutgoingRecord) -> None:
        made = checked(record)
        if record.partition is not None and record.partition >= self.partitions:
            raise PartitionOutOfRangeError(
                f"topic {record.topic!r} has no partition {record.partition}"
            )
        self.emitted.append(made)

    async def commit(self, changes: Any, offsets: Any) -> dict[Any, int | None]:
        if self.fail is not None:
            raise self.fail
        changed: dict[bytes, bytes | None] = {}
        for pairs in changes.values():
            changed |= pairs
        (offset,) = offsets.values()
        self.commits.append((changed, offset))
        return dict.fromkeys(changes, self.next_position)

    async def committed(self, sources: Any) -> dict[Any, int | None]:
        self.log.append(f"{self.name} committed")
        return dict.fromkeys(sources, self.offset)

    async def stop(self) -> None:
        await self.may_stop.wait()
        self.log.append(f"{self.name} stop")
