"""Quotas of replication between brokers (KIP-73), apart from any plan."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafkaclient.admin.reassign.last_stretch import ease_arrivals
from kafkaclient.admin.reassign.moves import bootstrap_map
from kafkaclient.admin.reassign.survey import partitions_of
from kafkaclient.admin.reassign.throttle import Lifted, Throttles, throttle_of
from kafkaclient.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkaclient.admin.opened import Opened
    from kafkaclient.admin.reassign.moves import Move
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

    def __init__(self, opened: Callable[[str], Opened], clock: Callable[[], float]) -> None:
        self._opened = opened
        self._clock = clock

    async def describe(self, *, timeout_s: float | None = None) -> Throttles:
        """All throttles in the cluster, whoever set them."""
        opened = self._opened("describe")
        async with opened.session.limit("looking at throttles", timeout_s):
            cluster = await opened.session.metadata(None)
            throttle = throttle_of(opened)
            topics = await throttle.topics(topic.name for topic in cluster.topics)
            brokers, failures = await throttle.brokers(live_brokers(cluster))
        return Throttles({name: t for name, t in topics.items() if t.any}, brokers, failures)

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
        opened = self._opened("set_rate")
        async with opened.session.limit("changing the quota", timeout_s):
            live = live_brokers(await opened.session.metadata(()))
            throttle = throttle_of(opened)
            present, failures = await throttle.brokers(live if brokers is None else brokers)
            ours = [n for n, now in present.items() if now.mark is not None or brokers is not None]
            failures |= await throttle.set_rate(ours, bytes_per_second, live)
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
        opened = self._opened("bootstrap")
        async with opened.session.limit("throttling brokers", timeout_s):
            cluster = await opened.session.metadata(None)
            present = {p: view.replicas for p, view in partitions_of(cluster).items()}
            moves = bootstrap_map(joining, present)
            if not moves:
                raise ConfigError(f"brokers {sorted(joining)} have no replicas to throttle")
            return await throttle_of(opened).impose(moves, bytes_per_second, live_brokers(cluster))

    async def behind(
        self, brokers: Iterable[int], *, timeout_s: float | None = None
    ) -> set[TopicPartition]:
        """Partitions of which these brokers have a replica that has not caught up."""
        joining = frozenset(brokers)
        session = self._opened("behind").session
        async with session.limit("looking at replicas", timeout_s):
            views = partitions_of(await session.metadata(None))
        return {p for p, v in views.items() if joining & (set(v.replicas) - set(v.isr))}

    async def ease_arrivals(self, brokers: Iterable[int]) -> None:
        """Let throttled replicas of these brokers go shortly before they have caught up, for as
        long as this runs; so records with ``acks=all`` do not wait for what the quota withholds
        (:mod:`.release`)."""
        joining = frozenset(brokers)
        session = self._opened("ease_arrivals").session
        async with session.limit("looking at replicas"):
            views = partitions_of(await session.metadata(None))
        moves = bootstrap_map(joining, {p: view.replicas for p, view in views.items()})
        await ease_arrivals(self._opened, self._clock, moves)

    async def clear(
        self, *, everyone: bool = False, keep_needed: bool = True, timeout_s: float | None = None
    ) -> Lifted:
        """Take away all throttles of this package, and bring back what they replaced; not from
        moves under way and replicas that have not caught up, unless ``keep_needed`` is false.
        ``everyone``: delete throttles of others, too, and what ours replaced."""
        opened = self._opened("clear")
        async with opened.session.limit("removing throttles", timeout_s):
            if keep_needed and not everyone:
                return await lift(opened)
            cluster = await opened.session.metadata(None)
            names, live = [topic.name for topic in cluster.topics], live_brokers(cluster)
            if everyone:
                return await throttle_of(opened).wipe(names, live)
            return await throttle_of(opened).lift(names, live, lambda *_: False)


async def clean_up(opened: Opened, imposed: Mapping[TopicPartition, Move]) -> None:
    """Take away what was set for moves that did not begin, also when time has run out."""
    try:
        async with asyncio.timeout(_CLEANING_S):
            lifted = await lift(opened, imposed=imposed)
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
    imposed: Mapping[TopicPartition, Move] | None = None,
) -> Lifted:
    """Take away throttles that neither moves nor replicas behind need, in the whole cluster: what a
    broker's rate is there for stands in the lists of any topic. Those of ``settled`` partitions are
    needed only by moves; a broker may not have heard yet that they have caught up. ``imposed``: see
    :meth:`Throttle.lift`."""
    ongoing = await opened.reassignments.ongoing()
    cluster = await opened.session.metadata(None)
    views, known = partitions_of(cluster), frozenset(settled)

    def needed(partition: TopicPartition, follower: int | None) -> bool:
        if partition in ongoing or follower is None or partition in known:
            return partition in ongoing
        view = views.get(partition)
        return view is not None and follower in set(view.replicas) - set(view.isr)

    names = [topic.name for topic in cluster.topics]
    throttle = throttle_of(opened)
    return await throttle.lift(names, live_brokers(cluster), needed, imposed=imposed)


def check_rate(bytes_per_second: int | None) -> None:
    if bytes_per_second is not None and not 0 <= bytes_per_second <= _MOST:
        raise ConfigError(
            f"a quota of {bytes_per_second} is not accepted: give bytes per second, from 0"
        )


def live_brokers(cluster: MetadataResult) -> list[int]:
    return [broker.node_id for broker in cluster.brokers]
