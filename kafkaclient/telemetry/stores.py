"""Where the parts of telemetry are written: to Parquet files, or to a Kafka topic."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from contextlib import suppress
from itertools import islice
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from kafkaclient.config.client import ClientConfig
from kafkaclient.errors import ProducerClosedError, RecordTooLargeError
from kafkaclient.telemetry.format import (
    PART_HEADER,
    SCHEMA_VERSION,
    VERSION_KEY,
    as_message,
    as_parquet,
)
from kafkaclient.telemetry.reading import entries, folder_of, hours, open_root
from kafkaclient.telemetry.recorder import PartTooLargeError, named
from kafkaclient.time_limit import DaemonThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkaclient.config import ProducerConfig
    from kafkaclient.config.options import TelemetryTarget
    from kafkaclient.telemetry.recorder import TelemetryPart

_log = logging.getLogger(__name__)

# --- Parquet files, by date and hour; files that are too old are deleted --------------------------

_BYTES_PER_ROW = 50.0  # until a file of at least _MIN_ROWS shows a better figure
_MIN_ROWS = 1000
_HOUR_S = 3600
_DELETED_AT_ONCE = 50  # files after a write: the next part waits meanwhile
_RENAMED = frozenset({"local", "hdfs"})
"""File systems where a file is visible while it is written, and a rename is atomic."""

_OURS = re.compile(r"\.?batches-[A-Za-z0-9._]*-[0-9a-f]{12}-\d{6,}\.parquet(\.unfinished)?")


class FileStore:
    """Files below ``target``. ``wall_clock`` gives seconds since the epoch."""

    def __init__(
        self,
        target: TelemetryTarget,
        *,
        file_bytes: int,
        file_s: float,
        retention_s: float | None,
        wall_clock: Callable[[], float],
    ) -> None:
        self._target = target
        self._file_bytes = file_bytes
        self._bytes_per_row = _BYTES_PER_ROW
        self.seconds_per_part = file_s
        self._retention_s = retention_s
        self._wall_clock = wall_clock
        self._threads = DaemonThreads()
        self._writing = Lock()  # the thread of a write that was cancelled goes on
        self._opened: tuple[Any, str] | None = None
        self._has_written = False
        self._next_cleaning = -inf
        if not target.scheme:  # the program may change its folder
            self._opened = open_root(target)

    @property
    def rows_per_part(self) -> int:
        return int(self._file_bytes / self._bytes_per_row)

    async def write(self, part: TelemetryPart) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads, self._write, part)

    async def clean(self) -> None:
        now = self._wall_clock()
        if self._retention_s is not None and now >= self._next_cleaning:
            self._next_cleaning = now + _HOUR_S  # also after an error
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._threads, self._clean, now - self._retention_s)

    async def close(self) -> None:
        """Nothing to free. A write that still runs is left to its daemon thread."""

    # --- in a thread --------------------------------------------------------------------------

    def _write(self, part: TelemetryPart) -> None:
        content = part.encode(as_parquet)
        with self._writing:
            if self._opened is None:
                self._opened = open_root(self._target)
            opened, root = self._opened
            self._write_file(opened, root, part, content)
            if part.columns.rows >= _MIN_ROWS:
                self._bytes_per_row = len(content) / part.columns.rows

    def _write_file(self, opened: Any, root: str, part: TelemetryPart, content: bytes) -> None:
        """A file that exists already is replaced. On local disks and HDFS a file gets its name when
        it is complete. Object stores show a file when it is complete."""
        folder, name = f"{root}/{folder_of(part.hour)}", f"{part.name}.parquet"
        if opened.type_name not in _RENAMED:
            with opened.open_output_stream(f"{folder}/{name}") as stream:
                stream.write(content)
            return
        # A folder that is missing later was removed on purpose, or its disk is not mounted.
        if self._has_written and opened.get_file_info(root).type == fs.FileType.NotFound:
            raise FileNotFoundError(f"{root} was there, and is missing now")
        opened.create_dir(folder)
        self._has_written = True
        unfinished = f"{folder}/.{name}.unfinished"
        try:
            with opened.open_output_stream(unfinished) as stream:
                stream.write(content)
            if opened.type_name == "hdfs":  # it does not rename to a name that exists
                with suppress(OSError):
                    opened.delete_file(f"{folder}/{name}")
            opened.move(unfinished, f"{folder}/{name}")
        except BaseException:
            with suppress(OSError):
                opened.delete_file(unfinished)
            raise

    def _clean(self, oldest_s: float) -> None:
        try:
            deleted = sum(1 for _ in islice(self._delete_before(oldest_s), _DELETED_AT_ONCE))
        except Exception as error:  # noqa: BLE001 - any file system
            why = self._target.hide(named(error))
            _log.warning("old telemetry in %s cannot be deleted: %s", self._target, why)
        else:
            if deleted == _DELETED_AT_ONCE:
                self._next_cleaning = -inf  # the next write deletes more

    def _delete_before(self, oldest_s: float) -> Iterator[str]:
        """Delete telemetry of hours that ended before ``oldest_s``, and yield the paths. Other
        files, and folders that are not an hour of telemetry, stay. Another producer may do the
        same."""
        assert self._opened is not None  # opened by the write before
        opened, root = self._opened
        for hour, folder in hours(opened, root):
            if hour.timestamp() + _HOUR_S > oldest_s:
                break
            for info in entries(opened, folder):
                if info.type == fs.FileType.File and _OURS.fullmatch(info.base_name):
                    with suppress(FileNotFoundError):
                        opened.delete_file(info.path)
                    yield info.path
            if opened.type_name == "local":  # rmdir refuses a folder with files
                for empty in (folder, os.path.dirname(folder)):
                    with suppress(OSError):
                        os.rmdir(empty)


# --- A Kafka topic --------------------------------------------------------------------------------

_ROWS_PER_MESSAGE = 4096  # about 200 KB
_STOP_TIMEOUT_S = 1.0


class TopicStore:
    """A message for each part. ``new_producer(options)`` makes a producer, a small one.

    Its records are outside of the transactions of the producer whose batches are recorded, and do
    not use that producer's buffer or connections.
    """

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
