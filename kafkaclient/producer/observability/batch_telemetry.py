"""Records a row for each batch: how it was bound to its partition, and its outcome.

Imported only if ``telemetry`` is set, because it imports pyarrow.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import TYPE_CHECKING

from kafkaclient.producer.batches.batch import BindingFacts
from kafkaclient.telemetry.parquet import STARTED
from kafkaclient.telemetry.recorder import Recorder
from kafkaclient.telemetry.rows import BatchRow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkaclient.config import ProducerConfig
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.partition_queue import PartitionQueue

_OLDEST = 16  # queued batches that are measured; the cost must not grow with the queue
_SETTINGS = (
    "acks",
    "adaptive_partitioning_enable",
    "availability_timeout_ms",
    "batch_size",
    "client_id",
    "compression_type",
    "linger_ms",
    "max_in_flight_requests_per_connection",
    "partitioner",
    "partitioner_ignore_keys",
)


_NO_FACTS = BindingFacts()


class BatchTelemetry:
    """Writes a row for each batch to Parquet files; times count from the producer's start.

    ``in_flight_of(lane)`` gives a lane's requests in flight and its in-flight window.
    """

    def __init__(
        self,
        config: ProducerConfig,
        directory: Path,
        *,
        in_flight_of: Callable[[int], tuple[int, int]],
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._client_id = config.client_id
        self._acks = config.acks
        self._in_flight_of = in_flight_of
        self._clock = clock
        self._start = clock()
        self._recorder = Recorder(directory, config.client_id, _file_metadata(config, wall_clock()))

    def on_bound(
        self, batch: ProducerBatch, target: PartitionQueue, bound_by: str, now: float
    ) -> None:
        """The batch, which is in no queue now, is bound to the partition of ``target``."""
        source = batch.queue
        in_flight, window = self._in_flight_of(target.lane)
        batch.record_binding(
            BindingFacts(
                bound_by,
                now,
                queued_batches=len(source.batches),
                queued_bytes=_queued_bytes(source),
                in_flight=in_flight,
                window=window,
            )
        )

    def on_sent(self, batch: ProducerBatch) -> None:
        """The batch was written to its broker, perhaps again."""
        facts = batch.binding_facts
        if facts is not None and facts.sent_at is None:
            facts.broker = batch.queue.leader
            facts.sent_at = self._clock()

    def on_outcome(self, batch: ProducerBatch, now: float) -> None:
        """The batch has its outcome."""
        batch_result, facts = batch.result, batch.binding_facts or _NO_FACTS
        error = batch_result.error
        self._recorder.add(
            BatchRow(
                client_id=self._client_id,
                topic=batch_result.topic,
                partition=batch_result.partition,
                broker=facts.broker,
                records=batch.count,
                bytes=batch.size,
                attempts=batch.attempts,
                created_s=batch.created - self._start,
                bound_s=self._since_start(facts.bound_at),
                sent_s=self._since_start(facts.sent_at),
                acknowledged_s=now - self._start if self._acks and error is None else None,
                queued_batches=facts.queued_batches,
                queued_bytes=facts.queued_bytes,
                in_flight=facts.in_flight,
                window=facts.window,
                bound_by=facts.bound_by,
                error=None if error is None else type(error).__name__,
            )
        )

    def _since_start(self, at: float | None) -> float | None:
        return None if at is None else at - self._start

    async def close(self) -> None:
        """Write the rows that are still in memory."""
        await self._recorder.close()


def _queued_bytes(queue: PartitionQueue) -> int:
    """The bytes queued; estimated from the oldest batches if there are many."""
    batches = queue.batches
    if len(batches) <= _OLDEST:
        return queue.queued_bytes
    return sum(batch.size for batch in islice(batches, _OLDEST)) * len(batches) // _OLDEST


def _file_metadata(config: ProducerConfig, started: float) -> dict[str, str]:
    """The files' metadata: the settings that affect the rows, under Kafka's names."""
    facts = {
        f"kafkaclient.{config.OPTIONS[name].kafka_name}": str(getattr(config, name))
        for name in _SETTINGS
    }
    facts[STARTED] = datetime.fromtimestamp(started, UTC).isoformat()
    facts["kafkaclient.version"] = _version()
    return facts


def _version() -> str:
    try:
        return version("kafkaclient")
    except PackageNotFoundError:
        return "unknown"  # run from a source tree
