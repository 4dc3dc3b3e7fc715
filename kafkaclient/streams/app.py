"""An application with state: what is written once and started as often as there is work for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from kafkaclient.errors import ConfigError, StreamsError
from kafkaclient.streams.config import StreamsConfig
from kafkaclient.streams.error_handling import FAIL, ErrorHandler, validate_handler
from kafkaclient.streams.runtime.changelog_reader import ChangelogBytes
from kafkaclient.streams.runtime.instance import Instance
from kafkaclient.streams.topology import Deserializer, Process, Processor, Topology

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.streams.runtime.instance import TaskDescription

__all__ = ["StreamsApp"]

P = TypeVar("P", bound=Process)


class StreamsApp:
    """Reads topics, keeps state, writes topics; instances share the partitions.

    ::

        app = StreamsApp("localhost:9092", application_id="words", state_dir="/var/lib/words")

        @app.processor("words", store="counts")
        async def count(record, store, emit):
            n = int(store.get(record.key) or 0) + 1
            store.put(record.key, b"%d" % n)
            await emit("counts", b"%d" % n, record.key)

        asyncio.run(app.run())

    Each partition of what is read is a task with a store of its own, whose changes are in a
    compacted topic: keys that belong together have to be in one partition. Tasks move between
    instances when their state is there (KIP-441). Options are those of
    :class:`~kafkaclient.streams.config.StreamsConfig`; docs/streams.md has the whole.

    Raises :class:`~kafkaclient.errors.ConfigError` for an option that cannot be used.
    """

    def __init__(self, bootstrap_servers: str, **options: Any) -> None:
        try:
            self.config = StreamsConfig(bootstrap_servers=bootstrap_servers, **options)
        except TypeError as error:
            raise ConfigError(f"a streams application cannot be made so: {error}") from error
        self._topology = Topology(self.config.application_id)
        self._instance: Instance | None = None
        self._stopped = asyncio.Event()

    def processor(
        self,
        topic: str,
        *,
        store: str,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        on_error: ErrorHandler = FAIL,
        deserialization_exception_handler: ErrorHandler | None = None,
        processing_exception_handler: ErrorHandler | None = None,
    ) -> Callable[[P], P]:
        """Have every record of ``topic`` processed by the decorated ``async def process(record,
        store, emit)``.

        ``record`` is aiokafka's; ``key`` and ``value`` are bytes or None, or what the deserializers
        return for the bytes. ``store`` is the
        :class:`~kafkaclient.streams.state.key_value_store.KeyValueStore` of the record's partition.
        ``await emit(topic, value, key, partition=..., timestamp_ms=..., headers=...)`` sends. A
        task's records are processed one after the other, tasks side by side.

        ``on_error`` says what happens to a record that cannot be decoded, or for which the
        processor raises: ``"fail"`` ends :meth:`run`, ``"skip"`` logs the record and goes on,
        :class:`~kafkaclient.streams.error_handling.DeadLetter` writes it to a topic and goes on. In
        each case nothing remains of what the processor did with this record. The two handlers,
        named as in Kafka Streams, say it for one of the two cases. With another handler than
        ``"fail"`` for processing, what is emitted is sent when the processor has returned.

        Raises :class:`~kafkaclient.errors.ConfigError` when the topic or the store is another
        processor's, or a handler is none of these.
        """
        decoding = validate_handler(deserialization_exception_handler or on_error, "on_error")
        processing = validate_handler(processing_exception_handler or on_error, "on_error")

        def register(process: P) -> P:
            self._topology.add(
                Processor(
                    topic=topic,
                    store=store,
                    process=process,
                    key_deserializer=key_deserializer,
                    value_deserializer=value_deserializer,
                    deserialization_exception_handler=decoding,
                    processing_exception_handler=processing,
                )
            )
            return process

        return register

    async def run(self) -> None:
        """Take part in the application until :meth:`stop` is called, or this is cancelled. What has
        been processed is committed then, and the others take over at once.

        Raises:
            ConfigError: there is no processor.
            StateStoreError: the state directory is in use or damaged, the disk is full, or a
                changelog does not fit.
            DeserializationError: a record cannot be decoded; the message names it.
            ProcessingError: a processor raised, which is the cause; the message names the record.
            StreamsError: a topic is missing that is read or written, a record takes longer than its
                transaction may, the group or the brokers cannot be had any more.
            KafkaError: what was emitted was refused for good.
        """
        if not self._topology.processors:
            raise ConfigError("the application has no processor: nothing is to be done")
        if self._instance is not None:
            raise StreamsError("the application runs already; start another process for more")
        self._stopped.clear()
        self._instance = Instance(self.config, self._topology)
        try:
            await self._instance.run(self._stopped)
        finally:
            self._instance = None

    def stop(self) -> None:
        """Have :meth:`run` end in good order."""
        self._stopped.set()

    @property
    def changelog_bytes(self) -> ChangelogBytes:
        """What this instance has read from changelogs since :meth:`run` began."""
        return ChangelogBytes(0, 0) if self._instance is None else self._instance.changelog_bytes

    def tasks(self) -> list[TaskDescription]:
        """What this instance has at the moment, sorted."""
        return [] if self._instance is None else self._instance.tasks()
