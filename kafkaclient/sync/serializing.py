"""Applies serializers in the calling thread, which waits for those that are async."""

from __future__ import annotations

from asyncio import wait_for
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkaclient.producer.batches.record import PendingRecord, RawRecord, serialized_record
from kafkaclient.producer.batches.serializers import AwaitedFields, Serializers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kafkaclient.config import ProducerConfig
    from kafkaclient.errors import SerializationError
    from kafkaclient.producer.batches.record import Record
    from kafkaclient.types import HeadersLike

Wait: TypeAlias = "Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]"


class Serializing:
    """The serializers of one producer.

    ``wait(function)``, which methods take, runs the coroutine of a function in the producer's
    thread. It raises ProducerStateError where the caller must not wait.
    """

    def __init__(self, config: ProducerConfig, wall_clock: Callable[[], float]) -> None:
        self._config = config
        self._wall_clock = wall_clock
        self._serializers = Serializers.of(config)

    @property
    def needed(self) -> bool:
        """Whether the producer has serializers."""
        return self._serializers is not None

    def record(self, raw: RawRecord, wait: Wait) -> Record:
        """The record in bytes; raises InvalidRecordError and its subclasses."""
        record = serialized_record(self._config, self._wall_clock, raw, self._serializers)
        if isinstance(record, PendingRecord):
            try:
                found: Record = wait(partial(self._within, record.finish, record.not_finished))
            finally:
                record.close()
            return found
        return record

    def rows(
        self,
        topic: str,
        values: list[Any],
        keys: list[Any] | None,
        headers: HeadersLike,
        record_headers: list[HeadersLike] | None,
        wait: Wait,
    ) -> tuple[list[Any], list[Any] | None, list[HeadersLike] | None]:
        """Columns of ``send_many`` in bytes: values, keys, headers of each record. Columns of
        different lengths stay as they are, for ``send_many`` to refuse."""
        serializers = self._serializers
        columns = [column for column in (keys, record_headers) if column is not None]
        if serializers is None or any(len(column) != len(values) for column in columns):
            return values, keys, record_headers
        rows = []
        for n, value in enumerate(values):
            key = None if keys is None else keys[n]
            own = None if record_headers is None else record_headers[n]
            row = serializers.apply(topic, value, key, headers if own is None else own)
            first = row[0]
            if isinstance(first, AwaitedFields):
                try:
                    row = wait(partial(self._within, first.finish, first.not_finished))
                finally:
                    first.close()
            rows.append(row)
        if not rows:
            return values, keys, record_headers
        in_values, in_keys, in_headers = map(list, zip(*rows, strict=True))
        return (
            in_values,
            None if keys is None else in_keys,
            in_headers if serializers.get_context else record_headers,
        )

    async def _within(
        self,
        finish: Callable[[], Coroutine[Any, Any, Any]],
        overdue: Callable[[str], SerializationError],
    ) -> Any:
        limit_ms = self._config.max_block_ms
        try:
            return await wait_for(finish(), limit_ms / 1000)
        except TimeoutError:
            raise overdue(
                f"the serializer has not finished within {limit_ms / 1000:g} s (max.block.ms)"
            ) from None
