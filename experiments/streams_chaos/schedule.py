"""The faults of a campaign and their times, which only a seed decides, before anything starts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "BROKER_KINDS",
    "BROKER_LENGTHS_S",
    "INSTANCE_KINDS",
    "INSTANCE_LENGTHS_S",
    "Fault",
    "FaultKind",
    "faults_of",
    "schedule",
]


class FaultKind(StrEnum):
    """What happens, for ``seconds`` of its :class:`Fault`."""

    RESTART = "restart"
    """The instance gets SIGTERM, and is started again."""
    KILL = "kill"
    """The instance gets SIGKILL, and is started again."""
    LOSE_DISK = "lose disk"
    """The instance gets SIGKILL, and is started again without its state."""
    PAUSE = "pause"
    """The instance gets SIGSTOP, then SIGCONT: all its connections stay open."""
    CUT_OFF = "cut off"
    """No byte passes between the instance and the brokers; then all pass that waited."""
    BROKER_KILL = "broker kill"
    """The broker gets SIGKILL, and is started again."""
    BROKER_RESTART = "broker restart"
    """The broker gets SIGTERM, and is started again."""
    BROKER_PAUSE = "broker pause"
    """The broker gets SIGSTOP, then SIGCONT."""
    CANCEL = "cancel"
    """The consumer's loop is cancelled, and another loop of the same consumer begins."""
    LEAVE = "leave"
    """The task with the consumer is cancelled: it leaves its group, and another one joins."""
    COORDINATOR_KILL = "coordinator kill"
    """The broker that coordinates the group gets SIGKILL, and is started again."""
    COORDINATOR_MOVE = "coordinator move"
    """Another broker becomes the group's coordinator; all brokers stay up."""
    GROW = "grow"
    """The topic gets two partitions more."""
    RECREATE = "recreate"
    """The topic is deleted, and created again under its name."""


INSTANCE_KINDS = (
    FaultKind.RESTART,
    FaultKind.KILL,
    FaultKind.LOSE_DISK,
    FaultKind.PAUSE,
    FaultKind.CUT_OFF,
)
"""Faults of instances overlap, so at times no instance is left."""
BROKER_KINDS = (FaultKind.BROKER_KILL, FaultKind.BROKER_RESTART, FaultKind.BROKER_PAUSE)
"""One broker at a time: two of three replicas stay in sync."""

INSTANCE_LENGTHS_S = (0.5, 15.0)
BROKER_LENGTHS_S = (2.0, 8.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault that begins ``at`` seconds after the load, and lasts ``seconds``."""

    at: float
    kind: FaultKind
    which: int
    """The number of the instance, the broker or the topic, from 0."""
    seconds: float

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "kind": self.kind.value}


def schedule(
    seed: int,
    seconds: float,
    *,
    instances: int,
    brokers: int,
    instance_every_s: float,
    broker_every_s: float,
) -> list[Fault]:
    """The faults in the order of their times. Equal arguments make equal faults.

    Every ``instance_every_s`` on average an instance has a fault of 0.5 to 15 s, every
    ``broker_every_s`` a broker one of 2 to 8 s; 0 for no fault of brokers.
    """
    rng = Random(f"streams-chaos {seed} {seconds:g} {instances} {brokers}")
    faults = list(
        faults_of(rng, seconds, INSTANCE_KINDS, instances, instance_every_s, INSTANCE_LENGTHS_S)
    )
    if broker_every_s:
        faults += faults_of(rng, seconds, BROKER_KINDS, brokers, broker_every_s, BROKER_LENGTHS_S)
    return sorted(faults, key=lambda fault: fault.at)


def faults_of(
    rng: Random,
    seconds: float,
    kinds: Sequence[FaultKind],
    number: int,
    every_s: float,
    lengths_s: tuple[float, float],
) -> Iterator[Fault]:
    """Faults of these kinds, each kind as often: one every ``every_s`` on average, on one of
    ``number`` instances, brokers or topics."""
    drawn = _dealt(rng, kinds)
    for slot in range(max(1, round(seconds / every_s))):
        yield Fault(
            at=round((slot + rng.random()) * min(every_s, seconds), 3),
            kind=next(drawn),
            which=rng.randrange(number),
            seconds=round(rng.uniform(*lengths_s), 3),
        )


def _dealt(rng: Random, kinds: Sequence[FaultKind]) -> Iterator[FaultKind]:
    """The kinds in random order without end, each as often."""
    while True:
        deck = list(kinds)
        rng.shuffle(deck)
        yield from deck
