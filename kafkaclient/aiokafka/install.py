"""Put the drop-in in the place of aiokafka's producer, for libraries that import aiokafka."""

from __future__ import annotations

import logging
import sys
from typing import Any

import aiokafka
import aiokafka.producer
import aiokafka.producer.producer

from kafkaclient.aiokafka.producer import AIOKafkaProducer

__all__ = ["install", "uninstall"]

_log = logging.getLogger(__name__)
_NAME = "AIOKafkaProducer"
_PLACES: tuple[Any, ...] = (aiokafka, aiokafka.producer, aiokafka.producer.producer)
_original: Any = getattr(aiokafka.producer.producer, _NAME)


def install() -> None:
    """Make ``aiokafka.AIOKafkaProducer`` the drop-in, for the whole process.

    Call it once, before other modules import aiokafka's producer and before an instrumentation
    wraps its methods. A second call does nothing. Modules that have imported aiokafka's own class
    already keep it; a warning in the log names them.
    """
    early = [
        name
        for name, module in sorted(sys.modules.items())
        if module not in _PLACES and getattr(module, "__dict__", {}).get(_NAME) is _original
    ]
    if early:
        _log.warning(
            "install() comes too late for %s: they have imported aiokafka's own producer already",
            ", ".join(early),
        )
    for module in _PLACES:
        setattr(module, _NAME, AIOKafkaProducer)


def uninstall() -> None:
    """Undo :func:`install`. Producers that exist stay what they are."""
    for module in _PLACES:
        setattr(module, _NAME, _original)
