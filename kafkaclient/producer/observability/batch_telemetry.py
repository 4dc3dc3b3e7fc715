"""Records a row for each batch: how it was bound to its partition, and its outcome.

Imported only if ``telemetry`` is set, because it imports pyarrow.
"""

from __future__ import annotations

import json
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from random import Random
from typing import TYPE_CHECKING, Any

from kafkaclient.hooks import Hooks
from kafkaclient.telemetry.format import EXCLUSIONS_KEY, SAMPLE_KEY, SCHEMA_VERSION, VERSION_KEY
from kafkaclient.telemetry.recorder import TelemetryRecorder
from kafkaclient.telemetry.stores import FileStore, TopicStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.config import ProducerConfig
    from kafkaclient.config.options import TelemetryTarget
    from kafkaclient.hooks import FinishedBatch
    from kafkaclient.metrics import ProducerMetrics
    from kafkaclient.telemetry.recorder import TelemetryStore

# Defaults of telemetry.file.ms. A program that is killed loses the rows of this time; a store with
# a request for each file should not get many small ones.
_LOCAL_FILE_S = 5.0
_REMOTE_FILE_S = 60.0
_MESSAGE_S = 1.0

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
    """Records a row for each batch; times count from the producer's start. ``metrics`` have how
    often each broker was excluded. ``new_producer(options)`` makes a producer for telemetry to a
    topic."""

    def __init__(
        self,
        config: ProducerConfig,
        target: TelemetryTarget,
        metrics: ProducerMetrics,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        new_producer: Callable[[dict[str, Any]], Any],
    ) -> None:
        self._facts = _facts(config)
        self._metrics = metrics
        self._excluded: Counter[tuple[int, str]] = Counter()
        self._recorder = recorder = TelemetryRecorder(
            _open_store(config, target, wall_clock, new_producer),
            target,
            config.client_id,
            self._metadata,
            clock=clock,
            wall_clock=wall_clock,
            acks=bool(config.acks),
            share=config.telemetry_sample,
            chance=Random().random,
        )
        self._record = recorder.add

    def on_batch(self, batch: FinishedBatch) -> None:
        self._record(batch)

    def gauges(self) -> dict[str, float]:
        """Metrics by name."""
        return {
            "telemetry-batches-dropped-total": self._recorder.dropped,
            "telemetry-batches-recorded-total": self._recorder.recorded,
            "telemetry-batches-waiting": self._recorder.waiting,
        }

    async def close(self) -> None:
        """Write the rows that are still in memory."""
        await self._recorder.close()

    def _metadata(self) -> dict[str, str]:
        gauges = self._metrics.gauges
        exclusions = {} if gauges is None else gauges.exclusions()
        now = Counter(
            {
                (broker, reason): times
                for broker, reasons in exclusions.items()
                for reason, times in reasons.items()
            }
        )
        news, self._excluded = now - self._excluded, now
        if not news:
            return self._facts
        listed = [
            {"broker": broker, "reason": reason, "times": times}
            for (broker, reason), times in sorted(news.items())
        ]
        return {**self._facts, EXCLUSIONS_KEY: json.dumps(listed)}


def _open_store(
    config: ProducerConfig,
    target: TelemetryTarget,
    wall_clock: Callable[[], float],
    new_producer: Callable[[dict[str, Any]], Any],
) -> TelemetryStore:
    seconds = None if config.telemetry_file_ms is None else config.telemetry_file_ms / 1000
    if target.topic is not None:
        message_s = seconds or _MESSAGE_S
        return TopicStore(target.topic, config, message_s, new_producer)
    retention_ms = config.telemetry_retention_ms
    return FileStore(
        target,
        file_bytes=config.telemetry_file_bytes,
        file_s=seconds or (_REMOTE_FILE_S if target.scheme else _LOCAL_FILE_S),
        retention_s=None if retention_ms < 0 else retention_ms / 1000,
        wall_clock=wall_clock,
    )


def _facts(config: ProducerConfig) -> dict[str, str]:
    """Metadata of files and messages: the settings that affect rows, under Kafka's names."""
    facts = {
        f"kafkaclient.{config.OPTIONS[name].kafka_name}": str(getattr(config, name))
        for name in _SETTINGS
    }
    facts[VERSION_KEY] = str(SCHEMA_VERSION)
    facts[SAMPLE_KEY] = str(config.telemetry_sample)
    facts["kafkaclient.version"] = _version()
    return facts


def _version() -> str:
    try:
        return version("kafkaclient")
    except PackageNotFoundError:
        return "unknown"  # run from a source tree
