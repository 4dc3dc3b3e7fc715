"""Quotas of replication between brokers (KIP-73), apart from any plan."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkaclient.admin.reassign.last_stretch import ease_arrivals
from kafkaclient.admin.reassign.moves import bootstrap_map
from kafkaclient.admin.reassign.survey import partitions_of
from kafkaclient.admin.reassign.throttle import throttle_of
from kafkaclient.admin.reassign.throttle_state import Lifted, Throttles
from kafkaclient.errors import (
    AuthorizationError,
    ConfigError,
    KafkaError,
    ReassignmentError,
    RequestTimedOutError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.admin.opened import Opened, Operation
    from kafkaclient.admin.reassign.throttle_state import Lifting
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

_MOST = 2**63 - 1
_CLEANING_S = 30.0


class ReplicationQuotas:
    """Shows, changes and removes throttles, and sets them for brokers that have much to catch up
    with. ``Admin.replication_quotas``; needs a running admin client.

    What is set here, and for reassignments, is marked as such in the cluster, together with what it
    replaced (:mod:`kafkaclient.admin.reassign.marks`). Each call ends within ``timeout_s``.
    """

    def __init__(self, operation: Operation, clock: Callable[[], float]) -> None:
        self._operation = operation
        self._clock = clock

    async def describe(self, *, timeout_s: float | None = None) -> Throttles:
        """All throttles in the cluster, whoever set them."""
        async with self._operation("looking at throttles", timeout_s) as opened:
            cluster = await opened.session.metadata(None)
            throttle = throttle_of(opened)
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
        """Another quota for moves under way: on ``brokers``, or on all with a throttle of this
        package. By broker None, or why it has another quota still."""
        check_rate(bytes_per_second)
        async with (
            self._operation("changing the quota", timeout_s) as opened,
            opened.turns.setting(timeout_s) as seen,
        ):
            live = live_brokers(await opened.session.metadata(()))
            throttle = throttle_of(opened)
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
        """Throttle what brokers have to catch up with, because they start empty or were away for
        long (KIP-73, question 2); returns the brokers that are down and have no rate yet: call it
        again when they are back. It stays until they have caught up and :meth:`clear` is called, or
        any reassignment is verified."""
        joining = frozenset(brokers)
        check_rate(bytes_per_second)
        async with (
            self._operation("throttling brokers", timeout_s) as opened,
            opened.turns.setting(timeout_s) as seen,
        ):
            cluster = await opened.session.metadata(None)
            present = {p: view.replicas for p, view in partitions_of(cluster).items()}
            moves = bootstrap_map(joining, present)
            if not moves:
                raise ConfigError(f"brokers {sorted(joining)} have no replicas to throttle")
            live = live_brokers(cluster)
            return await throttle_of(opened).impose(moves, bytes_per_second, live, seen=seen)

    async def behind(
        self, brokers: Iterable[int], *, timeout_s: float | None = None
    ) -> set[TopicPartition]:
        """Partitions of which these brokers have a replica that has not caught up."""
        joining = frozenset(brokers)
        async with self._operation("looking at replicas", timeout_s) as opened:
            views = partitions_of(await opened.session.metadata(None))
        return {p for p, v in views.items() if joining & (set(v.replicas) - set(v.isr))}

    async def ease_arrivals(self, brokers: Iterable[int]) -> None:
        """Let throttled replicas of these brokers go shortly before they have caught up, for as
        long as this runs; so records with ``acks=all`` do not wait for what the quota withholds
        (:mod:`.release`)."""
        joining = frozenset(brokers)
        async with self._operation("looking at replicas") as opened:
            views = partitions_of(await opened.session.metadata(None))
        moves = bootstrap_map(joining, {p: view.replicas for p, view in views.items()})
        await ease_arrivals(self._operation, self._clock, moves)

    async def clear(
        self, *, everyone: bool = False, keep_needed: bool = True, timeout_s: float | None = None
    ) -> Lifted:
        """Take away all throttles of this package, and bring back what they replaced; not from
        moves under way and replicas that have not caught up, unless ``keep_needed`` is false.
        ``everyone``: delete throttles of others, too, and what ours replaced; while anything moves
        only together with ``keep_needed=False``. What could not be done is in the result."""
        async with self._operation("removing throttles", timeout_s) as opened:
            return await lift(opened, everyone=everyone, keep_needed=keep_needed)


async def clean_up(opened: Opened) -> None:
    """Take away what was set for moves that did not begin, also when time has run out."""
    try:
        async with asyncio.timeout(_CLEANING_S):
            lifted = await lift(opened, sure=True)
    except (KafkaError, TimeoutError) as error:
        _log.warning("throttles may be left behind, `throttle clear` finds them: %s", error)
    else:
        warn_of(lifted)


def warn_of(lifted: Lifted) -> None:
    """Log what is left behind."""
    for what, error in lifted.failures.items():
        _log.warning("the throttle of %s is left behind: %s", what, error)


async def lift(
    opened: Opened,
    *,
    settled: Iterable[TopicPartition] = (),
    sure: bool = False,
    everyone: bool = False,
    keep_needed: bool = True,
) -> Lifted:
    """Take away throttles that neither moves nor replicas behind need, in the whole cluster: what a
    broker's rate is there for stands in the lists of any topic. Those of ``settled`` partitions are
    needed only by moves; a broker may not have heard yet that they have caught up.

    Nothing is announced, or changed, when a first look finds nothing to take away; unless
    ``sure``, because brokers may not have heard yet of what was set last. ``everyone``,
    ``keep_needed``: see :meth:`ReplicationQuotas.clear`.
    """
    known = frozenset(settled)
    if not (sure or everyone):
        first = await _survey(opened, known, None, keep_needed=keep_needed)
        if not first.any and not await _expired(opened):
            return Lifted((), (), first.needed_topics, first.needed_brokers, first.failures)
    try:
        async with opened.turns.clearing() as seen:
            if everyone and not (keep_needed and await opened.reassignments.ongoing()):
                cluster = await opened.session.metadata(None)
                names, live = [topic.name for topic in cluster.topics], live_brokers(cluster)
                return await throttle_of(opened).wipe(names, live, seen=seen)
            lifting = await _survey(opened, known, seen, keep_needed=keep_needed)
            lifted = await throttle_of(opened).lift(lifting)
    except (AuthorizationError, ReassignmentError, TimeoutError) as error:
        if isinstance(error, KafkaError):
            return Lifted(failures={"the cluster": error})
        slow = RequestTimedOutError("not done in the time that other operators wait; repeat it")
        return Lifted(failures={"the cluster": slow})
    if not everyone:
        return lifted
    moving = ReassignmentError("replicas are moving; they were not deleted (--now deletes them)")
    return replace(lifted, failures={**lifted.failures, "other operators": moving})


async def _expired(opened: Opened) -> bool:
    try:
        return await opened.turns.any_left()
    except AuthorizationError:
        return False  # who may not look at it may not delete it either


async def _survey(
    opened: Opened, settled: frozenset[TopicPartition], seen: str | None, *, keep_needed: bool
) -> Lifting:
    ongoing = await opened.reassignments.ongoing()
    cluster = await opened.session.metadata(None)
    views = partitions_of(cluster)

    def needed(partition: TopicPartition, follower: int | None) -> bool:
        if not keep_needed:
            return False
        if partition in ongoing or follower is None or partition in settled:
            return partition in ongoing
        view = views.get(partition)
        return view is not None and follower in set(view.replicas) - set(view.isr)

    moving = {p: each.replicas for p, each in ongoing.items()} if keep_needed else {}
    names = [topic.name for topic in cluster.topics]
    live = live_brokers(cluster)
    return await throttle_of(opened).survey(names, live, needed, moving, seen=seen)


def check_rate(bytes_per_second: int | None) -> None:
    if bytes_per_second is not None and not 0 <= bytes_per_second <= _MOST:
        raise ConfigError(
            f"a quota of {bytes_per_second} is not accepted: give bytes per second, from 0"
        )


def live_brokers(cluster: MetadataResult) -> list[int]:
    return [broker.node_id for broker in cluster.brokers]
