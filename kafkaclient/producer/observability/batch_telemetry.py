"""Records a row for each batch: how it was bound to its partition, and its outcome.

Imported only if ``telemetry`` is set, because it imports pyarrow.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from kafkaclient.hooks import Hooks
from kafkaclient.telemetry.format import STARTED
from kafkaclient.telemetry.recorder import Recorder
from kafkaclient.telemetry.rows import BatchRow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkaclient.config import ProducerConfig
    from kafkaclient.hooks import FinishedBatch

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


class BatchTelemetry(Hooks):
    """Writes a row for each batch to Parquet files; times count from the producer's start."""

    def __init__(
        self,
        config: ProducerConfig,
        directory: Path,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._client_id = config.client_id
        self._acks = config.acks
        self._start = clock()
        self._recorder = Recorder(directory, config.client_id, _file_metadata(config, wall_clock()))

    def on_batch(self, batch: FinishedBatch) -> None:
        acknowledged = self._acks and batch.error is None
        self._recorder.add(
            BatchRow(
                client_id=self._client_id,
                topic=batch.topic,
                partition=batch.partition,
                broker=batch.broker,
                records=batch.records,
                bytes=batch.bytes,
                attempts=batch.attempts,
                created_s=batch.created_s - self._start,
                bound_s=self._since_start(batch.bound_s),
                sent_s=self._since_start(batch.sent_s),
                acknowledged_s=batch.done_s - self._start if acknowledged else None,
                queued_batches=batch.queued_batches,
                queued_bytes=batch.queued_bytes,
                in_flight=batch.in_flight,
                window=batch.window,
                bound_by=batch.bound_by,
                error=None if batch.error is None else type(batch.error).__name__,
            )
        )

    def _since_start(self, at: float | None) -> float | None:
        return None if at is None else at - self._start

    async def close(self) -> None:
        """Write the rows that are still in memory."""
        await self._recorder.close()


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
