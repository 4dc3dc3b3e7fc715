"""Topics and stores in memory, for :class:`~kafkaclient.streams.testing.TopologyTest`."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.errors import PartitionOutOfRangeError
from kafkaclient.producer.batches.record import RawRecord, checked_record
from kafkaclient.types import TopicPartition
from kafkaclient.wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkaclient.config.producer import ProducerConfig
    from kafkaclient.errors import StateStoreError
    from kafkaclient.streams.runtime.outputs import OutgoingRecord
    from kafkaclient.types import Headers


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
