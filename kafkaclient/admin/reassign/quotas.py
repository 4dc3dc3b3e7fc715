"""Replication quotas (KIP-73) that do not belong to a plan, and the removal of throttles."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkaclient.admin.reassign.early_unthrottle_loop import ease_arrivals
from kafkaclient.admin.reassign.moves import bootstrap_map
from kafkaclient.admin.reassign.throttle import throttle_of
from kafkaclient.admin.reassign.throttle_state import Lifted, Throttles
from kafkaclient.admin.topics import partitions_of
from kafkaclient.errors import (
    AuthorizationError,
    ConfigError,
    KafkaError,
    ReassignmentError,
    RequestTimedOutError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.admin.reassign.throttle_state import LiftPlan
    from kafkaclient.admin.running import Operation, RunningAdmin
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.results import MetadataResult

__all__ = [
    "ReplicationQuotas",
    "check_rate",
    "clean_up",
    "lift",
    "live_brokers",
    "warn_of",
]

_log = logging.getLogger(__name__)

_MAX_RATE = 2**63 - 1  # bytes per second
_CLEAN_UP_S = 30.0  # seconds to remove the throttles of a plan that did not start


class ReplicationQuotas:
    """Shows, changes and removes throttles, and throttles brokers that are far behind. It is
    ``Admin.replication_quotas``, and needs a running admin client.

    Throttles are marked in the cluster, together with the throttles that they replaced
    (:mod:`kafkaclient.admin.reassign.throttle_marks`). ``timeout_s`` limits each call.
    """

    def __init__(self, operation: Operation, clock: Callable[[], float]) -> None:
        self._operation = operation
        self._clock = clock

    async def describe(self, *, timeout_s: float | None = None) -> Throttles:
        """All throttles in the cluster, also those of other tools."""
        async with self._operation("describing throttles", timeout_s) as running:
            cluster = await running.session.metadata(None)
            throttle = throttle_of(running)
            topics, hidden = await throttle.topics(topic.name for topic in cluster.topics)
            brokers, failures = await throttle.brokers(live_brokers(cluster))
        set_ = {name: each for name, each in topics.items() if each.any}
        return Throttles(set_, brokers, failures, hidden)

    async def set_rate(
        self,
        bytes_per_second: int,
        brokers: Iterable[int] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> dict[int, KafkaError | None]:
        """Change the quota of ``brokers``, or of all brokers with a throttle of this package.
        Returns by broker None, or the error if the quota was not changed."""
        check_rate(bytes_per_second)
        async with (
            self._operation("changing the quota", timeout_s) as running,
            running.announcements.setting(timeout_s) as seen,
        ):
            live = live_brokers(await running.session.metadata(()))
            throttle = throttle_of(running)
            asked = live if brokers is None else brokers
            present, failures = await throttle.brokers(asked, seen=seen)
            ours = [n for n, now in present.items() if now.marks or brokers is not None]
            failures |= await throttle.set_rate(ours, bytes_per_second, live, seen=seen)
        return dict(sorted({**dict.fromkeys(ours), **failures}.items()))

    async def bootstrap(
        self,
        brokers: Iterable[int],
        bytes_per_second: int,
        *,
        timeout_s: float | None = None,
    ) -> dict[int, KafkaError]:
        """Throttle the replication to brokers that are empty or far behind (KIP-73, question 2).
        Returns the brokers that have no rate because they are down: call this again when they are
        up. The throttle stays until the brokers are in sync, and :meth:`clear` is called or a
        reassignment is verified."""
        joining = frozenset(brokers)
        check_rate(bytes_per_second)
        async with (
            self._operation("throttling brokers", timeout_s) as running,
            running.announcements.setting(timeout_s) as seen,
        ):
            cluster = await running.session.metadata(None)
            present = {p: view.replicas for p, view in partitions_of(cluster).items()}
            moves = bootstrap_map(joining, present)
            if not moves:
                raise ConfigError(f"brokers {sorted(joining)} have no replicas to throttle")
            live = live_brokers(cluster)
            return await throttle_of(running).impose(moves, bytes_per_second, live, seen=seen)

    async def behind(
        self, brokers: Iterable[int], *, timeout_s: float | None = None
    ) -> set[TopicPartition]:
        """The partitions that have a replica on these brokers which is not in sync."""
        joining = frozenset(brokers)
        async with self._operation("describing replicas", timeout_s) as running:
            views = partitions_of(await running.session.metadata(None))
        return {p for p, v in views.items() if joining & (set(v.replicas) - set(v.isr))}

    async def ease_arrivals(self, brokers: Iterable[int]) -> None:
        """Unthrottle the replicas of these brokers shortly before they are in sync, as long as this
        coroutine runs. The quota then does not delay records with ``acks=all`` (:mod:`.release`).
        """
        joining = frozenset(brokers)
        async with self._operation("describing replicas") as running:
            views = partitions_of(await running.session.metadata(None))
        moves = bootstrap_map(joining, {p: view.replicas for p, view in views.items()})
        await ease_arrivals(self._operation, self._clock, moves)

    async def clear(
        self, *, everyone: bool = False, keep_needed: bool = True, timeout_s: float | None = None
    ) -> Lifted:
        """Remove all throttles of this package, and restore the throttles that they replaced.
        Throttles of ongoing reassignments and of replicas that are not in sync stay, unless
        ``keep_needed`` is false. ``everyone`` also deletes the throttles of other tools; during a
        reassignment it needs ``keep_needed=False``. The result contains the failures."""
        async with self._operation("removing throttles", timeout_s) as running:
            return await lift(running, everyone=everyone, keep_needed=keep_needed)


async def clean_up(running: RunningAdmin) -> None:
    """Remove the throttles of a plan that did not start, even after the operation's time limit."""
    try:
        async with asyncio.timeout(_CLEAN_UP_S):
            lifted = await lift(running, force=True)
    except (KafkaError, TimeoutError) as error:
        _log.warning("throttles may remain, `throttle clear` removes them: %s", error)
    else:
        warn_of(lifted)


