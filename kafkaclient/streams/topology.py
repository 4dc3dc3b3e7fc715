"""An application's processors, and the tasks and topics that follow from them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from kafkaclient.errors import ConfigError
from kafkaclient.streams.error_handling import FAIL, DeadLetter, ErrorHandler
from kafkaclient.streams.tasks import TaskId
from kafkaclient.types import TopicPartition

__all__ = ["Deserializer", "Process", "Processor", "Topology"]

Process: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
"""``async def process(record, store, emit)``."""

Deserializer: TypeAlias = Callable[[bytes], Any]
"""Called for each key or value that is not None."""


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
