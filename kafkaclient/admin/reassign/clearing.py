"""Clears throttles: removes those that nothing needs, and restores what they replaced.

:func:`clear_throttles` announces itself first, so that no other operator of this package sets a
throttle meanwhile (:mod:`kafkaclient.admin.announcements`). It reads every topic: a broker's rate
may be removed only if no topic lists a replica for which the rate is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafkaclient.admin.configs import ConfigResource
from kafkaclient.admin.description import known_brokers, live_brokers, partitions_of
from kafkaclient.admin.reassign.outcome import Lifted
from kafkaclient.admin.reassign.throttle import ThrottleConfigs
from kafkaclient.admin.reassign.throttle_marks import ALL_RATE_KEYS, LIST_KEYS
from kafkaclient.admin.session import gather_outcomes
from kafkaclient.errors import (
    AuthorizationError,
    KafkaError,
    ReassignmentError,
    RequestTimedOutError,
    UnknownTopicError,
)
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from kafkaclient.admin.configs import Configs
    from kafkaclient.admin.reassign.throttle_marks import BrokerThrottle, ListRemoval, TopicThrottle
    from kafkaclient.admin.running import RunningAdmin
    from kafkaclient.wire.admin import OngoingReassignment


async def clear_throttles(
    running: RunningAdmin,
    *,
    completed: Iterable[TopicPartition] = (),
    brokers: Collection[int] | None = None,
    force: bool = False,
    everyone: bool = False,
    keep_needed: bool = True,
) -> Lifted:
    """Remove all throttles of this package that are not needed: not by a reassignment, nor by a
    replica that catches up. ``completed`` partitions count as in sync. A broker that is down keeps
    its rates and is reported as a failure, if it is in ``brokers`` (None: if it has replicas).
    Topics that are hidden are failures as well.

    If a first read finds no throttle to remove, there is no announcement and no change. ``force``
    skips this read, because a broker may not know the latest throttles yet. For ``everyone`` and
    ``keep_needed`` see :meth:`.ReplicationQuotas.clear`.
    """
    known = frozenset(completed)
    if not (force or everyone):
        first = await _plan(running, known, brokers, None, keep_needed=keep_needed)
        if not (first.topics or first.brokers or await running.announcements.any_expired()):
            return first.kept
    try:
        async with running.announcements.clearing() as seen:
            if everyone and not (keep_needed and await running.reassignments.ongoing()):
                return await _delete_all(running, seen)
            plan = await _plan(running, known, brokers, seen, keep_needed=keep_needed)
            cleared = await _carry_out(running.configs, plan)
    except (AuthorizationError, ReassignmentError, TimeoutError) as error:
        if not isinstance(error, KafkaError):
            what = "removing throttles: not done in the reserved time; run it again"
            error = RequestTimedOutError(what)
        return Lifted(failures={"the cluster": error})
    if not everyone:
        return cleared
    moving = ReassignmentError(
        "a reassignment is in progress, so their throttles were not deleted (--now deletes them)"
    )
    return replace(cleared, failures={**cleared.failures, "other operators": moving})


@dataclass(frozen=True, slots=True)
class _Plan:
    """The throttles to remove, and the throttles that are still needed."""

    topics: Mapping[str, Mapping[str, ListRemoval]]
    """What to remove from a topic's lists, by topic and list key."""
    brokers: Mapping[int, BrokerThrottle]
    """The current throttles of brokers whose earlier rates are to be restored."""
    kept: Lifted
    """The throttles that are still needed, and the throttles that could not be read."""


async def _plan(
    running: RunningAdmin,
    completed: frozenset[TopicPartition],
    brokers: Collection[int] | None,
    seen: str | None,
    *,
    keep_needed: bool,
) -> _Plan:
    """The throttles of this package to clear, and those that are still needed."""
    ongoing = await running.reassignments.ongoing() if keep_needed else {}
    cluster = await running.session.metadata(None)
    views = partitions_of(cluster)

    def is_needed(partition: TopicPartition, follower: int | None) -> bool:
        """Whether the partition is being reassigned, or this follower is catching up."""
        if not keep_needed:
            return False
        if partition in ongoing:
            return True
        if follower is None or partition in completed:
            return False
        view = views.get(partition)
        return view is not None and follower in set(view.replicas) - set(view.isr)

    throttle = ThrottleConfigs(running)
    # Metadata omits topics that this client may not describe; these may be among them.
    names = {topic.name for topic in cluster.topics} | {p.topic for p in (*ongoing, *completed)}
    topics, hidden = await throttle.topics(names, seen=seen)
    asked = known_brokers(cluster) if brokers is None else {*live_brokers(cluster), *brokers}
    present, silent = await throttle.brokers(asked, seen=seen)
    removals: dict[str, Mapping[str, ListRemoval]] = {}
    needed: dict[str, frozenset[str]] = {}  # by topic, the elements of this package that stay
    for name, now in topics.items():
        keep = _needed_partitions(name, now, is_needed)
        lists = zip(LIST_KEYS, now, strict=True)
        removed = {key: gone for key, one in lists if (gone := one.removal(keep)) is not None}
        if removed:
            removals[name] = removed
        if left := now.ours().difference(*(each.elements for each in removed.values())):
            needed[name] = left
    ours = {node: now for node, now in present.items() if now.marks}
    # Topics that this client may not describe may need the rate of any broker.
    nodes = set(ours) if hidden else _needed_brokers(needed) | throttled_brokers(topics, ongoing)
    return _Plan(
        removals,
        {node: now for node, now in ours.items() if node not in nodes},
        Lifted(
            needed_topics=tuple(sorted(needed)),
            needed_brokers=tuple(sorted(ours.keys() & nodes)),
            failures=_described(hidden, silent),
        ),
    )