def warn_of(lifted: Lifted) -> None:
    """Log a warning for each throttle that could not be removed."""
    for what, error in lifted.failures.items():
        _log.warning(
            "the throttle of %s was not removed, `throttle clear` removes it: %s", what, error
        )


async def lift(
    running: RunningAdmin,
    *,
    completed: Iterable[TopicPartition] = (),
    force: bool = False,
    everyone: bool = False,
    keep_needed: bool = True,
) -> Lifted:
    """Remove the throttles of the whole cluster that neither a reassignment nor a replica still
    catching up needs. It reads every topic: a broker's rate may go only when no topic lists a
    replica for which the rate is needed. Replicas of
    ``completed`` partitions count as in sync, because a broker may not know that yet.

    If a first read finds no throttle to remove, there is no announcement and no change. ``force``
    skips this read, because a broker may not know the latest throttles yet. For ``everyone`` and
    ``keep_needed`` see :meth:`ReplicationQuotas.clear`.
    """
    known = frozenset(completed)
    if not (force or everyone):
        first = await _plan_lift(running, known, None, keep_needed=keep_needed)
        if not first.any and not await _expired(running):
            return Lifted((), (), first.needed_topics, first.needed_brokers, first.failures)
    try:
        async with running.announcements.clearing() as seen:
            if everyone and not (keep_needed and await running.reassignments.ongoing()):
                cluster = await running.session.metadata(None)
                names, live = [topic.name for topic in cluster.topics], live_brokers(cluster)
                return await throttle_of(running).wipe(names, live, seen=seen)
            plan = await _plan_lift(running, known, seen, keep_needed=keep_needed)
            lifted = await throttle_of(running).lift(plan)
    except (AuthorizationError, ReassignmentError, TimeoutError) as error:
        if isinstance(error, KafkaError):
            return Lifted(failures={"the cluster": error})
        slow = RequestTimedOutError(
            "removing throttles: not done in the reserved time; run it again"
        )
        return Lifted(failures={"the cluster": slow})
    if not everyone:
        return lifted
    moving = ReassignmentError(
        "a reassignment is in progress, so their throttles were not deleted (--now deletes them)"
    )
    return replace(lifted, failures={**lifted.failures, "other operators": moving})


async def _expired(running: RunningAdmin) -> bool:
    try:
        return await running.announcements.any_expired()
    except AuthorizationError:
        return False  # a client that may not describe the announcement may not delete it either


async def _plan_lift(
    running: RunningAdmin,
    completed: frozenset[TopicPartition],
    seen: str | None,
    *,
    keep_needed: bool,
) -> LiftPlan:
    ongoing = await running.reassignments.ongoing()
    cluster = await running.session.metadata(None)
    views = partitions_of(cluster)

    def needed(partition: TopicPartition, follower: int | None) -> bool:
        if not keep_needed:
            return False
        if partition in ongoing:
            return True
        if follower is None or partition in completed:
            return False
        view = views.get(partition)
        return view is not None and follower in set(view.replicas) - set(view.isr)

    moving = {p: state.replicas for p, state in ongoing.items()} if keep_needed else {}
    names = [topic.name for topic in cluster.topics]
    live = live_brokers(cluster)
    return await throttle_of(running).plan_lift(names, live, needed, moving, seen=seen)


def check_rate(bytes_per_second: int | None) -> None:
    if bytes_per_second is not None and not 0 <= bytes_per_second <= _MAX_RATE:
        raise ConfigError(
            f"a quota of {bytes_per_second} is not valid: give bytes per second, from 0 to 2^63-1"
        )


def live_brokers(cluster: MetadataResult) -> list[int]:
    return [broker.node_id for broker in cluster.brokers]
