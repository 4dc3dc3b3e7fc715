"""aiokafka's producer API on this package's producer: a drop-in for ``AIOKafkaProducer``.

One changed import, ``from kafkaclient.aiokafka import AIOKafkaProducer``, or one call,
:func:`install`, for libraries that import aiokafka themselves. Needs the extra ``aiokafka``.
docs/how-to/aiokafka.md describes both."""

from __future__ import annotations

import logging
import sys
from types import FunctionType
from typing import Any

try:
    import aiokafka
    import aiokafka.producer
    import aiokafka.producer.producer
except ImportError as error:
    raise ImportError(
        f"kafkaclient.aiokafka needs aiokafka ({error}): pip install 'kafkaclient[aiokafka]'"
    ) from error

from kafkaclient.aiokafka.producer import AIOKafkaProducer
from kafkaclient.aiokafka.structs import RecordMetadata, TopicPartition

__all__ = ["AIOKafkaProducer", "RecordMetadata", "TopicPartition", "install", "uninstall"]

_log = logging.getLogger(__name__)
_NAME = "AIOKafkaProducer"
PLACES: tuple[Any, ...] = (aiokafka, aiokafka.producer, aiokafka.producer.producer)
"""The modules of aiokafka that have the class under its name."""
_original: Any = getattr(aiokafka.producer.producer, _NAME)


def install() -> None:
    """Make ``aiokafka.AIOKafkaProducer`` the drop-in, for the whole process.

    Call it once, before other modules import aiokafka's producer and before an instrumentation
    wraps its methods. A second call does nothing. Modules that have imported aiokafka's own class
    already, under any name, keep it: a warning in the log names them. Another warning says that an
    instrumentation has wrapped aiokafka's own class.
    """
    if early := _modules_with_the_original():
        _log.warning(
            "install() comes too late for %s: they have imported aiokafka's own producer already",
            ", ".join(early),
        )
    if _is_wrapped():
        _log.warning(
            "install() comes too late for an instrumentation: it has wrapped the method send of "
            "aiokafka's own producer; instrument after install()"
        )
    for module in PLACES:
        setattr(module, _NAME, AIOKafkaProducer)


def uninstall() -> None:
    """Undo :func:`install`. Producers that exist stay what they are."""
    for module in PLACES:
        setattr(module, _NAME, _original)


def _modules_with_the_original() -> list[str]:
    """The names of the modules that have aiokafka's own class in a variable, without aiokafka."""
    known = (*PLACES, sys.modules[__name__])
    return [
        name
        for name, module in sorted(sys.modules.items())
        if module not in known
        and any(value is _original for value in [*getattr(module, "__dict__", {}).values()])
    ]


def _is_wrapped() -> bool:
    """Whether ``send`` of aiokafka's own class is not the function that aiokafka defines."""
    send = vars(_original)["send"]
    return type(send) is not FunctionType or send.__globals__ is not vars(PLACES[-1])
