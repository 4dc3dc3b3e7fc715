"""Serializers and columns in the calling thread, which waits for those that are async."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkaclient.config.kinds import Limit
from kafkaclient.errors import InvalidRecordError
from kafkaclient.producer.admission.serializing import run_serializer
from kafkaclient.producer.batches.record import (
    PendingRecord,
    RawRecord,
    header_pairs,
    serialized_record,
)
from kafkaclient.producer.batches.serializers import AwaitedFields, Serializers
from kafkaclient.producer.bulk.batch_builder import check_column
from kafkaclient.time_limit import monotonic
from kafkaclient.types import HeadersLike

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from kafkaclient.config import ProducerConfig
    from kafkaclient.producer.batches.record import Record
    from kafkaclient.types import Headers


# --- Applies serializers in the calling thread, which waits for those that are async --------------

Wait: TypeAlias = "Callable[[Callable[[], Coroutine[Any, Any, Record]], float], Record]"

_THREAD_S = 0.5  # how much longer a call waits for the producer's thread than for the serializer


class Serializing:
    """The serializers of one producer.

    ``wait(function, seconds)``, which methods take, runs the coroutine of a function in the
    producer's thread. It raises TimeoutError after ``seconds``, and ProducerStateError where the
    caller must not wait.
    """

    def __init__(self, config: ProducerConfig, wall_clock: Callable[[], float]) -> None:
        self._config = config
        self._wall_clock = wall_clock
        self._serializers = Serializers.of(config)

    @property
    def needed(self) -> bool:
        """Whether the producer has serializers."""
        return self._serializers is not None

    def record(self, raw: RawRecord, deadline: float, wait: Wait) -> Record:
        """The record in bytes; raises InvalidRecordError and its subclasses. An async serializer
        may work until ``deadline`` (of ``time.monotonic``)."""
        record = serialized_record(self._config, self._wall_clock, raw, self._serializers)
        if isinstance(record, PendingRecord):
            return _waited(record, deadline, wait)
        return record

    def columns(self, topic: str, columns: Columns, deadline: float, wait: Wait) -> None:
        """Serialize the records of a ``send_many``, in place. Columns of different lengths stay as
        they are, for ``send_many`` to refuse."""
        serializers, values, keys = self._serializers, columns.values, columns.keys
        if serializers is None or not columns.are_equally_long:
            return
        all_headers = list[HeadersLike]()
        for n, value in enumerate(values):
            key = None if keys is None else keys[n]
            own = None if columns.record_headers is None else columns.record_headers[n]
            raw = RawRecord(topic, value, key, headers=columns.headers if own is None else own)
            try:
                values[n], key, headers = self._row(serializers, raw, deadline, wait)
            except InvalidRecordError as error:
                error.index = n
                raise
            if keys is not None:
                keys[n] = key
            all_headers.append(headers)
        if serializers.get_context:
            columns.record_headers = all_headers

    def _row(
        self, serializers: Serializers, raw: RawRecord, deadline: float, wait: Wait
    ) -> tuple[Any, Any, Any]:
        value, key, headers = serializers.apply(raw.topic, raw.value, raw.key, raw.headers)
        if isinstance(value, AwaitedFields):
            raw = raw._replace(value=value, key=None, headers=())
            record = PendingRecord(self._config, self._wall_clock, raw)
            done = _waited(record, deadline, wait)
            return done.value, done.key, done.headers
        return value, key, headers


def _waited(record: PendingRecord, deadline: float, wait: Wait) -> Record:
    """The record in bytes, after its async serializer."""
    seconds = max(0.0, deadline - monotonic())
    limit = Limit(round(seconds, 3), "the rest of max.block.ms")
    try:
        return wait(partial(run_serializer, record, limit, set()), seconds + _THREAD_S)
    except TimeoutError:
        raise record.not_finished("the producer's thread does not respond") from None
    finally:
        record.close()


# --- The arguments of ``SyncProducer.send_many``, copied ------------------------------------------


class Columns:
    """Lists with an item for each record, and the ``headers`` that records without headers of their
    own have. Raises InvalidRecordError if an argument is not acceptable."""

    def __init__(
        self,
        values: Iterable[Any],
        keys: Iterable[Any] | None,
        headers: HeadersLike,
        timestamps_ms: Iterable[int | None] | None,
        record_headers: Iterable[HeadersLike] | None,
    ) -> None:
        self.values = _list_of("values", values)
        self.keys = _list_or_none("keys", keys)
        self.headers = _pairs("headers", headers)
        self.timestamps_ms = _list_or_none("timestamps_ms", timestamps_ms)
        self.record_headers = _list_or_none("record_headers", record_headers)

    @property
    def are_equally_long(self) -> bool:
        columns = (self.keys, self.timestamps_ms, self.record_headers)
        return all(column is None or len(column) == len(self.values) for column in columns)

    def freeze(self) -> int:
        """Copy buffers that may change; returns the bytes of all keys, values and headers."""
        size = _headers_size(self.headers) + _freeze(self.values)
        if self.keys is not None:
            size += _freeze(self.keys)
        if self.record_headers is not None:
            for n, headers in enumerate(self.record_headers):
                if headers is not None:
                    try:
                        pairs = self.record_headers[n] = _pairs(f"record {n}: headers", headers)
                    except InvalidRecordError as error:
                        error.index = n
                        raise
                    size += _headers_size(pairs)
        return size


def _list_of(name: str, column: Iterable[Any]) -> list[Any]:
    check_column(name, column)
    return list(column)


def _list_or_none(name: str, column: Iterable[Any] | None) -> list[Any] | None:
    return None if column is None else _list_of(name, column)


def _pairs(name: str, headers: HeadersLike) -> Headers:
    if not headers:
        return ()
    try:
        return header_pairs(headers)
    except (TypeError, ValueError) as error:
        raise InvalidRecordError(f"{name}: {error}; nothing was sent") from error


def _freeze(column: list[Any]) -> int:
    size = 0
    for n, item in enumerate(column):
        if item.__class__ is not bytes:
            if not isinstance(item, (bytes, bytearray, memoryview)):
                continue  # None, or what the producer refuses
            column[n] = bytes(item)
        size += len(column[n])
    return size


def _headers_size(pairs: Headers) -> int:
    """The bytes of names and values, where they are acceptable."""
    return sum(len(item) for pair in pairs for item in pair if isinstance(item, (str, bytes)))
