"""The faults of a run and their times, which only a seed decides, before anything starts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "BROKER_KINDS",
    "COORDINATOR_KINDS",
    "SPARK_KINDS",
    "TOPIC_KINDS",
    "Fault",
    "FaultKind",
    "schedule",
]


class FaultKind(StrEnum):
    """What happens, for ``seconds`` of its :class:`Fault`."""

    EXECUTOR_KILL = "executor kill"
    """An executor's JVM gets SIGKILL; the worker starts another."""
    EXECUTOR_PAUSE = "executor pause"
    """An executor and its Python workers get SIGSTOP, then SIGCONT."""
    DRIVER_KILL = "driver kill"
    """The driver and its JVM get SIGKILL; a driver is started from the checkpoint."""
    DRIVER_PAUSE = "driver pause"
    """The driver and its JVM get SIGSTOP, then SIGCONT."""
    BROKER_KILL = "broker kill"
    """The broker gets SIGKILL, and is started again."""
    BROKER_PAUSE = "broker pause"
    """The broker gets SIGSTOP, then SIGCONT."""
    COORDINATOR_KILL = "coordinator kill"
    """The same as for a broker, of the one that coordinates the transactions of the query's
    ledger."""
    COORDINATOR_PAUSE = "coordinator pause"
    MOVE_LEADERS = "move leaders"
    """Every partition of both topics, and of ``__transaction_state``, leaves its leader."""
    ADD_PARTITIONS = "add partitions"
    """Both topics get another partition."""


SPARK_KINDS = (
    FaultKind.EXECUTOR_KILL,
    FaultKind.DRIVER_KILL,
    FaultKind.EXECUTOR_PAUSE,
    FaultKind.DRIVER_PAUSE,
)
COORDINATOR_KINDS = (FaultKind.COORDINATOR_KILL, FaultKind.COORDINATOR_PAUSE)
BROKER_KINDS = (FaultKind.BROKER_KILL, FaultKind.BROKER_PAUSE, *COORDINATOR_KINDS)
"""One broker at a time: two of three replicas stay in sync."""
TOPIC_KINDS = (FaultKind.MOVE_LEADERS, FaultKind.ADD_PARTITIONS)

_SECONDS = {FaultKind.EXECUTOR_PAUSE: (2.0, 25.0)} | dict.fromkeys(TOPIC_KINDS, (0.0, 0.0))
_OTHERWISE = (2.0, 8.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault that begins ``at`` seconds after the first batch, and lasts ``seconds``."""

    at: float
    kind: FaultKind
    which: int
    """A broker, or an executor modulo their number; of other faults without a meaning."""
    seconds: float

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "kind": self.kind.value}


def schedule(
    seed: str, seconds: float, *, brokers: int, every_s: float, transactional: bool
) -> list[Fault]:
    """The faults in the order of their times. Equal arguments make equal faults.

    Every ``every_s`` on average there is one of Spark, one of a broker, and one of the topics.
    Coordinators of transactions have faults only if the query is ``transactional``.
    """
    rng = Random(f"spark-chaos {seed} {seconds:g} {brokers}")
    of_brokers = BROKER_KINDS if transactional else BROKER_KINDS[:2]
    faults: list[Fault] = []
    for kinds in (SPARK_KINDS, of_brokers, TOPIC_KINDS):
        faults += _faults(rng, seconds, kinds, brokers, every_s)
    return sorted(faults, key=lambda fault: fault.at)


def _faults(
    rng: Random, seconds: float, kinds: Sequence[FaultKind], brokers: int, every_s: float
) -> Iterator[Fault]:
    deck: list[FaultKind] = []
    for slot in range(max(1, round(seconds / every_s))):
        deck = deck or rng.sample(kinds, len(kinds))
        kind = deck.pop()
        yield Fault(
            at=round((slot + rng.random()) * min(every_s, seconds), 3),
            kind=kind,
            which=rng.randrange(brokers),
            seconds=round(rng.uniform(*_SECONDS.get(kind, _OTHERWISE)), 3),
        )
