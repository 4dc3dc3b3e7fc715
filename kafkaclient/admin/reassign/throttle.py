"""Reads and sets throttles on topics and brokers, with the marks of :mod:`.throttle_marks`.

These words have one meaning in this package:

- *set* a throttle: add replicas to a topic's lists, or give a broker its rates.
- *unthrottle* a replica: remove it from the lists shortly before it is in sync, and keep the mark.
- *clear* throttles: remove the throttles of this package that nothing needs, and *restore* the
  lists and rates that they replaced (:mod:`.clearing`). The result is a ``Lifted``.
- *delete all* throttles: also the throttles of other tools. Nothing is restored.
- *undo* a reassignment: cancel its moves, restore the replicas, and clear throttles
  (:mod:`.submission`).
- *announce* and *withdraw*: lock and unlock throttles (:mod:`kafkaclient.admin.announcements`).

Lists of throttled replicas are set before rates, and both before reassignments start, as in Kafka's
tool. They are removed in the same order, so a broker that is down does not keep the topics' lists.
If a tool that makes no announcement changes the same keys between a read and a write of this
package, its change is overwritten.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from kafkaclient.admin.configs import ConfigResource
from kafkaclient.admin.description import topic_error
from kafkaclient.admin.reassign.outcome import (
    ALL_RATE_KEYS,
    LIST_KEYS,
    RATE_KEYS,
    BrokerMark,
    BrokerThrottle,
    ThrottledReplicas,
    Throttles,
    TopicThrottle,
)
from kafkaclient.admin.reassign.plan import follower_replicas, leader_replicas, moving_brokers
from kafkaclient.admin.session import gather_outcomes
from kafkaclient.broker_errors import ErrorCode, broker_error
from kafkaclient.errors import ConfigError, KafkaError
from kafkaclient.wire.admin import ConfigKind, ConfigSource, DescribeConfigsCall

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kafkaclient.admin.reassign.plan import Move
    from kafkaclient.admin.running import RunningAdmin
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.admin import DescribedConfigs


_TOPICS_PER_REQUEST = 500
_MAX_RATE = 2**63 - 1  # bytes per second


def check_rate(bytes_per_second: int | None) -> None:
    """Raise ConfigError if the quota is not valid."""
    if bytes_per_second is not None and not 0 <= bytes_per_second <= _MAX_RATE:
        raise ConfigError(
            f"a quota of {bytes_per_second} is not valid: give bytes per second, from 0 to 2^63-1"
        )


class ThrottleConfigs:
    """The requests that read and set throttles. Each runs within the time limit of the session.

    ``seen`` is the key of an announcement (:mod:`kafkaclient.admin.announcements`). A broker's
    answer is used only if it includes this key, because an answer without it may be too old."""

    def __init__(self, running: RunningAdmin) -> None:
        self._session = running.session
        self._configs = running.configs

    async def topics(
        self, names: Iterable[str], *, seen: str | None = None
    ) -> tuple[dict[str, TopicThrottle], dict[str, KafkaError]]:
        """The lists of existing topics, and the errors of topics that cannot be described."""
        wanted = sorted(set(names))
        found: dict[str, TopicThrottle] = {}
        failures: dict[str, KafkaError] = {}
        for at in range(0, len(wanted), _TOPICS_PER_REQUEST):
            for resource in await self._lists(wanted[at : at + _TOPICS_PER_REQUEST], seen):
                code, name = resource.error_code, resource.name
                if not code:
                    values = {entry.name: entry.value for entry in resource.entries}
                    lists = (ThrottledReplicas.parse(values.get(key)) for key in LIST_KEYS)
                    found[name] = TopicThrottle(*lists)
                elif code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    doing, detail = "describing throttles of", resource.error_message
                    failures[name] = topic_error(code, name, doing, "DescribeConfigs", detail)
        return found, failures

    async def _lists(self, names: Sequence[str], seen: str | None) -> list[DescribedConfigs]:
        resources = [(ConfigKind.TOPIC, name) for name in names]
        keys: tuple[str, ...] = LIST_KEYS
        if seen is not None:
            resources.append((ConfigKind.BROKER, ""))
            keys = (*keys, seen)
        call = DescribeConfigsCall(tuple(resources), keys)

        def is_new(described: tuple[DescribedConfigs, ...]) -> bool:
            if seen is None or any(entry.name == seen for r in described for entry in r.entries):
                return True
            if all(one.error_code for one in described if one.kind == ConfigKind.TOPIC):
                return True  # no configuration in the answer, so none is too old
            for one in described:
                if one.kind == ConfigKind.BROKER and one.error_code:
                    raise broker_error(one.error_code, "describing the defaults of all brokers")
            return False

        async def read() -> tuple[DescribedConfigs, ...]:
            return (await self._session.call(call)).resources

        described = await self._session.poll(read, is_new)
        return [one for one in described if one.kind == ConfigKind.TOPIC]

    async def brokers(
        self, nodes: Iterable[int], *, seen: str | None = None
    ) -> tuple[dict[int, BrokerThrottle], dict[int, KafkaError]]:
        """The throttles of brokers, and the errors of brokers that did not answer."""
        return await gather_outcomes(
            {node: self._broker(node, seen) for node in sorted(set(nodes))}
        )

    async def _broker(self, node: int, seen: str | None) -> BrokerThrottle:
        entries = await self._session.poll(
            lambda: self._configs.describe(ConfigResource.broker(node)),
            lambda entries: seen is None or seen in entries,
        )
        own = {
            name: entry.value
            for name, entry in entries.items()
            if entry.source is ConfigSource.DYNAMIC_BROKER_CONFIG
        }
        return BrokerThrottle(_rates_in(own), BrokerMark.all_of(own))

    async def defaults(self) -> dict[str, int]:
        """The rates that apply to each broker without a rate of its own. They are of other tools:
        this package sets none."""
        entries = await self._configs.describe(ConfigResource.broker_defaults())
        return _rates_in({name: entry.value for name, entry in entries.items()})

    async def describe(self, topics: Iterable[str], nodes: Iterable[int]) -> Throttles:
        """The throttles of these topics and brokers, and of the broker defaults."""
        lists, hidden = await self.topics(topics)
        brokers, failures = await self.brokers(nodes)
        return Throttles(lists, brokers, failures, hidden, await self.defaults())

    async def set_moves(
        self, moves: Mapping[TopicPartition, Move], rate: int, live: Collection[int], *, seen: str
    ) -> dict[int, KafkaError]:
        """Throttle moves. Returns the brokers without a rate because they are down.

        Raises any other error of a broker; some throttles are set then.
        """
        leaders, followers = leader_replicas(moves), follower_replicas(moves)
        topics, failures = await self.topics(leaders.keys() | followers.keys(), seen=seen)
        for error in failures.values():
            raise error
        changes = {}
        for name, now in topics.items():
            elements = (leaders.get(name, ()), followers.get(name, ()))
            append = {
                key: missing
                for key, replicas, wanted in zip(LIST_KEYS, now, elements, strict=True)
                if (missing := replicas.addition(wanted)) is not None
            }
            if append:
                changes[name] = self._configs.alter(ConfigResource.topic(name), append=append)
        # All requests end before an error is raised, so that a later clearing finds all throttles.
        _, failed = await gather_outcomes(changes, timeout_s=None)
        for error in failed.values():
            raise error
        return await self.set_rate(moving_brokers(moves), rate, live, seen=seen)

    async def set_rate(
        self, nodes: Iterable[int], rate: int, live: Collection[int], *, seen: str
    ) -> dict[int, KafkaError]:
        """Set both rates of brokers. Returns the brokers that are down; raises any other error."""
        wanted = frozenset(nodes)
        missing: dict[int, KafkaError] = {
            node: ConfigError(f"broker {node} is down") for node in sorted(wanted - set(live))
        }
        _, failures = await gather_outcomes(
            {node: self._set_rate(node, rate, seen) for node in sorted(wanted & set(live))}
        )
        for error in failures.values():
            if not (error.retriable or isinstance(error, ConfigError)):  # a broker that is down
                raise error
        return missing | failures

    async def _set_rate(self, node: int, rate: int, seen: str) -> None:
        now = await self._broker(node, seen)
        mark = now.mark and now.mark._replace(rate=rate)
        if mark is None:
            mark = BrokerMark(rate, *(now.rates.get(key) for key in RATE_KEYS))
        await self._configs.alter(
            ConfigResource.broker(node),
            set={**dict.fromkeys(RATE_KEYS, str(rate)), mark.key: "1"},
            delete=[each.key for each in now.marks if each != mark],
        )

    async def unthrottle(
        self, replicas: Iterable[tuple[TopicPartition, int]]
    ) -> set[tuple[TopicPartition, int]]:
        """Unthrottle new replicas and their sources: remove them from the lists, but not the mark.
        Returns the replicas that were unthrottled; the caller may retry the others."""
        by_topic: dict[str, set[tuple[TopicPartition, int]]] = defaultdict(set)
        for partition, node in replicas:
            by_topic[partition.topic].add((partition, node))
        jobs = {}
        topics, _ = await self.topics(by_topic)
        # Without a mark, the broker that answered does not know the throttle yet.
        marked = {name: now for name, now in topics.items() if now.marked}
        for name, now in marked.items():
            partitions = {str(partition.partition) for partition, _ in by_topic[name]}
            arriving = {f"{partition.partition}:{node}" for partition, node in by_topic[name]}
            off = (
                [each for each in now.leader.ours or () if each.partition(":")[0] in partitions],
                [each for each in now.follower.ours or () if each in arriving],
            )
            subtract = {
                key: ",".join(each) for key, each in zip(LIST_KEYS, off, strict=True) if each
            }
            if subtract:
                jobs[name] = self._configs.alter(ConfigResource.topic(name), subtract=subtract)
        _, failed = await gather_outcomes(jobs)
        return set().union(*(by_topic[name] for name in marked.keys() - failed.keys()))


def _rates_in(values: Mapping[str, str | None]) -> dict[str, int]:
    return {key: int(rate) for key in ALL_RATE_KEYS if (rate := values.get(key)) is not None}
