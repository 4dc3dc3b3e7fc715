"""Whether a client can reach the brokers that lead the topics in use."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkaclient.cluster.view import NO_LEADER
from kafkaclient.cluster.waits import LOGGED_AFTER_S
from kafkaclient.errors import KafkaError
from kafkaclient.time_limit import time_limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.cluster.router import Router
    from kafkaclient.cluster.view import Broker
    from kafkaclient.types import TopicPartition

_FRESH_S = 5.0  # how old metadata may be, which tells of deleted topics
_MOST_NAMED = 5  # partitions in one message


@dataclass(frozen=True, slots=True)
class Health:
    """The answer of ``healthy()`` of a producer or consumer: true if there are no problems.

    ``str(health)`` names everything that was found, for a log or the body of a response.
    """

    problems: tuple[str, ...] = ()
    """Why records cannot be delivered or consumed now: the client does not run, no broker answers,
    none of a topic's partitions can be written or read, or the consumer is not in its group."""
    warnings: tuple[str, ...] = ()
    """What delays some records only: partitions whose leader does not answer (records without a key
    go to other partitions), and what calls have waited for longer than 5 s."""

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        return "; ".join((*self.problems, *self.warnings)) or "healthy"


async def check_brokers(
    metadata: Metadata,
    router: Router,
    timeout_s: float,
    now: float,
    misrouted: Mapping[int, str],
    removed: Iterable[TopicPartition],
    use: str = "written",
) -> Health:
    """Probe the leaders of all topics in use, or all brokers without such a topic, at the same
    time. Requests new metadata if a leader does not answer, because another broker may lead by now,
    and if the metadata is old at the clock's time ``now``. The next check sees it. ``misrouted``:
    why brokers are not reached, whatever answers at their addresses. ``removed``: partitions that
    records wait for and that their topics no longer have. ``use``: what the client does with
    partitions, for messages."""
    view = metadata.view
    leaders = {n for topic in view.topics.values() for n in topic.leaders if n in view.brokers}
    asked = leaders or view.brokers
    silent = await _silent(router, asked, timeout_s)
    silent |= {node_id: why for node_id, why in misrouted.items() if node_id in asked}
    if silent or now - metadata.refreshed_at > _FRESH_S:
        metadata.request_refresh("a health check")
    if len(silent) == len(asked):
        who = "no leader of the topics in use" if leaders else "no broker"
        return Health((f"{who} answers: {', '.join(silent.values()) or 'none is known'}",))
    problems: list[str] = []
    warnings: list[str] = []
    told = metadata.topic_errors()
    for name, error in told.items():
        # A name that never was a topic's may come from a user of the service.
        (problems if name in view.topics else warnings).append(f"topic {name}: {error}")
    for topic in view.topics.values():
        reasons = {p.leader: _reason(p.leader, view.brokers, silent) for p in topic.partitions}
        unavailable = [p for p in topic.partitions if reasons[p.leader] is not None]
        why = ", ".join(reason for _, reason in sorted(reasons.items()) if reason is not None)
        if not unavailable:
            continue
        if len(unavailable) == len(topic.partitions):
            problems.append(f"no partition of topic {topic.name} can be {use}: {why}")
        else:
            numbers = ", ".join(str(p.partition) for p in unavailable[:_MOST_NAMED])
            left = len(unavailable) - _MOST_NAMED
            more = f" and {left} more" if left > 0 else ""
            warnings.append(
                f"partitions {numbers}{more} of topic {topic.name} cannot be {use}: {why}"
            )
    warnings += [
        f"records wait for partition {tp.partition} of topic {tp.topic}, which the topic no longer "
        "has (it was created again)"
        for tp in removed
    ]
    lasting = metadata.waits.lasting(LOGGED_AFTER_S)
    warnings += [text for text, topic in lasting if topic not in told]
    return Health(tuple(problems), tuple(warnings))


async def _silent(router: Router, brokers: Iterable[int], timeout_s: float) -> dict[int, str]:
    """The brokers that do not answer within the time, and why."""

    async def ask(node_id: int) -> tuple[int, str | None]:
        try:
            async with time_limit(timeout_s):
                await router.probe(node_id)
        except KafkaError as error:
            return node_id, str(error)
        except TimeoutError:
            return node_id, f"broker {node_id} did not answer within {timeout_s:g} s"
        return node_id, None

    answers = await asyncio.gather(*map(ask, sorted(brokers)))
    return {node_id: why for node_id, why in answers if why is not None}


def _reason(leader: int, brokers: Mapping[int, Broker], silent: Mapping[int, str]) -> str | None:
    """Why partitions with this leader cannot be written; None: they can."""
    if leader == NO_LEADER:
        return "there is no leader"
    if leader not in brokers:
        return f"the metadata does not name the address of the leader, broker {leader}"
    return silent.get(leader)
