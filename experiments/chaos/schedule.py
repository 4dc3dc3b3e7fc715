"""The faults of a campaign and their times, which only a seed decides, before anything starts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["NODE_KINDS", "Fault", "FaultKind", "outage", "schedule"]


class FaultKind(StrEnum):
    """What happens; for ``seconds`` of its :class:`Fault`, if it lasts."""

    KILL = "kill"
    """The broker gets SIGKILL, and is started again ``seconds`` later."""
    TERMINATE = "terminate"
    """The broker gets SIGTERM, and is started again ``seconds`` after it ended."""
    PAUSE = "pause"
    """The broker gets SIGSTOP, and SIGCONT ``seconds`` later."""
    CUT = "cut"
    """Every client's connection to the broker is closed."""
    CUT_BEFORE = "cut before"
    """A connection is closed when a Produce request comes; the broker does not get it."""
    CUT_AFTER = "cut after"
    """A connection is closed when a Produce response comes; the client does not get it."""
    CORRUPT = "corrupt"
    """A byte of a Produce request is changed under its batch's checksum."""
    DELAY = "delay"
    """The round trip to the broker takes ``amount`` seconds longer."""
    MOVE_LEADERS = "move leaders"
    """Each partition's leader becomes the replica ``amount`` places after its first leader."""
    GROW = "grow"
    """The topics of records without key get ``amount`` more partitions."""
    OUTAGE = "outage"
    """Every broker is killed at once, and started again ``seconds`` later."""


NODE_KINDS = (FaultKind.KILL, FaultKind.TERMINATE, FaultKind.PAUSE)
"""Faults that take a broker away. They come one after the other, so that a majority of the
controllers, and two of three replicas, are always up."""

_MINOR_KINDS = (
    FaultKind.CUT,
    FaultKind.CUT_BEFORE,
    FaultKind.CUT_AFTER,
    FaultKind.CORRUPT,
    FaultKind.DELAY,
)
_ENCRYPTED_KINDS = (FaultKind.CUT, FaultKind.DELAY)
"""The minor faults that a proxy has without reading requests."""
_NODE_EVERY_S, _SHORTEST_S, _LONGEST_S = 15.0, 2.0, 12.0
_LATEST_IN_SLOT_S = 2.0
_MINOR_EVERY_S = 5.0
_MOVE_EVERY_S, _GROW_EVERY_S = 60.0, 120.0
_LEAST_FREE_S = 1.0
_REPLICAS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault that begins ``at`` seconds after the load; ``broker`` is -1 for all brokers."""

    at: float
    kind: FaultKind
    broker: int = -1
    seconds: float = 0.0
    amount: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "kind": self.kind.value}


def schedule(seed: int, seconds: float, brokers: int, *, encrypted: bool = False) -> list[Fault]:
    """The faults of a campaign of ``seconds``, in the order of their times.

    A broker is killed, terminated or paused every 15 s on average, each as often, for 2 to 12 s,
    on average 7 s. A smaller fault comes every 5 s; if the connections are ``encrypted``, only one
    that needs no look into requests. All leaders move every minute. Equal arguments make equal
    faults.
    """
    rng = Random(f"chaos {seed} {seconds:g} {brokers}")
    faults = [
        *_node_faults(rng, seconds, brokers),
        *_minor_faults(rng, seconds, brokers, _ENCRYPTED_KINDS if encrypted else _MINOR_KINDS),
        *_moves(rng, seconds),
        *_growth(rng, seconds),
    ]
    return sorted(faults, key=lambda fault: fault.at)


def outage(seconds: float, length: float) -> list[Fault]:
    """One fault: all brokers away for ``length`` seconds in the middle of the campaign."""
    at = max(0.0, (seconds - length) / 2)
    return [Fault(at=round(at, 3), kind=FaultKind.OUTAGE, seconds=length)]


def _node_faults(rng: Random, seconds: float, brokers: int) -> Iterator[Fault]:
    number = max(1, round(seconds / _NODE_EVERY_S))
    slot = seconds / number
    # Short and long faults are equally frequent: brokers are away for the same share of any run.
    stratum = (_LONGEST_S - _SHORTEST_S) / number
    lengths = [
        _SHORTEST_S + stratum * (place + 0.5 + rng.uniform(-0.2, 0.2)) for place in range(number)
    ]
    rng.shuffle(lengths)
    kinds, nodes = _dealt(rng, NODE_KINDS), _dealt(rng, range(brokers))
    for place, wanted in enumerate(lengths):
        length = min(wanted, slot - _LEAST_FREE_S)
        late = rng.uniform(0.0, max(0.0, min(_LATEST_IN_SLOT_S, slot - _LEAST_FREE_S - length)))
        yield Fault(
            at=round(place * slot + late, 3),
            kind=next(kinds),
            broker=next(nodes),
            seconds=round(length, 3),
        )


def _minor_faults(
    rng: Random, seconds: float, brokers: int, among: Sequence[FaultKind]
) -> Iterator[Fault]:
    number = round(seconds / _MINOR_EVERY_S)
    kinds, nodes = _dealt(rng, among), _dealt(rng, range(brokers))
    for place in range(number):
        at = round((place + rng.random()) * seconds / number, 3)
        kind = next(kinds)
        if kind is FaultKind.DELAY:
            length, amount = rng.uniform(_SHORTEST_S, 6.0), rng.uniform(0.05, 0.5)
            yield Fault(
                at=at,
                kind=kind,
                broker=next(nodes),
                seconds=round(length, 3),
                amount=round(amount, 3),
            )
        else:
            yield Fault(at=at, kind=kind, broker=next(nodes))


def _moves(rng: Random, seconds: float) -> Iterator[Fault]:
    for turn, at in enumerate(_now_and_then(rng, seconds, _MOVE_EVERY_S), start=1):
        yield Fault(at=at, kind=FaultKind.MOVE_LEADERS, amount=turn % _REPLICAS)


def _growth(rng: Random, seconds: float) -> Iterator[Fault]:
    for at in _now_and_then(rng, seconds, _GROW_EVERY_S):
        yield Fault(at=at, kind=FaultKind.GROW, amount=2)


def _now_and_then(rng: Random, seconds: float, every_s: float) -> Iterator[float]:
    number = max(1, round(seconds / every_s))
    for place in range(number):
        yield round((place + rng.uniform(0.2, 0.8)) * seconds / number, 3)


def _dealt(rng: Random, values: Sequence[Any]) -> Iterator[Any]:
    """The values in random order, without end, and none twice in a row."""
    last: Any = None
    while True:
        deck = list(values)
        rng.shuffle(deck)
        if deck[0] == last and len(deck) > 1:
            deck.append(deck.pop(0))
        yield from deck
        last = deck[-1]