def _needed_brokers(needed: Mapping[str, Iterable[str]]) -> set[int]:
    """The brokers of list elements that stay."""
    return {int(element.partition(":")[2]) for left in needed.values() for element in left}


def throttled_brokers(
    topics: Mapping[str, TopicThrottle], ongoing: Mapping[TopicPartition, OngoingReassignment]
) -> set[int]:
    """The brokers of ongoing reassignments that this package or another tool throttles."""
    nodes: set[int] = set()
    for (topic, partition), state in ongoing.items():
        if topic not in topics or topics[topic].mentions(partition):
            nodes |= set(state.replicas)
    return nodes


def _needed_partitions(
    topic: str, now: TopicThrottle, is_needed: Callable[[TopicPartition, int | None], bool]
) -> set[str]:
    """The partition numbers, as text, whose elements are still needed."""
    keep, followers = set(), frozenset(now.follower.ours or ())
    for element in now.ours():
        number, _, node = element.partition(":")
        follower = int(node) if element in followers else None
        if is_needed(TopicPartition(topic, int(number)), follower):
            keep.add(number)
    return keep


async def _carry_out(configs: Configs, plan: _Plan) -> Lifted:
    """Remove the throttles of the plan, and restore the throttles that they replaced."""
    _, failed = await gather_outcomes(
        {name: _clear_topic(configs, name, lists) for name, lists in plan.topics.items()}
    )
    _, stayed = await gather_outcomes(
        {node: _restore_rates(configs, node, now) for node, now in plan.brokers.items()}
    )
    # A topic that was deleted meanwhile has no throttle.
    errors = {n: error for n, error in failed.items() if not isinstance(error, UnknownTopicError)}
    return replace(
        plan.kept,
        topics=tuple(sorted(plan.topics.keys() - failed.keys() - set(plan.kept.needed_topics))),
        brokers=tuple(sorted(plan.brokers.keys() - stayed.keys())),
        failures={**plan.kept.failures, **_described(errors, stayed)},
    )


async def _clear_topic(configs: Configs, name: str, lists: Mapping[str, ListRemoval]) -> None:
    await configs.alter(
        ConfigResource.topic(name),
        subtract={k: ",".join(one.elements) for k, one in lists.items() if not one.deletes_key},
        delete=[key for key, one in lists.items() if one.deletes_key],
    )


async def _restore_rates(configs: Configs, node: int, now: BrokerThrottle) -> None:
    restored = now.restored()
    await configs.alter(
        ConfigResource.broker(node),
        set={key: str(rate) for key, rate in restored.items() if rate is not None},
        delete=[
            *(each.key for each in now.marks),
            *(key for key, rate in restored.items() if rate is None),
        ],
    )


async def _delete_all(running: RunningAdmin, seen: str) -> Lifted:
    """Delete all throttles, also those of other tools, as Kafka's ``--verify`` does."""
    alter, throttle = running.configs.alter, ThrottleConfigs(running)
    cluster = await running.session.metadata(None)
    topics, hidden = await throttle.topics((topic.name for topic in cluster.topics), seen=seen)
    listed = sorted(name for name, now in topics.items() if now.any)
    _, failed = await gather_outcomes(
        {name: alter(ConfigResource.topic(name), delete=LIST_KEYS) for name in listed}
    )
    present, silent = await throttle.brokers(known_brokers(cluster), seen=seen)
    keys = {
        node: [*ALL_RATE_KEYS, *(mark.key for mark in now.marks)]
        for node, now in present.items()
        if now.rates or now.marks
    }
    _, stayed = await gather_outcomes(
        {node: alter(ConfigResource.broker(node), delete=each) for node, each in keys.items()}
    )
    defaults = tuple(await throttle.defaults())
    if defaults:
        await alter(ConfigResource.broker_defaults(), delete=defaults)
    return Lifted(
        tuple(name for name in listed if name not in failed),
        tuple(sorted(keys.keys() - stayed.keys())),
        failures=_described(hidden | failed, silent | stayed),
        defaults=defaults,
    )


def _described(
    topics: Mapping[str, KafkaError], brokers: Mapping[int, KafkaError]
) -> dict[str, KafkaError]:
    """The errors by description, as in ``broker 1``."""
    return {f"topic {name!r}": error for name, error in topics.items()} | {
        f"broker {node}": error for node, error in brokers.items()
    }
