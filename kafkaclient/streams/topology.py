"""An application's processors with their error handlers, and the tasks and topics that follow.

Kafka Streams: ``deserialization.exception.handler``, ``processing.exception.handler`` and
``errors.dead.letter.queue.topic.name`` (KIP-161, KIP-1033, KIP-1034).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from kafkaclient.errors import ConfigError
from kafkaclient.streams.tasks import TaskId
from kafkaclient.types import TopicPartition

FAIL: Final = "fail"  # end the application with an error that names the record
_SKIP: Final = "skip"  # log the record and continue; CONTINUE in Kafka Streams

Process: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
"""``async def process(record, store, emit)``."""

Deserializer: TypeAlias = Callable[[bytes], Any]
"""Called for each key or value that is not None."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Write the record to ``topic`` and continue with the next one.

    The record keeps its key, value, timestamp and headers, as bytes. The headers of KIP-1034 are
    added: ``__streams.errors.exception``, ``.stacktrace``, ``.message``, ``.topic``, ``.partition``
    and ``.offset``. With ``exactly_once_v2`` the record is written in the task's transaction. The
    topic must exist when the application starts.
    """

    topic: str


ErrorHandler: TypeAlias = Literal["fail", "skip"] | DeadLetter


def validate_handler(handler: Any, option: str) -> ErrorHandler:
    """The checked handler. Raises :class:`~kafkaclient.errors.ConfigError` with ``option``."""
    if isinstance(handler, DeadLetter) and handler.topic:
        return handler
    if handler in (FAIL, _SKIP):
        return handler  # type: ignore[no-any-return]
    raise ConfigError(
        f"{option} is {handler!r}; it must be {FAIL!r}, {_SKIP!r} or DeadLetter('topic')"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """One subtopology: it reads one topic and has one store."""

    topic: str
    store: str
    process: Process
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    deserialization_exception_handler: ErrorHandler = FAIL
    processing_exception_handler: ErrorHandler = FAIL

    @property
    def dead_letter_topics(self) -> set[str]:
        """Topics to which records that cannot be decoded or processed are written."""
        handlers = (self.deserialization_exception_handler, self.processing_exception_handler)
        return {handler.topic for handler in handlers if isinstance(handler, DeadLetter)}


class Topology:
    """The processors in the order of registration, which is the order of subtopologies."""

    def __init__(self, application_id: str) -> None:
        self._application_id = application_id
        self.processors: list[Processor] = []

    def add(self, processor: Processor) -> None:
        """Register a processor. Raises :class:`~kafkaclient.errors.ConfigError` if another one
        reads the same topic or has a store of the same name."""
        for other in self.processors:
            if other.topic == processor.topic:
                raise ConfigError(
                    f"topic {processor.topic!r} is read by two processors; merge them into one"
                )
            if other.store == processor.store:
                raise ConfigError(
                    f"store {processor.store!r} is used by two processors; give each its own store"
                )
        self.processors.append(processor)

    @property
    def topics(self) -> list[str]:
        """The input topics."""
        return [processor.topic for processor in self.processors]

    def processor(self, task: TaskId) -> Processor:
        return self.processors[task.subtopology]

    def changelog_topic(self, processor: Processor) -> str:
        """The changelog topic's name, as in Kafka Streams."""
        return f"{self._application_id}-{processor.store}-changelog"

    def source(self, task: TaskId) -> TopicPartition:
        return TopicPartition(self.processor(task).topic, task.partition)

    def changelog(self, task: TaskId) -> TopicPartition:
        return TopicPartition(self.changelog_topic(self.processor(task)), task.partition)

    def tasks(self, partitions: Mapping[str, int]) -> list[TaskId]:
        """One task per input partition. ``partitions``: topic -> number of partitions."""
        return [
            TaskId(subtopology, partition)
            for subtopology, processor in enumerate(self.processors)
            for partition in range(partitions[processor.topic])
        ]
