"""Sets throttles on topics and brokers, and takes away those that it set: see :mod:`.marks`.

Lists of replicas are set before rates, and moves begin only when both are, as with Kafka's tool. In
the same order they are taken away: a broker that is down cannot keep a topic's list in place.
Between reading a configuration and changing it somebody else may change it, too, and is overruled;
brokers know no other way.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kafkaclient.admin.configs import ConfigResource
from kafkaclient.admin.reassign.marks import LIST_KEYS, RATE_KEYS, BrokerMark, MarkedList
from kafkaclient.admin.reassign.moves import follower_replicas, leader_replicas, moving_brokers
from kafkaclient.admin.topics import topic_error
from kafkaclient.errors import ConfigError, KafkaError, RequestTimedOutError, UnknownTopicError
from kafkaclient.types import TopicPartition
from kafkaclient.wire.admin import ConfigKind, ConfigSource, DescribeConfigsCall

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping

    from kafkaclient.admin.configs import Configs
    from kafkaclient.admin.opened import Opened
    from kafkaclient.admin.reassign.moves import Move
    from kafkaclient.admin.session import Session

__all__ = ["BrokerThrottle", "Lifted", "Throttle", "Throttles", "TopicThrottle", "throttle_of"]

K = TypeVar("K")
T = TypeVar("T")

_PATIENCE_S = 10.0
"""For one broker. One that is down is found out by this, or as soon as metadata leaves it out."""

_TOPICS_A_REQUEST = 500
_LOOKS = 4


class TopicThrottle(NamedTuple):
    """The lists of a topic."""

    leader: MarkedList
    follower: MarkedList

    @property
    def marked(self) -> bool:
        return self.leader.marked or self.follower.marked

    @property
    def any(self) -> bool:
        return bool(self.leader.value or self.follower.value)

    def ours(self) -> frozenset[str]:
        return frozenset((*(self.leader.ours or ()), *(self.follower.ours or ())))


class BrokerThrottle(NamedTuple):
    """The rates set on a broker itself, bytes per second by key, and this package's mark."""

    rates: Mapping[str, int]
    mark: BrokerMark | None


