"""Applies serializers in the calling thread, which waits for those that are async."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkaclient.clock import monotonic
from kafkaclient.config.limit import Limit
from kafkaclient.errors import InvalidRecordError
from kafkaclient.producer.batches.record import PendingRecord, RawRecord, serialized_record
from kafkaclient.producer.batches.serializers import AwaitedFields, Serializers
from kafkaclient.producer.serialization import run_serializer
from kafkaclient.types import HeadersLike

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kafkaclient.config import ProducerConfig
    from kafkaclient.producer.batches.record import Record
    from kafkaclient.sync.columns import Columns

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
