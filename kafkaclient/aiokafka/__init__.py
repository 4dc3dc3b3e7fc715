"""aiokafka's API on this package's clients: drop-ins for its producer and its consumer.

One changed import, ``from kafkaclient.aiokafka import AIOKafkaProducer``, or one call,
:func:`install`, for libraries that import aiokafka themselves. Needs the extra ``aiokafka``.
docs/how-to/aiokafka.md describes both."""

from __future__ import annotations

import logging
import sys
from types import FunctionType
from typing import Any, NamedTuple

try:
    import aiokafka
    import aiokafka.consumer
    import aiokafka.consumer.consumer
    import aiokafka.producer
    import aiokafka.producer.producer
except ImportError as error:
    raise ImportError(
        f"kafkaclient.aiokafka needs aiokafka ({error}): pip install 'kafkaclient[aiokafka]'"
    ) from error

from kafkaclient.aiokafka.consumer import AIOKafkaConsumer
from kafkaclient.aiokafka.producer import AIOKafkaProducer
from kafkaclient.aiokafka.structs import RecordMetadata, TopicPartition

__all__ = [
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "RecordMetadata",
    "TopicPartition",
    "install",
    "uninstall",
]

_log = logging.getLogger(__name__)
PLACES: tuple[Any, ...] = (aiokafka, aiokafka.producer, aiokafka.producer.producer)
"""The modules of aiokafka that have the producer's class under its name."""
CONSUMER_PLACES: tuple[Any, ...] = (aiokafka, aiokafka.consumer, aiokafka.consumer.consumer)
"""The modules of aiokafka that have the consumer's class under its name."""


class _Class(NamedTuple):
    """A class of aiokafka, and what replaces it."""

    name: str
    what: str
    method: str
    """A method that instrumentations wrap."""
    places: tuple[Any, ...]
    original: Any
    drop_in: Any

    def replace_with(self, kind: Any) -> None:
        for module in self.places:
            setattr(module, self.name, kind)

    def early_modules(self) -> list[str]:
        """The names of the modules that have aiokafka's own class in a variable, without
        aiokafka."""
        known = (*self.places, sys.modules[__name__])
        return [
            name
            for name, module in sorted(sys.modules.items())
            if module not in known
            and any(value is self.original for value in [*getattr(module, "__dict__", {}).values()])
        ]

    def is_wrapped(self) -> bool:
        """Whether the method is not the function that aiokafka defines."""
        method = vars(self.original)[self.method]
        return type(method) is not FunctionType or method.__globals__ is not vars(self.places[-1])


_PRODUCER = _Class(
    "AIOKafkaProducer",
    "producer",
    "send",
    PLACES,
    aiokafka.producer.producer.AIOKafkaProducer,
    AIOKafkaProducer,
)
_CONSUMER = _Class(
    "AIOKafkaConsumer",
    "consumer",
    "getone",
    CONSUMER_PLACES,
    aiokafka.consumer.consumer.AIOKafkaConsumer,
    AIOKafkaConsumer,
)


def install(*, consumer: bool = False) -> None:
    """Make ``aiokafka.AIOKafkaProducer`` the drop-in, for the whole process; with ``consumer``
    ``aiokafka.AIOKafkaConsumer`` as well.

    Call it once, before other modules import aiokafka's classes and before an instrumentation
    wraps their methods. A second call does nothing. Modules that have imported aiokafka's own class
    already, under any name, keep it: a warning in the log names them. Another warning says that an
    instrumentation has wrapped aiokafka's own class.
    """
    for each in (_PRODUCER, _CONSUMER) if consumer else (_PRODUCER,):
        if early := each.early_modules():
            _log.warning(
                "install() comes too late for %s: they have imported aiokafka's own %s already",
                *(", ".join(early), each.what),
            )
        if each.is_wrapped():
            _log.warning(
                "install() comes too late for an instrumentation: it has wrapped the method %s of "
                "aiokafka's own %s; instrument after install()",
                *(each.method, each.what),
            )
        each.replace_with(each.drop_in)


def uninstall() -> None:
    """Undo :func:`install`. Clients that exist stay what they are."""
    for each in (_PRODUCER, _CONSUMER):
        each.replace_with(each.original)
