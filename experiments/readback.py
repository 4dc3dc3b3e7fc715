"""Reads a topic with another client's consumer, and compares it with the records sent."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkaclient.perf.run import RunRecord
    from kafkaclient.perf.traffic import KeyValue

__all__ = ["Ledger", "ReadBack", "read_back", "read_topic"]

_FETCH_BYTES = 4 * 1024 * 1024
_POLL_MS = 1000
_STALLED_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBack:
    """The records of a topic compared with those that were sent."""

    records: int
    """Records in the topic."""
    lost: int
    """Records that were sent and are not in the topic."""
    duplicated: int
    """Copies beyond the first."""
    reordered: int
    """Records behind a record that was sent later, with the same key or in the same partition."""
    unexpected: int
    """Records that were not sent, or were sent with another key."""
    ordered_by: Literal["key", "partition"]
    records_per_partition: tuple[int, ...]
    seconds: float

    @property
    def is_exact(self) -> bool:
        """Whether the topic holds every record exactly once, in order, and no other."""
        return not (self.lost or self.duplicated or self.reordered or self.unexpected)

    def added_to(self, record: RunRecord) -> RunRecord:
        """The run's record with the numbers of lost, duplicated and reordered records."""
        return replace(record, lost=self.lost, duplicated=self.duplicated, reordered=self.reordered)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Ledger:
    """Compares a topic's records, read in the order of their offsets, with the sequence sent.

    All values must differ. Order is checked among the records of a key if ``ordered_by`` is "key",
    else among the records of a partition.
    """

    def __init__(
        self, sent: Sequence[KeyValue], ordered_by: Literal["key", "partition"], partitions: int
    ) -> None:
        self._sent = sent
        self._ordered_by = ordered_by
        self._place = {value: place for place, (_key, value) in enumerate(sent)}
        if len(self._place) != len(sent):
            raise ValueError("the values to compare with are not all different")
        self._seen = bytearray(len(sent))
        self._last: dict[tuple[int, bytes | None], int] = {}
        self._per_partition = Counter(dict.fromkeys(range(partitions), 0))
        self._duplicated = self._reordered = self._unexpected = 0

    @property
    def records(self) -> int:
        return self._per_partition.total()

    def read(self, partition: int, key: bytes | None, value: bytes) -> None:
        """Take the next record of a partition."""
        self._per_partition[partition] += 1
        place = self._place.get(value)
        if place is None or self._sent[place][0] != key:
            self._unexpected += 1
        elif self._seen[place]:
            self._duplicated += 1
        else:
            self._seen[place] = 1
            line = (-1, key) if self._ordered_by == "key" else (partition, None)
            if place < self._last.get(line, -1):
                self._reordered += 1
            else:
                self._last[line] = place

    def result(self, seconds: float) -> ReadBack:
        return ReadBack(
            records=self.records,
            lost=self._seen.count(0),
            duplicated=self._duplicated,
            reordered=self._reordered,
            unexpected=self._unexpected,
            ordered_by=self._ordered_by,
            records_per_partition=tuple(
                count for _partition, count in sorted(self._per_partition.items())
            ),
            seconds=seconds,
        )


async def read_back(
    bootstrap: str,
    topic: str,
    sent: Sequence[KeyValue],
    *,
    on_progress: Callable[[int], None] | None = None,
) -> ReadBack:
    """The comparison of ``topic``, from its start to its end, with ``sent``.

    Order is checked per key if the first record has a key, else per partition. ``on_progress`` is
    called with the number of records read so far. Raises as :func:`read_topic`.
    """
    start = time.perf_counter()
    ledger: Ledger | None = None

    def begin(partitions: int) -> None:
        nonlocal ledger
        ledger = Ledger(sent, _ordered_by(sent), partitions)

    def take(message: Any) -> None:
        assert ledger is not None
        ledger.read(message.partition, message.key, message.value)

    await read_topic(bootstrap, topic, take, on_begin=begin, on_progress=on_progress)
    assert ledger is not None
    return ledger.result(time.perf_counter() - start)


async def read_topic(
    bootstrap: str,
    topic: str,
    take: Callable[[Any], None],
    *,
    on_begin: Callable[[int], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> None:
    """Call ``take`` with aiokafka's record for every record that the topic has now.

    The records of a partition come in the order of their offsets. ``on_begin`` is called with the
    number of partitions before the first record, ``on_progress`` with the number of records so far.
    Raises KafkaError if no record arrives for 30 s before the end.
    """
    aiokafka = import_module("aiokafka")
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=_FETCH_BYTES,
        fetch_max_bytes=_FETCH_BYTES * 4,
        client_id="kafkaclient-read-back",
    )
    await consumer.start()
    try:
        # The consumer fetches metadata for a topic after the first question, which finds nothing.
        partitions = await _partitions(consumer, topic)
        tps = [aiokafka.TopicPartition(topic, partition) for partition in partitions]
        consumer.assign(tps)
        if on_begin is not None:
            on_begin(len(tps))
        await _read_all(consumer, await consumer.end_offsets(tps), take, on_progress)
    finally:
        await consumer.stop()


async def _partitions(consumer: Any, topic: str) -> list[int]:
    consumer.subscribe([topic])
    deadline = time.perf_counter() + _STALLED_S
    while time.perf_counter() < deadline:
        found = consumer.partitions_for_topic(topic)
        if found:
            consumer.unsubscribe()
            return sorted(found)
        await asyncio.sleep(0.1)
    raise KafkaError(f"topic {topic}: no partitions found to read back within {_STALLED_S:.0f} s")


def _ordered_by(sent: Sequence[KeyValue]) -> Literal["key", "partition"]:
    return "key" if sent and sent[0][0] is not None else "partition"


async def _read_all(
    consumer: Any,
    ends: dict[Any, int],
    take: Callable[[Any], None],
    on_progress: Callable[[int], None] | None,
) -> None:
    open_ends = {tp: end for tp, end in ends.items() if end}
    read, last_arrival = 0, time.perf_counter()
    while open_ends:
        fetched = await consumer.getmany(*open_ends, timeout_ms=_POLL_MS)
        if not fetched and time.perf_counter() - last_arrival > _STALLED_S:
            unread = ", ".join(f"{tp.topic}-{tp.partition}" for tp in open_ends)
            raise KafkaError(
                f"reading back stopped after {read} records: nothing arrived for "
                f"{_STALLED_S:.0f} s from {unread}"
            )
        for tp, messages in fetched.items():
            for message in messages:
                take(message)
            read += len(messages)
            if messages and messages[-1].offset + 1 >= open_ends[tp]:
                del open_ends[tp]
            last_arrival = time.perf_counter()
        if on_progress is not None:
            on_progress(read)
