"""What is run, and what a run is told, as plain values."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

__all__ = ["FLIGHTS", "Entry", "Job"]

FLIGHTS = 0
"""In place of a value's size: the flights of ``examples.flights``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One way of one client to send."""

    client: str
    setting: str
    """Unique among the client's entries."""
    way: str
    """The function of the client's module that does it."""
    value_bytes: int = 100
    keyed: bool = False
    """With keys of 8 random bytes."""
    compression: Literal["none", "lz4", "zstd"] = "none"
    linger_ms: float = 5.0
    tasks: int = 1
    partitions: int = 6
    loop: Literal["uvloop", "asyncio"] = "uvloop"
    batch_bytes: int = 0
    """The raw sender's; 0: as in the run of ``like`` before it."""
    like: str | None = None
    slow: int = 1
    """A bound in records is divided by this."""
    stage: Literal["main", "scale"] = "main"
    """Each stage has a broker of its own."""
    overload: bool = False
    """Runs as long as the option for overload says."""

    @property
    def name(self) -> str:
        return f"{self.client}: {self.setting}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of an entry: where to send, and for how long.

    It ends after ``seconds``, or ``records`` when that is sooner.
    """

    entry: Entry
    bootstrap: str
    topic: str
    folder: str
    """For what one run makes and others use."""
    seconds: float
    records: int | None = None
    batch_bytes: int = 0
    batches_per_request: int = 1

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        values: dict[str, Any] = json.loads(text)
        return cls(**values | {"entry": Entry(**values["entry"])})
