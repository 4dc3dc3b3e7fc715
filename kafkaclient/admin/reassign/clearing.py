"""Ends throttles: clears what nothing needs, and unthrottles replicas that are almost in sync.

:func:`clear_throttles` announces itself first, so that no other operator of this package sets a
throttle meanwhile (:mod:`kafkaclient.admin.announcements`). It reads every topic: a broker's rate
may be removed only if no topic lists a replica for which the rate is needed.

A throttle delays the fetches of replicas that are not in sync. A leader delays records with
``acks=all`` until a replica that has almost caught up is in sync
(``Partition.maybeIncrementLeaderHW``, at most ``replica.lag.time.max.ms``). Together, the quota
delays clients. A replica without a throttle fetches its missing bytes at once, and is in sync two
fetches later.

The quota does not count the bytes of unthrottled replicas. So a replica is unthrottled only when it
lacks no more than one fetch, and the unthrottled bytes per second are limited to :data:`SHARE` of
the quota.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.admin.configs import ConfigResource
from kafkaclient.admin.description import known_brokers, live_brokers, partitions_of
from kafkaclient.admin.reassign.cluster_reader import ClusterReader
from kafkaclient.admin.reassign.outcome import ALL_RATE_KEYS, LIST_KEYS, Lifted
from kafkaclient.admin.reassign.throttle import ThrottleConfigs
from kafkaclient.admin.session import gather_outcomes
from kafkaclient.errors import (
    AdminStateError,
    AuthorizationError,
    KafkaError,
    ReassignmentError,
    RequestTimedOutError,
    UnknownTopicError,
)
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from kafkaclient.admin.configs import Configs
    from kafkaclient.admin.reassign.outcome import BrokerThrottle, ListRemoval, TopicThrottle
    from kafkaclient.admin.reassign.plan import Move
    from kafkaclient.admin.reassign.progress import Measurements
    from kafkaclient.admin.running import Operation, RunningAdmin
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


_log = logging.getLogger(__name__)

FETCH_BYTES = 1024 * 1024  # bytes of one partition in a fetch: replica.fetch.max.bytes by default
SHARE = 0.2  # share of a broker's quota that unthrottled replicas may add per second
_TRUSTED_LACK = 16 * FETCH_BYTES  # bytes from which an estimate by records is used
_SAVED_S = 2.5  # seconds of unused share that a broker may save
_INTERVAL_S = 1.0  # seconds between two checks
_SHORT_INTERVAL_S = 0.25  # seconds between two checks while a replica is almost in sync


async def unthrottle_early(
    operation: Operation, clock: Callable[[], float], moves: Mapping[TopicPartition, Move]
) -> None:
    """Run until cancelled or until the admin client is closed. Errors are logged and retried: a
    reassignment completes without this task, too."""
    early = EarlyUnthrottling(moves)
    while True:
        pause, began = _INTERVAL_S, clock()
        try:
            async with operation("checking new replicas") as running:
                now = await ClusterReader(running, clock).measure(moves)
                if due := early.due(now):
                    changing = asyncio.ensure_future(ThrottleConfigs(running).unthrottle(due))
                    try:
                        early.unthrottled |= await asyncio.shield(changing)
                    finally:
                        # A change that a broker applies after the throttles were cleared would
                        # leave an empty list.
                        await asyncio.wait({changing})
                pause = early.pause_s(now)
        except AdminStateError:
            return
        except KafkaError as error:
            _log.debug("cannot unthrottle replicas that are almost in sync: %s", error)
        # A check of thousands of replicas loads the brokers: spend at most half of the time on it.
        await asyncio.sleep(max(pause, clock() - began))


class _Rest(NamedTuple):
    """The bytes that a replica lacks, and the brokers of its leader and its own."""

    nbytes: int
    replica: tuple[TopicPartition, int]
    nodes: tuple[int, int]


class EarlyUnthrottling:
    """Selects the replicas of ``moves`` to unthrottle from successive measurements. The caller adds
    those that it has unthrottled to :attr:`unthrottled`."""

    def __init__(self, moves: Mapping[TopicPartition, Move]) -> None:
        self.unthrottled: set[tuple[TopicPartition, int]] = set()
        self._moves = moves
        self._saved: dict[int, float] = {}
        """The bytes that may be unthrottled now, by broker."""
        self._at: float | None = None

    def due(self, now: Measurements) -> list[tuple[TopicPartition, int]]:
        """The replicas to unthrottle now."""
        passed = 0.0 if self._at is None else now.at - self._at
        self._at = now.at
        most = {node: rate * SHARE * _SAVED_S for node, rate in now.rates.items()}
        self._saved = {
            node: min(most[node], self._saved.get(node, most[node]) + rate * SHARE * passed)
            for node, rate in now.rates.items()
        }
        found = []
        for nbytes, replica, both in sorted(self._rests(now)):
            if nbytes > FETCH_BYTES:
                break
            nodes = [node for node in both if node in most]
            # A replica that lacks more than can be saved needs the full savings.
            if all(most[n] > 0 and self._saved[n] >= min(nbytes, most[n]) for n in nodes):
                for node in nodes:
                    self._saved[node] -= nbytes
                found.append(replica)
        return found

    def pause_s(self, now: Measurements) -> float:
        """The seconds until the next check: few if a replica may be due within the usual time."""
        reach = FETCH_BYTES + max(now.rates.values(), default=0) * _INTERVAL_S
        is_close = any(rest.nbytes <= reach for rest in self._rests(now))
        return _SHORT_INTERVAL_S if is_close else _INTERVAL_S

    def _rests(self, now: Measurements) -> Iterator[_Rest]:
        """What each throttled replica lacks that exists and is not in sync."""
        for (partition, node), lag in now.lags.items():
            leader, isr = now.partitions[partition].leader, now.partitions[partition].isr
            whole, own = (now.sizes.get(at, {}).get(partition) for at in (leader, node))
            replica = partition, node
            if whole is None or own is None or node in isr:
                continue
            if partition in self._moves and replica not in self.unthrottled:
                nbytes = lacking(whole, own, lag, now.records[partition])
                yield _Rest(nbytes, replica, (leader, node))


def lacking(whole: int, own: int, lag: int, records: int) -> int:
    """The bytes that a replica lacks. ``whole`` and ``records`` are the bytes and records on the
    leader, ``own`` the bytes and ``lag`` the missing records of the replica.

    Sizes on disk are exact for records of any size. But retention deletes segments from the
    leader's disk minutes earlier, so an estimate by records is used if it is much larger.
    """
    by_records = whole * lag // records if records else 0
    return max(whole - own, by_records if by_records > _TRUSTED_LACK else 0)
