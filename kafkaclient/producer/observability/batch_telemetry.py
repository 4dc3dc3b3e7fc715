"""What telemetry keeps of each batch: how it came to its partition, and what became of it.

Imported only when it is wanted, because it brings pyarrow in.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import TYPE_CHECKING

from kafkaclient.producer.batches.batch import BindingFacts
from kafkaclient.telemetry.parquet import STARTED
from kafkaclient.telemetry.recorder import Recorder
from kafkaclient.telemetry.row import BatchRow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkaclient.config import ProducerConfig
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.partition_queue import PartitionQueue

__all__ = ["BatchTelemetry"]

# How many of the batches that wait are looked at to tell how many bytes wait: a decision must not
# cost in proportion to what is queued.
_OLDEST = 16
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


_UNDECIDED = BindingFacts()


class BatchTelemetry:
    """Records each batch to Parquet files; times count from when it is made, with the producer.

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
        self._recorder = Recorder(directory, config.client_id, _facts(config, wall_clock()))

    def on_bound(
        self, batch: ProducerBatch, target: PartitionQueue, bound_by: str, now: float
    ) -> None:
        """The batch, not in a queue at the moment, is to go to the partition of ``target``."""
        waiting = batch.queue
        in_flight, window = self._in_flight_of(target.lane)
        batch.record_binding(
            BindingFacts(
                bound_by,
                now,
                queued_batches=len(waiting.batches),
                queued_bytes=_bytes_of(waiting),
                in_flight=in_flight,
                window=window,
            )
        )

    def on_sent(self, batch: ProducerBatch) -> None:
        """The batch was written to its broker, perhaps again."""
        decision = batch.binding_facts
        if decision is not None and decision.sent_at is None:
            decision.broker = batch.queue.leader
            decision.sent_at = self._clock()

    def on_outcome(self, batch: ProducerBatch, now: float) -> None:
        """The batch has its outcome."""
        batch_result, decision = batch.result, batch.binding_facts or _UNDECIDED
        error = batch_result.error
        self._recorder.add(
            BatchRow(
                client_id=self._client_id,
                topic=batch_result.topic,
                partition=batch_result.partition,
                broker=decision.broker,
                records=batch.count,
                bytes=batch.size,
                attempts=batch.attempts,
                created_s=batch.created - self._start,
                bound_s=self._since_start(decision.bound_at),
                sent_s=self._since_start(decision.sent_at),
                acknowledged_s=now - self._start if self._acks and error is None else None,
                queued_batches=decision.queued_batches,
                queued_bytes=decision.queued_bytes,
                in_flight=decision.in_flight,
                window=decision.window,
                bound_by=decision.bound_by,
                error=None if error is None else type(error).__name__,
            )
        )

    def _since_start(self, at: float | None) -> float | None:
        return None if at is None else at - self._start

    async def close(self) -> None:
        """Write what is left."""
        await self._recorder.close()


def _bytes_of(queue: PartitionQueue) -> int:
    """The bytes that wait in a queue; estimated by the oldest batches when there are many."""
    batches = queue.batches
    if len(batches) <= _OLDEST:
        return queue.queued_bytes
    return sum(batch.size for batch in islice(batches, _OLDEST)) * len(batches) // _OLDEST


def _facts(config: ProducerConfig, started: float) -> dict[str, str]:
    """The files' metadata: the settings that bear on what is recorded, under Kafka's names."""
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
