"""A stateful stream application: topics are read, state is kept, topics are written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from kafkaclient.errors import ConfigError, StreamsError
from kafkaclient.streams.config import StreamsConfig
from kafkaclient.streams.runtime.changelog_reader import ChangelogBytes
from kafkaclient.streams.runtime.instance import Instance
from kafkaclient.streams.state.directory import remove_state
from kafkaclient.streams.topology import (
    FAIL,
    Deserializer,
    ErrorHandler,
    Process,
    Processor,
    Topology,
    validate_handler,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.streams.runtime.instance import TaskDescription

P = TypeVar("P", bound=Process)


class StreamsApp:
    """Reads topics, keeps state and writes topics. Instances share the partitions.

    ::

        app = StreamsApp("localhost:9092", application_id="words", state_dir="/var/lib/words")

        @app.processor("words", store="counts")
        async def count(record, store, emit):
            n = int(store.get(record.key) or 0) + 1
            store.put(record.key, b"%d" % n)
            await emit("counts", b"%d" % n, record.key)

        asyncio.run(app.run())

    Each input partition is a task. Each task has its own store, and a compacted changelog topic
    holds the store's changes. Keys that belong together must be in one partition. A task moves to
    another instance once that instance has the task's state (KIP-441).
    :class:`~kafkaclient.streams.config.StreamsConfig` has the options. docs/how-to/streams.md
    is the manual.

    Raises :class:`~kafkaclient.errors.ConfigError` for an invalid option.
    """

    def __init__(self, bootstrap_servers: str, **options: Any) -> None:
        try:
            self.config: StreamsConfig = StreamsConfig(
                bootstrap_servers=bootstrap_servers, **options
            )
        except TypeError as error:
            raise ConfigError(f"StreamsApp got invalid options: {error}") from error
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
        """Register the decorated ``async def process(record, store, emit)`` for all records of
        ``topic``.

        ``record`` is a :class:`~kafkaclient.reader.FetchedRecord`. Its key and value are bytes or
        None, or the deserializers' results. ``store`` is the
        :class:`~kafkaclient.streams.state.key_value_store.KeyValueStore` of the record's partition.
        ``await emit(topic, value, key, partition=..., timestamp_ms=..., headers=...)`` sends a
        record. A task processes its records one at a time. Tasks run concurrently.

        ``on_error`` decides what happens to a record that cannot be decoded, or for which the
        processor raises. ``"fail"`` ends :meth:`run`. ``"skip"`` logs the record and continues.
        :class:`~kafkaclient.streams.topology.DeadLetter` writes the record to a topic and
        continues. In each case the processor's store changes and emitted records for this record
        are dropped. The two other handlers, named as in Kafka Streams, override ``on_error`` for
        decoding or for processing. Unless the processing handler is ``"fail"``, emitted records are
        sent after the processor has returned.

        Raises :class:`~kafkaclient.errors.ConfigError` if another processor reads the topic or has
        the store, or if a handler is invalid.
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
        """Run this instance until :meth:`stop` is called or the task is cancelled. At the end the
        processed records are committed, and the other instances take over immediately.

        Raises:
            ConfigError: the application has no processor.
            StateStoreError: the state directory is in use or damaged, the disk is full, or a
                changelog does not match its input topic.
            DeserializationError: a record cannot be decoded; the message names the record.
            ProcessingError: a processor raised, see the cause; the message names the record.
            StreamsError: an input or dead letter topic is missing, a record takes longer than its
                transaction may, or the group or the brokers are unreachable.
            KafkaError: an emitted record was rejected with an error that retries do not cure.
        """
        if not self._topology.processors:
            raise ConfigError("the application has no processor: add one with @app.processor(...)")
        if self._instance is not None:
            raise StreamsError("the application is already running; use one process per instance")
        self._stopped.clear()
        self._instance = Instance(self.config, self._topology)
        try:
            await self._instance.run(self._stopped)
        finally:
            self._instance = None

    def stop(self) -> None:
        """Make :meth:`run` commit and return."""
        self._stopped.set()

    def clean_up(self) -> None:
        """Remove this instance's local state, for example after ``kafkaclient streams reset``
        (Java: ``KafkaStreams.cleanUp``). The tasks' state is restored from the changelogs.

        Raises :class:`~kafkaclient.errors.StreamsError` while the application runs, and
        :class:`~kafkaclient.errors.StateStoreError` if another process uses the directory.
        """
        if self._instance is not None:
            raise StreamsError("the application is running; its state is in use")
        remove_state(self.config.directory)

    @property
    def changelog_bytes(self) -> ChangelogBytes:
        """How much this instance has read from changelogs since :meth:`run` began."""
        return ChangelogBytes(0, 0) if self._instance is None else self._instance.changelog_bytes

    def tasks(self) -> list[TaskDescription]:
        """This instance's current tasks, sorted."""
        return [] if self._instance is None else self._instance.tasks()