@dataclass(frozen=True, slots=True)
class Throttles:
    """All throttles of a cluster that there are; ``failures`` has brokers that did not tell."""

    topics: Mapping[str, TopicThrottle]
    brokers: Mapping[int, BrokerThrottle]
    failures: Mapping[int, KafkaError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lifted:
    """What was taken away, what is still needed, and where it did not succeed."""

    topics: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    needed_topics: tuple[str, ...] = ()
    needed_brokers: tuple[int, ...] = ()
    failures: Mapping[str, KafkaError] = field(default_factory=dict)
    """By what it was, in words."""


class Throttle:
    """Within the session's limits."""

    def __init__(self, session: Session, configs: Configs) -> None:
        self._session = session
        self._configs = configs

    # --- to see -------------------------------------------------------------------------------

    async def topics(
        self, names: Iterable[str], *, strict: bool = False
    ) -> dict[str, TopicThrottle]:
        """The lists of topics. Those that a broker does not tell of are left out; with ``strict``
        they raise its error."""
        wanted = sorted(set(names))
        found: dict[str, TopicThrottle] = {}
        for at in range(0, len(wanted), _TOPICS_A_REQUEST):
            some = wanted[at : at + _TOPICS_A_REQUEST]
            call = DescribeConfigsCall(tuple((ConfigKind.TOPIC, name) for name in some), LIST_KEYS)
            for resource in (await self._session.call(call)).resources:
                if resource.error_code and strict:
                    code, detail = resource.error_code, resource.error_message
                    what = "DescribeConfigs"
                    raise topic_error(code, resource.name, "throttling", what, detail)
                if resource.error_code:
                    continue
                values = {entry.name: entry.value for entry in resource.entries}
                lists = (MarkedList.parse(values.get(key)) for key in LIST_KEYS)
                found[resource.name] = TopicThrottle(*lists)
        return found

    async def brokers(
        self, nodes: Iterable[int]
    ) -> tuple[dict[int, BrokerThrottle], dict[int, KafkaError]]:
        """What is set on brokers themselves, and those that did not tell."""
        return await _each({node: self._broker(node) for node in sorted(set(nodes))})

    async def _broker(self, node: int) -> BrokerThrottle:
        entries = await self._configs.describe(ConfigResource.broker(node))
        own = {
            name: entry
            for name, entry in entries.items()
            if entry.source is ConfigSource.DYNAMIC_BROKER_CONFIG
        }
        rates = {key: int(own[key].value or 0) for key in RATE_KEYS if key in own}
        return BrokerThrottle(rates, BrokerMark.of(own))

    # --- to set -------------------------------------------------------------------------------

    async def impose(
        self, moves: Mapping[TopicPartition, Move], rate: int, live: Collection[int]
    ) -> dict[int, KafkaError]:
        """Throttle moves; returns the brokers that have no rate yet, because they are down.

        Raises what else a broker answers, with some of it set.
        """
        leaders, followers = leader_replicas(moves), follower_replicas(moves)
        topics = await self.topics(leaders.keys() | followers.keys(), strict=True)
        changes = {}
        for name, now in topics.items():
            wanted = TopicThrottle(
                now.leader.with_ours((*(now.leader.ours or ()), *leaders.get(name, ()))),
                now.follower.with_ours((*(now.follower.ours or ()), *followers.get(name, ()))),
            )
            changes[name] = self._set_lists(name, now, wanted)
        # All of them end before an error is told: nothing is set behind the back of who cleans up.
        _, failures = await _each(changes, patience_s=None)
        for error in failures.values():
            raise error
        return await self.set_rate(moving_brokers(moves), rate, live)

    async def release(
        self, replicas: Iterable[tuple[TopicPartition, int]]
    ) -> set[tuple[TopicPartition, int]]:
        """Take new replicas, and what they are copied from, off the lists where :meth:`impose` put
        them; the mark stays. Those that are off; the others may be tried again."""
        by_topic: dict[str, set[tuple[TopicPartition, int]]] = defaultdict(set)
        for partition, node in replicas:
            by_topic[partition.topic].add((partition, node))
        jobs = {}
        for name, now in (await self.topics(by_topic)).items():
            if not now.marked:
                continue  # a broker that has not heard of it yet
            partitions = {str(partition.partition) for partition, _ in by_topic[name]}
            arriving = {f"{partition.partition}:{node}" for partition, node in by_topic[name]}
            off = (
                [each for each in now.leader.ours or () if each.partition(":")[0] in partitions],
                [each for each in now.follower.ours or () if each in arriving],
            )
            changes = {
                key: ",".join(each) for key, each in zip(LIST_KEYS, off, strict=True) if each
            }
            jobs[name] = self._subtract(name, changes)
        done, _ = await _each(jobs)
        return set().union(*(by_topic[name] for name in done))

    async def _subtract(self, name: str, changes: Mapping[str, str]) -> None:
        if changes:
            resource = ConfigResource.topic(name)
            await self._configs.alter(
                resource, set={}, delete=(), append={}, subtract=changes, validate_only=False
            )

    async def set_rate(
        self, nodes: Iterable[int], rate: int, live: Collection[int]
    ) -> dict[int, KafkaError]:
        """Set both rates of brokers; returns those that are down. Raises what else they answer."""
        wanted = frozenset(nodes)
        missing: dict[int, KafkaError] = {
            node: ConfigError(f"broker {node} is down") for node in sorted(wanted - set(live))
        }
        _, failures = await _each(
            {node: self._set_rate(node, rate) for node in sorted(wanted & set(live))}
        )
        for error in failures.values():
            if not _is_absence(error):
                raise error
        return missing | failures

    async def _set_rate(self, node: int, rate: int) -> None:
        now = await self._broker(node)
        mark = now.mark and now.mark._replace(rate=rate)
        if mark is None:
            mark = BrokerMark(rate, *(now.rates.get(key) for key in RATE_KEYS))
        await self._alter(
            ConfigResource.broker(node),
            {**{key: str(rate) for key in RATE_KEYS}, mark.key: "1"},
            [now.mark.key] if now.mark is not None and now.mark != mark else [],
        )

    # --- to take away -------------------------------------------------------------------------

    async def lift(
        self,
        topics: Iterable[str],
        live: Collection[int],
        needed: Callable[[TopicPartition, int | None], bool],
        *,
        imposed: Mapping[TopicPartition, Move] | None = None,
    ) -> Lifted:
        """Take away what this package set in the topics and on the brokers, and bring back what was
        there before. ``needed(partition, broker)`` says what has to stay: of a partition
        (broker None), or because this follower has not caught up. ``imposed``: moves that were
        throttled, perhaps so lately that brokers have not heard of it."""
        failures: dict[str, KafkaError] = {}
        cleared: list[str] = []
        kept: dict[str, frozenset[str]] = {}
        told, present, unknown = await self._told(topics, live, imposed or {})
        marked = {name: now for name, now in told.items() if now.marked}
        jobs = {}
        for name, now in marked.items():
            keep = _partitions_needed(name, now, needed)
            wanted = TopicThrottle(*(_trimmed(each, keep) for each in now))
            jobs[name] = self._set_lists(name, now, wanted)
            if wanted.marked:
                kept[name] = wanted.ours()
            else:
                cleared.append(name)
        _, failed = await _each(jobs)
        failures |= {
            f"topic {name!r}": error
            for name, error in failed.items()
            if not isinstance(error, UnknownTopicError)
        }
        nodes = {int(element.partition(":")[2]) for each in kept.values() for element in each}
        ours = {node: now for node, now in present.items() if now.mark is not None}
        freed = {node: self._free(node, now) for node, now in ours.items() if node not in nodes}
        _, stayed = await _each(freed)
        failures |= {f"broker {node}": error for node, error in (unknown | stayed).items()}
        return Lifted(
            tuple(sorted(set(cleared) - failed.keys())),
            tuple(sorted(freed.keys() - stayed.keys())),
            tuple(sorted(kept)),
            tuple(sorted(ours.keys() & nodes)),
            failures,
        )

    async def _told(
        self, names: Iterable[str], live: Collection[int], imposed: Mapping[TopicPartition, Move]
    ) -> tuple[dict[str, TopicThrottle], dict[int, BrokerThrottle], dict[int, KafkaError]]:
        """What is set, read again while a broker does not tell yet of what was imposed."""
        wanted, expected = tuple(names), {partition.topic for partition in imposed}
        nodes = moving_brokers(imposed) & set(live)
        waits = 0
        while True:
            topics = await self.topics(wanted)
            brokers, failures = await self.brokers(live)
            unheard = [n for n in expected if n in topics and not topics[n].marked]
            unheard += [str(n) for n in nodes if n in brokers and brokers[n].mark is None]
            waits += 1
            if not unheard or waits > _LOOKS:
                return topics, brokers, failures
            await self._session.pause(waits)

    async def wipe(self, topics: Iterable[str], live: Iterable[int]) -> Lifted:
        """Delete all throttles, whoever set them, as Kafka's ``--verify`` does."""
        set_ = {name: now for name, now in (await self.topics(topics)).items() if now.any}
        jobs = {
            name: self._alter(ConfigResource.topic(name), {}, LIST_KEYS) for name in sorted(set_)
        }
        _, failed = await _each(jobs)
        present, unknown = await self.brokers(live)
        throttled = {node: now for node, now in present.items() if now.rates or now.mark}
        freed = {
            node: self._alter(
                ConfigResource.broker(node),
                {},
                [*RATE_KEYS, *([now.mark.key] if now.mark else [])],
            )
            for node, now in throttled.items()
        }
        _, stayed = await _each(freed)
        failures = {f"topic {name!r}": error for name, error in failed.items()}
        failures |= {f"broker {node}": error for node, error in (unknown | stayed).items()}
        return Lifted(
            tuple(sorted(set_.keys() - failed.keys())),
            tuple(sorted(freed.keys() - stayed.keys())),
            failures=failures,
        )

    async def _free(self, node: int, now: BrokerThrottle) -> None:
        assert now.mark is not None
        restored = now.mark.restored(now.rates)
        await self._alter(
            ConfigResource.broker(node),
            {key: str(rate) for key, rate in restored.items() if rate is not None},
            [now.mark.key, *(key for key, rate in restored.items() if rate is None)],
        )

    async def _set_lists(self, name: str, now: TopicThrottle, wanted: TopicThrottle) -> None:
        values = {
            key: after.value
            for key, before, after in zip(LIST_KEYS, now, wanted, strict=True)
            if before != after
        }
        if values:
            await self._alter(
                ConfigResource.topic(name),
                {key: value for key, value in values.items() if value is not None},
                [key for key, value in values.items() if value is None],
            )

    async def _alter(
        self, resource: ConfigResource, set_: Mapping[str, str], delete: Iterable[str]
    ) -> None:
        await self._configs.alter(
            resource, set=set_, delete=delete, append={}, subtract={}, validate_only=False
        )


def throttle_of(opened: Opened) -> Throttle:
    """That of a running admin client."""
    return Throttle(opened.session, opened.configs)


def _partitions_needed(
    topic: str, now: TopicThrottle, needed: Callable[[TopicPartition, int | None], bool]
) -> frozenset[str]:
    """The partitions, as text, whose elements are to stay."""
    keep = {
        partition
        for partition in {element.partition(":")[0] for element in now.ours()}
        if needed(TopicPartition(topic, int(partition)), None)
    }
    for element in now.follower.ours or ():
        partition, _, node = element.partition(":")
        if needed(TopicPartition(topic, int(partition)), int(node)):
            keep.add(partition)
    return frozenset(keep)


def _trimmed(each: MarkedList, keep: frozenset[str]) -> MarkedList:
    ours = [element for element in each.ours or () if element.partition(":")[0] in keep]
    return each.with_ours(ours)


async def _each(
    jobs: Mapping[K, Coroutine[None, None, T]], *, patience_s: float | None = _PATIENCE_S
) -> tuple[dict[K, T], dict[K, KafkaError]]:
    """Each job's outcome or error, none held up by the others."""

    async def timed(job: Coroutine[None, None, T]) -> T:
        try:
            async with asyncio.timeout(patience_s):
                return await job
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            raise RequestTimedOutError(f"no answer within {patience_s:g} s") from error

    outcomes = await asyncio.gather(*map(timed, jobs.values()), return_exceptions=True)
    done: dict[K, T] = {}
    failed: dict[K, KafkaError] = {}
    for key, outcome in zip(jobs, outcomes, strict=True):
        if isinstance(outcome, KafkaError):
            failed[key] = outcome
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            done[key] = outcome
    return done, failed


def _is_absence(error: KafkaError) -> bool:
    """Whether it only says that a broker is not there."""
    return error.retriable or isinstance(error, ConfigError)
