"""Sets and removes throttles on topics and brokers, with the marks of :mod:`.throttle_marks`.

Lists of throttled replicas are set before rates, and both before reassignments start, as in Kafka's
tool. They are removed in the same order, so a broker that is down does not keep the topics' lists.
:mod:`kafkaclient.admin.announcements` is the lock between operators of this package. If another
tool changes the same keys between a read and a write of this module, its change is overwritten.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from kafkaclient.admin.configs import ConfigResource
from kafkaclient.admin.reassign.gather import gather_outcomes
from kafkaclient.admin.reassign.moves import follower_replicas, leader_replicas, moving_brokers
from kafkaclient.admin.reassign.throttle_marks import (
    LIST_KEYS,
    MARK,
    RATE_KEYS,
    BrokerMark,
    ThrottledReplicas,
)
from kafkaclient.admin.reassign.throttle_state import (
    BrokerThrottle,
    Lifted,
    LiftPlan,
    TopicThrottle,
    plan_lift,
)
from kafkaclient.admin.topics import topic_error
from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import ConfigError, KafkaError, UnknownTopicError
from kafkaclient.wire.admin import ConfigKind, ConfigSource, DescribeConfigsCall

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from kafkaclient.admin.configs import Configs
    from kafkaclient.admin.reassign.moves import Move
    from kafkaclient.admin.running import RunningAdmin
    from kafkaclient.admin.session import Session
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.admin import DescribedConfigs

__all__ = ["Throttle", "throttle_of"]

_TOPICS_PER_REQUEST = 500
_UNKNOWN_TOPIC = 3


class Throttle:
    """The requests for throttles. Each runs within the time limit of the session.

    ``seen`` is the key of an announcement (:mod:`kafkaclient.admin.announcements`). A broker's
    answer is used only if it includes this key, because an answer without it may be too old."""

    def __init__(self, session: Session, configs: Configs) -> None:
        self._session = session
        self._configs = configs

    # --- reading ------------------------------------------------------------------------------

    async def topics(
        self, names: Iterable[str], *, seen: str | None = None
    ) -> tuple[dict[str, TopicThrottle], dict[str, KafkaError]]:
        """The lists of existing topics, and the errors of topics that cannot be described."""
        wanted = sorted(set(names))
        found: dict[str, TopicThrottle] = {}
        failures: dict[str, KafkaError] = {}
        for at in range(0, len(wanted), _TOPICS_PER_REQUEST):
            for resource in await self._lists(wanted[at : at + _TOPICS_PER_REQUEST], seen):
                if resource.error_code == _UNKNOWN_TOPIC:
                    continue
                if resource.error_code:
                    code, detail = resource.error_code, resource.error_message
                    failures[resource.name] = topic_error(
                        code, resource.name, "describing throttles of", "DescribeConfigs", detail
                    )
                    continue
                values = {entry.name: entry.value for entry in resource.entries}
                lists = (ThrottledReplicas.parse(values.get(key)) for key in LIST_KEYS)
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
            call = DescribeConfigsCall(tuple(resources), keys)
            described = (await self._session.call(call)).resources
            topics = [one for one in described if one.kind == ConfigKind.TOPIC]
            if seen is None or any(entry.name == seen for r in described for entry in r.entries):
                return topics
            if all(topic.error_code for topic in topics):
                return topics  # no configuration in the answer, so none is too old
            for one in described:
                if one.kind == ConfigKind.BROKER and one.error_code:
                    raise broker_error(one.error_code, "describing the defaults of all brokers")
            waits += 1
            await self._session.pause(waits)

    async def brokers(
        self, nodes: Iterable[int], *, seen: str | None = None
    ) -> tuple[dict[int, BrokerThrottle], dict[int, KafkaError]]:
        """The throttles of brokers, and the errors of brokers that did not answer."""
        return await gather_outcomes(
            {node: self._broker(node, seen) for node in sorted(set(nodes))}
        )

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

    # --- setting ------------------------------------------------------------------------------

    async def impose(
        self,
        moves: Mapping[TopicPartition, Move],
        rate: int,
        live: Collection[int],
        *,
        seen: str,
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
                if (missing := replicas.lacks(wanted)) is not None
            }
            if append:
                changes[name] = self._change_lists(name, append=append)
        # All requests end before an error is raised, so that a later clean-up finds all throttles.
        _, failed = await gather_outcomes(changes, timeout_s=None)
        for error in failed.values():
            raise error
        return await self.set_rate(moving_brokers(moves), rate, live, seen=seen)

    async def release(
        self, replicas: Iterable[tuple[TopicPartition, int]]
    ) -> set[tuple[TopicPartition, int]]:
        """Unthrottle new replicas and their sources: remove them from the lists, but not the mark.
        Returns the replicas that were unthrottled; the caller may retry the others."""
        by_topic: dict[str, set[tuple[TopicPartition, int]]] = defaultdict(set)
        for partition, node in replicas:
            by_topic[partition.topic].add((partition, node))
        jobs = {}
        topics, _ = await self.topics(by_topic)
        for name, now in topics.items():
            if not now.marked:
                continue  # the broker that answered does not know the throttle yet
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
        done, _ = await gather_outcomes(jobs)
        return set().union(*(by_topic[name] for name in done))

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

    # --- removing -----------------------------------------------------------------------------

    async def plan_lift(
        self,
        topics: Iterable[str],
        live: Collection[int],
        needed: Callable[[TopicPartition, int | None], bool],
        moving: Mapping[TopicPartition, Collection[int]],
        *,
        seen: str | None,
    ) -> LiftPlan:
        """The throttles to remove; see :func:`.throttle_state.plan_lift`."""
        lists, hidden = await self.topics(topics, seen=seen)
        present, unknown = await self.brokers(live, seen=seen)
        return plan_lift(lists, hidden, present, unknown, needed, moving)

    async def lift(self, plan: LiftPlan) -> Lifted:
        """Remove the throttles of the plan, and restore the throttles that they replaced."""
        _, failed = await gather_outcomes(
            {name: self._lift_topic(name, removed) for name, removed in plan.topics.items()}
        )
        _, stayed = await gather_outcomes(
            {node: self._restore_rates(node, now) for node, now in plan.brokers.items()}
        )
        failures = dict(plan.failures) | {
            f"topic {name!r}": error
            for name, error in failed.items()
            if not isinstance(error, UnknownTopicError)
        }
        failures |= {f"broker {node}": error for node, error in stayed.items()}
        cleared = plan.topics.keys() - failed.keys() - set(plan.needed_topics)
        return Lifted(
            tuple(sorted(cleared)),
            tuple(sorted(plan.brokers.keys() - stayed.keys())),
            plan.needed_topics,
            plan.needed_brokers,
            failures,
        )

    async def wipe(self, topics: Iterable[str], live: Iterable[int], *, seen: str) -> Lifted:
        """Delete all throttles, also those of other tools, as Kafka's ``--verify`` does."""
        lists, hidden = await self.topics(topics, seen=seen)
        set_ = {name: now for name, now in lists.items() if now.any}
        jobs = {
            name: self._alter(ConfigResource.topic(name), {}, LIST_KEYS) for name in sorted(set_)
        }
        _, failed = await gather_outcomes(jobs)
        present, unknown = await self.brokers(live, seen=seen)
        throttled = {node: now for node, now in present.items() if now.rates or now.marks}
        freed = {
            node: self._alter(
                ConfigResource.broker(node), {}, [*RATE_KEYS, *(each.key for each in now.marks)]
            )
            for node, now in throttled.items()
        }
        _, stayed = await gather_outcomes(freed)
        failures = {f"topic {name!r}": error for name, error in (hidden | failed).items()}
        failures |= {f"broker {node}": error for node, error in (unknown | stayed).items()}
        return Lifted(
            tuple(sorted(set_.keys() - failed.keys())),
            tuple(sorted(freed.keys() - stayed.keys())),
            failures=failures,
        )

    async def _lift_topic(self, name: str, removed: TopicThrottle) -> None:
        """Subtract elements from the lists of a topic. A list that gets empty is deleted."""
        subtract, delete = {}, []
        for key, replicas in zip(LIST_KEYS, removed, strict=True):
            if replicas.ours is None:
                continue
            if replicas.ours[:1] == (MARK,) and not replicas.before:
                delete.append(key)
            else:
                subtract[key] = ",".join(replicas.ours)
        await self._change_lists(name, subtract=subtract, delete=delete)

    async def _restore_rates(self, node: int, now: BrokerThrottle) -> None:
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


def throttle_of(running: RunningAdmin) -> Throttle:
    """The throttle requests of a running admin client."""
    return Throttle(running.session, running.configs)


def _is_absence(error: KafkaError) -> bool:
    """Whether the error only means that a broker is down."""
    return error.retriable or isinstance(error, ConfigError)
