"""Runs an application without brokers, for tests: in memory, and in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, overload

from kafkaclient.errors import ConfigError, PartitionOutOfRangeError, StreamsError
from kafkaclient.producer.batches.record import RawRecord, checked_record, header_pairs
from kafkaclient.streams.declarations import Record, Topic
from kafkaclient.streams.key_value_store import KeyValueStore
from kafkaclient.streams.runtime.outputs import OutgoingRecord
from kafkaclient.streams.runtime.record_work import Outputs, RecordWork, cancelled_error
from kafkaclient.streams.tasks import TaskId
from kafkaclient.testing.clock import VirtualTimeLoop
from kafkaclient.types import TopicPartition
from kafkaclient.wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator

    from kafkaclient.config.producer import ProducerConfig
    from kafkaclient.errors import StateStoreError
    from kafkaclient.streams.app import StreamsApp
    from kafkaclient.types import Headers, HeadersLike


class Fetched(NamedTuple):
    """A record as consumers return it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    headers: Headers
    key: bytes | None
    value: bytes | None


class Memory:
    """The committed pairs of one store."""

    failure: StateStoreError | None = None

    def __init__(self) -> None:
        self._pairs: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self._pairs.get(key)

    def items(self, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted(p for p in self._pairs.items() if start is None or p[0] >= start))

    def apply(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        for key, value in changes:
            if value is None:
                self._pairs.pop(key, None)
            else:
                self._pairs[key] = value


class Log:
    """All topics, and the :class:`Output` of all tasks. The records that a processor emits are
    appended when it has succeeded."""

    small_bytes = 0

    def __init__(
        self, config: ProducerConfig, partitions: Callable[[str], int], now_ms: Callable[[], int]
    ) -> None:
        self.records: defaultdict[str, list[Fetched]] = defaultdict(list)
        self.emitted: list[tuple[OutgoingRecord, int]] = []
        """Records with their partitions, not appended yet."""
        self._config = config
        self._partitions = partitions
        self._now_ms = now_ms
        self._ends: Counter[TopicPartition] = Counter()
        self._without_key: Counter[str] = Counter()

    def checked(self, record: OutgoingRecord) -> OutgoingRecord:
        made = checked_record(self._config, lambda: self._now_ms() / 1000, RawRecord(*record))
        return record._replace(value=made.value, key=made.key, headers=made.headers)

    async def prepare(self, records: Iterable[OutgoingRecord]) -> None:
        for record in records:
            self._check_partition(record)

    async def send(self, record: OutgoingRecord) -> None:
        checked = self.checked(record)
        self._check_partition(checked)
        self.emitted.append((checked, self._partition(checked)))

    def _check_partition(self, record: OutgoingRecord) -> None:
        count = self._partitions(record.topic)
        if record.partition is not None and record.partition >= count:
            raise PartitionOutOfRangeError(
                f"topic {record.topic!r} has {count} partitions, numbered from 0; "
                f"{record.partition} is not one of them. TopologyTest(app, partitions=...) "
                "sets the number"
            )

    def _partition(self, record: OutgoingRecord) -> int:
        count = self._partitions(record.topic)
        if record.partition is not None:
            return record.partition
        if record.key is not None:
            return partition_for_key(record.key, count)
        self._without_key[record.topic] += 1
        return (self._without_key[record.topic] - 1) % count

    def append_emitted(self) -> list[Fetched]:
        emitted, self.emitted = self.emitted, []
        return [self._append(record, partition) for record, partition in emitted]

    def _append(self, record: OutgoingRecord, partition: int) -> Fetched:
        place = TopicPartition(record.topic, partition)
        timestamp = self._now_ms() if record.timestamp_ms is None else record.timestamp_ms
        headers: Any = tuple(record.headers or ())
        fetched = Fetched(*place, self._ends[place], timestamp, headers, record.key, record.value)
        self._ends[place] += 1
        self.records[record.topic].append(fetched)
        return fetched


K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_NONE: Any = None


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise StreamsError(
        "TopologyTest has its own event loop, with virtual time: call it in a plain test function, "
        "not in a coroutine"
    )


def _checked_partitions(
    partitions: Any, inputs: Collection[str], internal: Collection[str]
) -> int | dict[str, int]:
    given = partitions if isinstance(partitions, Mapping) else dict.fromkeys(inputs, partitions)
    for topic, count in given.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ConfigError(f"partitions={partitions!r}: give a number above 0, or a mapping")
        if topic in internal:
            raise ConfigError(
                f"partitions={partitions!r} has {topic!r}, which the application makes: "
                f"RepartitionTopic({topic!r}, partitions=...) sets its number"
            )
    if missing := [topic for topic in inputs if topic not in given]:
        raise ConfigError(f"partitions={partitions!r} does not have the input {missing[0]!r}")
    return dict(given) if given is partitions else partitions


class TopologyTest:
    """An application without brokers (Kafka Streams: ``TopologyTestDriver``)::

        with TopologyTest(app) as test:
            test.send("lines", "to be or not to be")
            assert test.store("counts")["be"] == 2

    The processors, types, stores and error handlers are the application's own. Each :meth:`send`
    returns when the record and all records that processors emitted because of it are processed.
    Processors run in an event loop of the test's own with a virtual clock, in which
    ``asyncio.sleep`` takes no real time; so a test is a plain function, not a coroutine function.

    ``partitions`` is the number of partitions of every topic (default 1), or a mapping that has all
    inputs, and outputs with more than one; repartition topics have the number that the application
    would give them. ``start_ms`` is the virtual time of the start, in milliseconds since 1970.

    Raises:
        ConfigError: ``partitions`` is neither a number above 0, nor a mapping of the inputs.
        StreamsError: the number of partitions differs between the inputs of a store, the
            application has no processor, or an event loop runs in this thread.
    """

    def __init__(
        self, app: StreamsApp, *, partitions: int | Mapping[str, int] = 1, start_ms: int = 0
    ) -> None:
        _check_no_loop()
        topology = app.topology
        if not topology.processors:
            raise StreamsError("the application has no processor: add one with app.processor(...)")
        topology = topology.with_repartition_topics(topology.inferred_repartition_topics([]))
        made = topology.internal_topics
        inputs = [name for name in topology.topics if name not in made]
        self._given = _checked_partitions(partitions, inputs, topology.repartition_topics)
        counts = {name: self._count_given(name) for name in inputs}
        self._counts = counts | topology.repartition_counts(counts)
        topology.check_partitions(self._counts)
        self._topology = topology
        self._metrics = app.observer.metrics
        self._start_ms = start_ms
        self._loop = VirtualTimeLoop()
        self._outputs = Outputs(topology)
        self._log = Log(
            app.config.producer_config,
            lambda topic: self._counts.get(topic) or self._count_given(topic),
            lambda: self.now_ms,
        )
        self._stores: dict[tuple[str, int], KeyValueStore[Any, Any]] = {}
        self._works: dict[TopicPartition, RecordWork | None] = {}
        """None: of an output."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what processors left running, and close the event loop."""
        if self._loop.is_closed():
            return
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._run(asyncio.wait(left))
        self._run(self._loop.shutdown_asyncgens())
        self._loop.close()

    @property
    def now_ms(self) -> int:
        """The virtual time, in milliseconds since 1970."""
        return self._start_ms + int(self._loop.time() * 1000)

    def advance(self, seconds: float) -> None:
        """Let virtual time pass, for what processors left running."""
        self._run(asyncio.sleep(seconds))

    def send(
        self,
        topic: Topic[K, V] | str,
        value: V = _NONE,
        key: K = _NONE,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> None:
        """Write a record to an input topic, with the topic's types, and process what follows.

        Raises:
            TypeError: the key or value is not of the topic's type. :meth:`send_bytes` sends it.
            PartitionOutOfRangeError: the topic has fewer partitions.
            DeserializationError, ProcessingError: as :meth:`StreamsApp.run`. The record's changes
                and emitted records are dropped. What is no Exception is raised unchanged.
            StreamsError: no processor reads the topic.
        """
        output = self._input(topic)
        listed = list(header_pairs(headers or ()))

        async def send() -> None:
            key_bytes = await output.key.write_for(key, output.topic, "key", listed)
            value_bytes = await output.value.write_for(value, output.topic, "value", listed)
            rest = (partition, timestamp_ms, listed)
            await self._send(OutgoingRecord(output.topic, value_bytes, key_bytes, *rest))

        self._run(send())

    def send_bytes(
        self,
        topic: str | Topic[Any, Any],
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> None:
        """As :meth:`send`, with bytes, also those that the topic's types cannot decode."""
        name = self._input(topic).topic
        rest = (partition, timestamp_ms, list(header_pairs(headers or ())))
        self._run(self._send(OutgoingRecord(name, value, key, *rest)))

    def _input(self, topic: Any) -> Any:
        name = topic.name if isinstance(topic, Topic) else topic
        if name not in self._topology.inputs:
            raise StreamsError(
                f"no processor reads topic {name!r}: the inputs are "
                f"{', '.join(self._topology.inputs)}"
            )
        return self._outputs[topic]

    async def _send(self, record: OutgoingRecord) -> None:
        for store in self._stores.values():
            store.commit()  # what the test has prepared
        await self._log.send(record)
        await self._process(deque(self._log.append_emitted()))

    @overload
    def records(self, topic: Topic[K, V]) -> list[Record[K, V]]: ...
    @overload
    def records(self, topic: str) -> list[Record[Any, Any]]: ...
    def records(self, topic: Any) -> list[Record[Any, Any]]:
        """All records of a topic in the order of writing, decoded with its types: those of the
        given Topic, or of the processor that reads it, else bytes.

        Raises :class:`~kafkaclient.errors.StreamsError` for a name that no processor reads or has
        in its code, unless something has been written there.
        """
        name = topic.name if isinstance(topic, Topic) else topic
        if name is topic and not self._is_known(topic):
            raise StreamsError(
                f"no processor reads topic {topic!r} or has its name, and nothing was written to "
                "it: correct the name, or give the Topic that processors emit to"
            )
        output = self._outputs[topic]
        return [
            Record(
                name,
                each.partition,
                each.offset,
                each.timestamp,
                each.headers,
                output.key.read(each.key),
                output.value.read(each.value),
            )
            for each in self._log.records[output.topic]
        ]

    def store(self, name: str, partition: int = 0) -> KeyValueStore[Any, Any]:
        """A task's part of a store, to read it, or to prepare it before records are sent.

        Raises :class:`~kafkaclient.errors.StreamsError` if the application has no such store, or
        its inputs have fewer partitions.
        """
        for subtopology in self._topology.subtopologies:
            for declared in subtopology.stores:
                if declared.name == name:
                    count = self._counts[self._topology.topic_name(subtopology.topics[0])]
                    if not 0 <= partition < count:
                        raise StreamsError(
                            f"store {name!r} has no partition {partition}: its inputs have {count}"
                        )
                    found = self._stores.get((name, partition))
                    if found is None:
                        found = KeyValueStore(declared, Memory())
                        self._stores[name, partition] = found
                    return found
        known = [store.name for each in self._topology.subtopologies for store in each.stores]
        raise StreamsError(f"the application has no store {name!r}: {', '.join(known) or 'none'}")

    def _count_given(self, topic: str) -> int:
        return self._given if isinstance(self._given, int) else self._given.get(topic, 1)

    def _is_known(self, topic: str) -> bool:
        topology = self._topology
        return (
            topic in topology.inputs
            or topic in topology.dead_letter_topics
            or topic in self._log.records
            or any(each.mentions(topic) for each in topology.processors)
        )

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise StreamsError("this TopologyTest is closed: make another one")
        return self._loop.run_until_complete(work)

    async def _process(self, waiting: deque[Fetched]) -> None:
        runner = asyncio.current_task()
        assert runner is not None
        while waiting:
            record = waiting.popleft()
            work = self._work(TopicPartition(record.topic, record.partition))
            if work is None:
                continue  # an output
            for store in self._stores.values():
                store.mark()  # what the test has written belongs to no record
            try:
                emitted = await work.process(record)
                if runner.cancelling():
                    raise asyncio.CancelledError  # noqa: TRY301 - the processor may have caught it
            except BaseException as error:
                for store in self._stores.values():
                    store.roll_back()
                if isinstance(error, asyncio.CancelledError):
                    raise cancelled_error(record.partition, record) from error
                raise
            for store in self._stores.values():
                store.mark()
                store.commit()
            for each in emitted:
                await self._log.send(each)
            waiting += self._log.append_emitted()

    def _work(self, source: TopicPartition) -> RecordWork | None:
        if source not in self._works:
            self._works[source] = self._new_work(source)
        return self._works[source]

    def _new_work(self, source: TopicPartition) -> RecordWork | None:
        readers = (
            (TaskId(number, source.partition), processor, topic)
            for number, subtopology in enumerate(self._topology.subtopologies)
            for processor in subtopology.processors
            for topic in processor.topics
            if self._topology.topic_name(topic.name) == source.topic
        )
        if (found := next(readers, None)) is None:
            return None
        task, processor, topic = found
        log: Any = self._log  # the part of an Output that a RecordWork uses
        return RecordWork(
            source,
            topic,
            processor,
            {store.name: self.store(store.name, task.partition) for store in processor.stores},
            log,
            self._outputs,
            on_dropped=lambda _offset: self._metrics.dropped(task, 1),
        )
