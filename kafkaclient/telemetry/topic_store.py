"""Writes telemetry to a Kafka topic, with a small producer of its own.

Its records are outside of the transactions of the producer whose batches are recorded, and do not
use that producer's buffer or connections.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from kafkaclient.config.client import ClientConfig
from kafkaclient.errors import ProducerClosedError, RecordTooLargeError
from kafkaclient.telemetry.format import PART_HEADER, SCHEMA_VERSION, VERSION_KEY, as_message
from kafkaclient.telemetry.recorder import PartTooLargeError
from kafkaclient.time_limit import DaemonThreads

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.config import ProducerConfig
    from kafkaclient.telemetry.recorder import TelemetryPart

_log = logging.getLogger(__name__)

_ROWS_PER_MESSAGE = 4096  # about 200 KB
_STOP_TIMEOUT_S = 1.0


class TopicStore:
    """A message for each part. ``new_producer(options)`` makes a producer."""

    rows_per_part = _ROWS_PER_MESSAGE

    def __init__(
        self,
        topic: str,
        config: ProducerConfig,
        message_s: float,
        new_producer: Callable[[dict[str, Any]], Any],
    ) -> None:
        self._topic = topic
        self._key = config.client_id.encode()
        self._options = _options(config)
        self._new_producer = new_producer
        self._producer: Any = None
        self._threads = DaemonThreads()
        self.seconds_per_part = message_s

    async def write(self, part: TelemetryPart) -> None:
        loop = asyncio.get_running_loop()
        value = await loop.run_in_executor(self._threads, part.encode, as_message)
        headers = [(VERSION_KEY, str(SCHEMA_VERSION).encode()), (PART_HEADER, part.name.encode())]
        is_new = self._producer is None
        if is_new:
            producer = self._new_producer(self._options)
            await producer.start()
            self._producer = producer
        try:
            await self._producer.send_and_wait(self._topic, value, key=self._key, headers=headers)
        except ProducerClosedError:  # its tasks were cancelled, as all are when a program ends
            await self.close()
            if is_new:
                raise
            await self.write(part)
        except RecordTooLargeError as error:
            raise PartTooLargeError(
                "a message with one row is larger than the topic's max.message.bytes or "
                "max.request.size: raise the limit"
            ) from error

    async def clean(self) -> None:
        """The topic has a retention of its own."""

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                await producer.stop(_STOP_TIMEOUT_S)
            except Exception:  # noqa: BLE001
                _log.exception("the producer of telemetry could not be stopped")


def _options(config: ProducerConfig) -> dict[str, Any]:
    """How to reach the cluster as ``config`` does; everything else is small."""
    given = {name: getattr(config, name) for name in ClientConfig.OPTIONS}
    declared = type(config).OPTIONS
    return {name: value for name, value in given.items() if value != declared[name].default} | {
        "client_id": f"{config.client_id}-telemetry",
        "acks": 1,
        "enable_idempotence": False,
        "linger_ms": 0,
        "buffer_memory": 8_388_608,
        "max_block_ms": 10_000,
    }
