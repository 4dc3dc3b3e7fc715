"""``send_many``, ``send_arrow`` and ``send_batch`` of a mock producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from kafkaclient.producer.batches.record import RawRecord, record_of_bytes
from kafkaclient.producer.bulk.send_many import BulkSend
from kafkaclient.wire.record_reader import iter_records

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kafkaclient.config import ProducerConfig
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.batches.record import Record
    from kafkaclient.producer.batches.serializers import Serializers
    from kafkaclient.producer.bulk.rows import Rows
    from kafkaclient.producer.runtime import ProducerRuntime


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
