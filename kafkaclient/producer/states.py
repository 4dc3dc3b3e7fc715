"""The states of a producer's life."""

from __future__ import annotations

from enum import Enum


class ProducerState(Enum):
    """``value`` completes the sentence "the producer ..."."""

    NEW = "has not been started"
    STARTING = "is being started"
    RUNNING = "is running"
    STOPPING = "is being stopped"
    STOPPED = "is stopped"
    FORKED = "belongs to the process that started it; create a new producer in a forked child"
