"""The faults of a campaign and their times, which only a seed decides, before anything starts."""

from __future__ import annotations

from random import Random

from experiments.streams_chaos.schedule import (
    BROKER_LENGTHS_S,
    INSTANCE_LENGTHS_S,
    Fault,
    FaultKind,
    faults_of,
)

__all__ = ["CLUSTER_KINDS", "MEMBER_KINDS", "TOPIC_KINDS", "schedule"]

MEMBER_KINDS = (
    FaultKind.RESTART,
    FaultKind.KILL,
    FaultKind.PAUSE,
    FaultKind.CUT_OFF,
    FaultKind.CANCEL,
    FaultKind.LEAVE,
)
"""Faults of members overlap, so at times no member is left."""
CLUSTER_KINDS = (
    FaultKind.BROKER_KILL,
    FaultKind.BROKER_PAUSE,
    FaultKind.COORDINATOR_KILL,
    FaultKind.COORDINATOR_MOVE,
)
"""One broker at a time: two of three replicas stay in sync."""
TOPIC_KINDS = (FaultKind.RECREATE, FaultKind.GROW)


def schedule(
    seed: int,
    seconds: float,
    *,
    members: int,
    brokers: int,
    topics: int,
    member_every_s: float,
    broker_every_s: float,
    topic_every_s: float,
) -> list[Fault]:
    """The faults in the order of their times. Equal arguments make equal faults.

    Every ``member_every_s`` on average a member has a fault of 0.5 to 15 s, every
    ``broker_every_s`` a broker one of 2 to 8 s, and every ``topic_every_s`` a topic one; 0 for no
    fault of brokers, or of topics.
    """
    rng = Random(f"consumer-chaos {seed} {seconds:g} {members} {brokers} {topics}")
    faults = list(
        faults_of(rng, seconds, MEMBER_KINDS, members, member_every_s, INSTANCE_LENGTHS_S)
    )
    for kinds, number, every_s in (
        (CLUSTER_KINDS, brokers, broker_every_s),
        (TOPIC_KINDS, topics, topic_every_s),
    ):
        if every_s:
            faults += faults_of(rng, seconds, kinds, number, every_s, BROKER_LENGTHS_S)
    return sorted(faults, key=lambda fault: fault.at)
