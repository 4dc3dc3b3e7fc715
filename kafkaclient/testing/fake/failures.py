"""Scripted failures for the partitions of a fake cluster."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ProduceFailure", "ScriptedFailures"]


@dataclass(frozen=True, slots=True)
class ProduceFailure:
    """The error of one partition in a response. ``append``: the batch is written nevertheless."""

    error_code: int
    message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()
    append: bool = False


class ScriptedFailures:
    """A queue of failures for each partition."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, int], deque[ProduceFailure]] = {}

    def add(self, topic: str, partition: int, failure: ProduceFailure, times: int) -> None:
        self._waiting.setdefault((topic, partition), deque()).extend([failure] * times)

    def next(self, topic: str, partition: int) -> ProduceFailure | None:
        waiting = self._waiting.get((topic, partition))
        return waiting.popleft() if waiting else None

    def clear(self) -> None:
        self._waiting.clear()
