"""Sets throttles on topics and brokers, and takes away those that it set: see :mod:`.marks`.

Lists of replicas are set before rates, and moves begin only when both are, as with Kafka's tool. In
the same order they are taken away: a broker that is down cannot keep a topic's list in place.
Operators of this package who do either at the same time are kept apart by :mod:`.turns`; whoever
changes the same keys with another tool between a reading and a change here is overruled.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from kafkaclient.admin.configs import ConfigResource
from kafkaclient.admin.reassign.each import each_of
from kafkaclient.admin.reassign.marks import (
    LIST_KEYS,
    MARK,
    RATE_KEYS,
    BrokerMark,
    MarkedList,
)
from kafkaclient.admin.reassign.moves import follower_replicas, leader_replicas, moving_brokers
from kafkaclient.admin.reassign.throttle_state import (
    BrokerThrottle,
    Lifted,
    Lifting,
    TopicThrottle,
    lifting_of,
)
from kafkaclient.admin.topics import topic_error
from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import ConfigError, KafkaError, UnknownTopicError
from kafkaclient.wire.admin import ConfigKind, ConfigSource, DescribeConfigsCall

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from kafkaclient.admin.configs import Configs
    from kafkaclient.admin.opened import Opened
    from kafkaclient.admin.reassign.moves import Move
    from kafkaclient.admin.session import Session
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.admin import DescribedConfigs

__all__ = ["Throttle", "throttle_of"]

_TOPICS_A_REQUEST = 500
_UNKNOWN_TOPIC = 3


class Throttle:
    """Within the session's limits. ``seen``: a key that the configuration of all brokers has; what
    a broker tells counts only once it tells of that, too (:mod:`.turns`)."""

    def __init__(self, session: Session, configs: Configs) -> None:
        self._session = session
        self._configs = configs

    # --- to see -------------------------------------------------------------------------------

    async def topics(
        self, names: Iterable[str], *, seen: str | None = None
    ) -> tuple[dict[str, TopicThrottle], dict[str, KafkaError]]:
        """The lists of topics, and errors of those that a broker does not tell of; a topic that
        does not exist is in neither."""
        wanted = sorted(set(names))
        found: dict[str, TopicThrottle] = {}
        failures: dict[str, KafkaError] = {}
        for at in range(0, len(wanted), _TOPICS_A_REQUEST):
            for resource in await self._lists(wanted[at : at + _TOPICS_A_REQUEST], seen):
                if resource.error_code == _UNKNOWN_TOPIC:
                    continue
                if resource.error_code:
                    code, detail = resource.error_code, resource.error_message
                    what = "DescribeConfigs"
                    failures[resource.name] = topic_error(
                        code, resource.name, "looking at throttles of", what, detail
                    )
                    continue
                values = {entry.name: entry.value for entry in resource.entries}
                lists = (MarkedList.parse(values.get(key)) for key in LIST_KEYS)
                found[resource.name] = TopicThrottle(*lists)
        return found, failures

    async def _lists(self, names: Sequence[str], seen: str | None) -> list[DescribedConfigs]:
        resources = [(ConfigKind.TOPIC, name) for name in names]
        keys: tuple[str, ...] = LIST_KEYS
        if seen is not None:
            resources.append((ConfigKind.BROKER, ""))
            keys = (*keys, seen)
        waits = 0
        while True:
            told = (await self._session.call(DescribeConfigsCall(tuple(resources), keys))).resources
            topics = [each for each in told if each.kind == ConfigKind.TOPIC]
            if seen is None or any(entry.name == seen for r in told for entry in r.entries):
                return topics
            if all(each.error_code for each in topics):
                return topics  # there is nothing in it that could be old
            for each in told:
                if each.kind == ConfigKind.BROKER and each.error_code:
                    raise broker_error(each.error_code, "describing the defaults of all brokers")
            waits += 1
            await self._session.pause(waits)

    async def brokers(
        self, nodes: Iterable[int], *, seen: str | None = None
    ) -> tuple[dict[int, BrokerThrottle], dict[int, KafkaError]]:
        """What is set on brokers themselves, and those that did not tell."""
        return await each_of({node: self._broker(node, seen) for node in sorted(set(nodes))})

    async def _broker(self, node: int, seen: str | None = None) -> BrokerThrottle:
        waits = 0
        while True:
            entries = await self._configs.describe(ConfigResource.broker(node))
            if seen is None or seen in entries:
                break
            waits += 1
            await self._session.pause(waits)
        own = {
            name: entry
            for name, entry in entries.items()
            if entry.source is ConfigSource.DYNAMIC_BROKER_CONFIG
        }
        rates = {key: int(own[key].value or 0) for key in RATE_KEYS if key in own}
        return BrokerThrottle(rates, BrokerMark.all_of(own))

    # --- to set -------------------------------------------------------------------------------

    async def impose(
        self,
        moves: Mapping[TopicPartition, Move],
        rate: int,
        live: Collection[int],
        *,
        seen: str,
    ) -> dict[int, KafkaError]:
        """Throttle moves; returns the brokers that have no rate yet, because they are down.

        Raises what else a broker answers, with some of it set.
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
                for key, each, wanted in zip(LIST_KEYS, now, elements, strict=True)
                if (missing := each.lacks(wanted)) is not None
            }
            if append:
                changes[name] = self._change_lists(name, append=append)
        # All of them end before an error is told: nothing is set behind the back of who cleans up.
        _, failed = await each_of(changes, patience_s=None)
        for error in failed.values():
            raise error
        return await self.set_rate(moving_brokers(moves), rate, live, seen=seen)

    async def release(
        self, replicas: Iterable[tuple[TopicPartition, int]]
    ) -> set[tuple[TopicPartition, int]]:
        """Take new replicas, and what they are copied from, off the lists where :meth:`impose` put
        them; the mark stays. Those that are off; the others may be tried again."""
        by_topic: dict[str, set[tuple[TopicPartition, int]]] = defaultdict(set)
        for partition, node in replicas:
            by_topic[partition.topic].add((partition, node))
        jobs = {}
        topics, _ = await self.topics(by_topic)
        for name, now in topics.items():
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
            jobs[name] = self._change_lists(name, subtract=changes)
        done, _ = await each_of(jobs)
        return set().union(*(by_topic[name] for name in done))

    async def set_rate(
        self, nodes: Iterable[int], rate: int, live: Collection[int], *, seen: str
    ) -> dict[int, KafkaError]:
        """Set both rates of brokers; returns those that are down. Raises what else they answer."""
        wanted = frozenset(nodes)
        missing: dict[int, KafkaError] = {
            node: ConfigError(f"broker {node} is down") for node in sorted(wanted - set(live))
        }
        _, failures = await each_of(
            {node: self._set_rate(node, rate, seen) for node in sorted(wanted & set(live))}
        )
        for error in failures.values():
            if not _is_absence(error):
                raise error
        return missing | failures

    async def _set_rate(self, node: int, rate: int, seen: str) -> None:
        now = await self._broker(node, seen)
        mark = now.mark and now.mark._replace(rate=rate)
        if mark is None:
            mark = BrokerMark(rate, *(now.rates.get(key) for key in RATE_KEYS))
        await self._alter(
            ConfigResource.broker(node),
            {**{key: str(rate) for key in RATE_KEYS}, mark.key: "1"},
            [each.key for each in now.marks if each != mark],
        )

    # --- to take away -------------------------------------------------------------------------

    async def survey(
        self,
        topics: Iterable[str],
        live: Collection[int],
        needed: Callable[[TopicPartition, int | None], bool],
        moving: Mapping[TopicPartition, Collection[int]],
        *,
        seen: str | None,
    ) -> Lifting:
        """What of this package's throttles may be taken away, in the topics and on the brokers; see
        :func:`lifting_of`."""
        told, hidden = await self.topics(topics, seen=seen)
        present, unknown = await self.brokers(live, seen=seen)
        return lifting_of(told, hidden, present, unknown, needed, moving)

    async def lift(self, lifting: Lifting) -> Lifted:
        """Take it away, and bring back what was there before."""
        _, failed = await each_of(
            {name: self._take_off(name, away) for name, away in lifting.topics.items()}
        )
        _, stayed = await each_of(
            {node: self._free(node, now) for node, now in lifting.brokers.items()}
        )
        failures = dict(lifting.failures) | {
            f"topic {name!r}": error
            for name, error in failed.items()
            if not isinstance(error, UnknownTopicError)
        }
        failures |= {f"broker {node}": error for node, error in stayed.items()}
        cleared = lifting.topics.keys() - failed.keys() - set(lifting.needed_topics)
        return Lifted(
            tuple(sorted(cleared)),
            tuple(sorted(lifting.brokers.keys() - stayed.keys())),
            lifting.needed_topics,
            lifting.needed_brokers,
            failures,
        )

    async def wipe(self, topics: Iterable[str], live: Iterable[int], *, seen: str) -> Lifted:
        """Delete all throttles, whoever set them, as Kafka's ``--verify`` does."""
        told, hidden = await self.topics(topics, seen=seen)
        set_ = {name: now for name, now in told.items() if now.any}
        jobs = {
            name: self._alter(ConfigResource.topic(name), {}, LIST_KEYS) for name in sorted(set_)
        }
        _, failed = await each_of(jobs)
        present, unknown = await self.brokers(live, seen=seen)
        throttled = {node: now for node, now in present.items() if now.rates or now.marks}
        freed = {
            node: self._alter(
                ConfigResource.broker(node), {}, [*RATE_KEYS, *(each.key for each in now.marks)]
            )
            for node, now in throttled.items()
        }
        _, stayed = await each_of(freed)
        failures = {f"topic {name!r}": error for name, error in (hidden | failed).items()}
        failures |= {f"broker {node}": error for node, error in (unknown | stayed).items()}
        return Lifted(
            tuple(sorted(set_.keys() - failed.keys())),
            tuple(sorted(freed.keys() - stayed.keys())),
            failures=failures,
        )

    async def _take_off(self, name: str, away: TopicThrottle) -> None:
        """Subtract from the lists of a topic; a key is deleted when nothing is left in it."""
        subtract, delete = {}, []
        for key, each in zip(LIST_KEYS, away, strict=True):
            if each.ours is None:
                continue
            if each.ours[:1] == (MARK,) and not each.before:
                delete.append(key)
            else:
                subtract[key] = ",".join(each.ours)
        await self._change_lists(name, subtract=subtract, delete=delete)

    async def _free(self, node: int, now: BrokerThrottle) -> None:
        restored = now.restored()
        await self._alter(
            ConfigResource.broker(node),
            {key: str(rate) for key, rate in restored.items() if rate is not None},
            [
                *(each.key for each in now.marks),
                *(key for key, rate in restored.items() if rate is None),
            ],
        )

    async def _change_lists(
        self,
        name: str,
        *,
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        delete: Iterable[str] = (),
    ) -> None:
        if append or subtract or delete:
            await self._configs.alter(
                ConfigResource.topic(name),
                set={},
                delete=delete,
                append=append or {},
                subtract=subtract or {},
                validate_only=False,
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


def _is_absence(error: KafkaError) -> bool:
    """Whether it only says that a broker is not there."""
    return error.retriable or isinstance(error, ConfigError)
