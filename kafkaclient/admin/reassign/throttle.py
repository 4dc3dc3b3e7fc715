"""Reads and sets throttles on topics and brokers, and the marks of who set them.

These words have one meaning in this package:

- *set* a throttle: add replicas to a topic's lists, or give a broker its rates.
- *unthrottle* a replica: remove it from the lists shortly before it is in sync, and keep the mark.
- *clear* throttles: remove the throttles of this package that nothing needs, and *restore* the
  lists and rates that they replaced (:mod:`.clearing`). The result is a ``Lifted``.
- *delete all* throttles: also the throttles of other tools. Nothing is restored.
- *undo* a reassignment: cancel its moves, restore the replicas, and clear throttles (:mod:`.undo`).
- *announce* and *withdraw*: lock and unlock throttles (:mod:`kafkaclient.admin.announcements`).

Lists of throttled replicas are set before rates, and both before reassignments start, as in Kafka's
tool. They are removed in the same order, so a broker that is down does not keep the topics' lists.
If a tool that makes no announcement changes the same keys between a read and a write of this
package, its change is overwritten.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.admin.configs import ConfigResource
from kafkaclient.admin.reassign.plan import follower_replicas, leader_replicas, moving_brokers
from kafkaclient.admin.session import UNKNOWN_TOPIC_OR_PARTITION, gather_outcomes
from kafkaclient.admin.topics import topic_error
from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import ConfigError, KafkaError
from kafkaclient.wire.admin import ConfigKind, ConfigSource, DescribeConfigsCall

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kafkaclient.admin.reassign.plan import Move
    from kafkaclient.admin.running import RunningAdmin
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.admin import DescribedConfigs


# --- How a throttle is marked as set by this package, and what it replaced. No I/O. ---

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
RATE_KEYS = (LEADER_RATE, FOLLOWER_RATE)

LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
ALL_RATE_KEYS = (*RATE_KEYS, LOG_DIRS_RATE)
"""All rates that Kafka's tool sets. This package does not set the rate for log directories."""

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
LIST_KEYS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)

EVERY_REPLICA = "*"

MARK = "2147483647:2147483647"
"""Partition and broker 2^31-1: an element that brokers accept and that matches no replica."""

_BROKER_MARK = re.compile(r"kafkaclient\.throttle\.(\d+)\.leader\.(\d+|none)\.follower\.(\d+|none)")


class ListRemoval(NamedTuple):
    """How to remove elements of this package from a list of throttled replicas."""

    elements: tuple[str, ...]
    """The elements to subtract; with :data:`MARK` if no other element of this package stays."""
    deletes_key: bool
    """Whether the list has no other elements, so that its key is deleted."""


class ThrottledReplicas(NamedTuple):
    """A topic's list of throttled replicas. ``before`` has the elements of other tools, ``ours``
    the elements of this package; ``ours`` is None if the list has no mark."""

    before: tuple[str, ...] = ()
    ours: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, value: str | None) -> ThrottledReplicas:
        """The list from a configuration value. None and "" are the empty list."""
        elements = [word.strip() for word in (value or "").split(",") if word.strip()]
        if MARK not in elements:
            return cls(tuple(elements))
        at = elements.index(MARK)
        return cls(tuple(elements[:at]), tuple(elements[at + 1 :]))

    def addition(self, elements: Iterable[str]) -> str | None:
        """The text to append, mark included, so that the list has these elements in Kafka's order;
        None if it has them. The list ``*`` has all elements."""
        missing = sorted(set(elements) - set(self.before))
        if self.before == (EVERY_REPLICA,) or not missing:
            return None
        return ",".join((MARK, *missing))

    def removal(self, needed: Collection[str]) -> ListRemoval | None:
        """The removal of this package's elements, except those of the partition numbers ``needed``.
        None if there is nothing to remove."""
        if self.ours is None:
            return None
        gone = tuple(e for e in self.ours if e.partition(":")[0] not in needed)
        if len(gone) == len(self.ours):
            return ListRemoval((MARK, *gone), not self.before)
        return ListRemoval(gone, deletes_key=False) if gone else None

    @property
    def value(self) -> str | None:
        """The configuration value; None deletes the key."""
        ours = () if self.ours is None else (MARK, *self.ours)
        return ",".join((*self.before, *ours)) or None


class TopicThrottle(NamedTuple):
    """The two lists of throttled replicas of a topic."""

    leader: ThrottledReplicas
    follower: ThrottledReplicas

    @property
    def marked(self) -> bool:
        """Whether this package throttles the topic."""
        return self.leader.ours is not None or self.follower.ours is not None

    @property
    def any(self) -> bool:
        return bool(self.leader.value or self.follower.value)

    def mentions(self, partition: int) -> bool:
        """Whether this package or another tool throttles a replica of the partition."""
        listed = {element for one in self for element in (*one.before, *(one.ours or ()))}
        return EVERY_REPLICA in listed or any(e.startswith(f"{partition}:") for e in listed)

    def ours(self) -> frozenset[str]:
        """The elements of this package in both lists."""
        return frozenset((*(self.leader.ours or ()), *(self.follower.ours or ())))


class BrokerMark(NamedTuple):
    """The rate of a broker in bytes per second, and the two replaced rates (None: unset)."""

    rate: int
    leader: int | None
    follower: int | None

    @classmethod
    def all_of(cls, keys: Iterable[str]) -> tuple[BrokerMark, ...]:
        """The marks among a broker's keys; several if operators set rates at the same time."""
        found = (_BROKER_MARK.fullmatch(key) for key in sorted(keys))
        return tuple(
            cls(int(match[1]), _number(match[2]), _number(match[3])) for match in found if match
        )

    @property
    def key(self) -> str:
        leader, follower = ("none" if rate is None else rate for rate in self[1:])
        return f"kafkaclient.throttle.{self.rate}.leader.{leader}.follower.{follower}"

    def restored(self, rates: Mapping[str, int]) -> dict[str, int | None]:
        """The rates to restore when the mark is deleted (None: delete the rate). ``rates`` has the
        current rates; a rate that another tool has changed is not restored."""
        before = {LEADER_RATE: self.leader, FOLLOWER_RATE: self.follower}
        return {key: value for key, value in before.items() if rates.get(key) == self.rate}


class BrokerThrottle(NamedTuple):
    """The rates of a broker in bytes per second, by key of :data:`ALL_RATE_KEYS`, and the marks of
    this package. There are several marks if operators set rates at the same time."""

    rates: Mapping[str, int]
    marks: tuple[BrokerMark, ...] = ()

    @property
    def mark(self) -> BrokerMark | None:
        """The mark that matches the current rates, else the first mark."""
        present = {self.rates.get(key) for key in RATE_KEYS}
        matching = (mark for mark in self.marks if mark.rate in present)
        return next(matching, self.marks[0] if self.marks else None)

    def restored(self) -> dict[str, int | None]:
        """The rates to restore; see :meth:`BrokerMark.restored`."""
        return {} if self.mark is None else self.mark.restored(self.rates)


def _number(word: str) -> int | None:
    return None if word == "none" else int(word)


# --- Reads and sets throttles on topics and brokers, with the marks of ... ---

_TOPICS_PER_REQUEST = 500
_MAX_RATE = 2**63 - 1  # bytes per second


def check_rate(bytes_per_second: int | None) -> None:
    """Raise ConfigError if the quota is not valid."""
    if bytes_per_second is not None and not 0 <= bytes_per_second <= _MAX_RATE:
        raise ConfigError(
            f"a quota of {bytes_per_second} is not valid: give bytes per second, from 0 to 2^63-1"
        )


class Throttle:
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
                elif code != UNKNOWN_TOPIC_OR_PARTITION:
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
