"""Reads the measurements of a reassignment: sizes on disk, log end offsets and quotas."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from kafkaclient.admin.error_codes import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from kafkaclient.admin.reassign.outcome import some
from kafkaclient.admin.reassign.plan import current_move, new_brokers
from kafkaclient.admin.reassign.progress import Measurements
from kafkaclient.admin.reassign.throttle_marks import FOLLOWER_RATE, RATE_KEYS
from kafkaclient.admin.session import gather_outcomes
from kafkaclient.admin.topics import live_brokers, partitions_of, topic_error
from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.errors import KafkaError
from kafkaclient.types import TopicPartition
from kafkaclient.wire.admin import ConfigKind, DescribeConfigsCall, DescribeLogDirsCall
from kafkaclient.wire.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ListOffsetsCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Set

    from kafkaclient.admin.reassign.estimate import Sizes
    from kafkaclient.admin.reassign.plan import Move
    from kafkaclient.admin.running import RunningAdmin
    from kafkaclient.admin.session import AdminSession
    from kafkaclient.wire.api import Call
    from kafkaclient.wire.results import MetadataResult, PartitionView

T = TypeVar("T")

Replica: TypeAlias = "tuple[TopicPartition, int]"
"""A partition, and the broker of the replica."""

FETCH_BYTES = 1024 * 1024  # bytes of one partition in a fetch: replica.fetch.max.bytes by default
_TRUSTED_LACK = 16 * FETCH_BYTES  # bytes from which an estimate by records is used

_TIMEOUT_S = 5.0  # seconds for one broker's answer; the next reading sends the request again

_MAX_READS = 6  # then a broker knows a new topic

_MIN_IN_SYNC = "min.insync.replicas"

# The replica id of a ListOffsets request to which followers also answer, with their log end offset
# (Java: ListOffsetsRequest.DEBUGGING_REPLICA_ID).
_DEBUG_REPLICA = -2


def visible(cluster: MetadataResult) -> MetadataResult:
    """The same metadata. Raises AuthorizationError if this client may not describe one of its
    topics: such a topic may exist."""
    for topic in cluster.topics:
        if topic.error_code == TOPIC_AUTHORIZATION_FAILED:
            raise topic_error(topic.error_code, topic.name, "reassigning", "Describe")
    return cluster


async def known_partitions(session: AdminSession, wanted: Set[TopicPartition]) -> MetadataResult:
    """Metadata of all topics that includes these partitions. Raises UnknownTopicError if a
    partition is still missing after some retries, AuthorizationError if this client may not
    describe its topic."""

    async def read() -> tuple[MetadataResult, set[TopicPartition]]:
        cluster = await session.metadata(None)
        missing = wanted - partitions_of(cluster).keys()
        if missing:  # metadata of all topics omits topics that this client may not describe
            visible(await session.metadata(tuple(sorted({p.topic for p in missing}))))
        return cluster, missing

    cluster, missing = await session.poll(read, lambda result: not result[1], max_reads=_MAX_READS)
    if missing:
        raise broker_error(UNKNOWN_TOPIC_OR_PARTITION, f"reassigning partition {some(missing)}")
    return cluster


class Rest(NamedTuple):
    """The leader of a replica, and the number of bytes that the replica lacks."""

    leader: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Remaining:
    """The missing bytes of new replicas that are not in sync. ``at`` is in seconds of any clock."""

    at: float
    rests: Mapping[Replica, Rest]
    rates: Mapping[int, int]
    """The quota of each broker in bytes per second. A broker without an entry has no quota."""


def lacking(whole: int, own: int, lag: int, records: int) -> int:
    """The bytes that a replica lacks. ``whole`` and ``records`` are the bytes and records on the
    leader, ``own`` the bytes and ``lag`` the missing records of the replica.

    Sizes on disk are exact for records of any size. But retention deletes segments from the
    leader's disk minutes earlier, so an estimate by records is used if it is much larger.
    """
    by_records = whole * lag // records if records else 0
    return max(whole - own, by_records if by_records > _TRUSTED_LACK else 0)


class _Logs(NamedTuple):
    """Log end offsets and, for leaders only, log start offsets by partition and broker."""

    views: Mapping[TopicPartition, PartitionView]
    ends: Mapping[Replica, int]
    starts: Mapping[Replica, int]

    def records(self, partition: TopicPartition) -> int:
        """The number of records on the leader."""
        leader = (partition, self.views[partition].leader)
        return self.ends.get(leader, 0) - self.starts.get(leader, 0)

    def lags(self, new: Mapping[TopicPartition, Iterable[int]]) -> dict[Replica, int]:
        """The number of records that each new replica lacks, if the leader answered."""
        found = {}
        for partition, nodes in new.items():
            leader = (partition, self.views[partition].leader)
            end, start = self.ends.get(leader), self.starts.get(leader, 0)
            if end is None:
                continue
            for node in nodes:
                # A replica that does not exist yet lacks all records. A new replica has offset 0.
                own = max(start, self.ends.get((partition, node), start))
                found[partition, node] = max(0, end - own)
        return found


class ClusterReader:
    """Reads measurements from the brokers. Each call runs within the time limit of the session."""

    def __init__(self, running: RunningAdmin, clock: Callable[[], float]) -> None:
        self._session = running.session
        self._configs = running.configs
        self._reassignments = running.reassignments
        self._clock = clock

    async def sizes(
        self, brokers: Iterable[int], partitions: Iterable[TopicPartition] | None = None
    ) -> tuple[Sizes, dict[int, str]]:
        """The bytes of replicas by broker, and the errors of brokers that did not answer."""
        topics = None if partitions is None else _by_topic(partitions)
        call = DescribeLogDirsCall(topics)
        answers, silent = await self._request_each(dict.fromkeys(brokers, call))
        sizes: Sizes = {}
        for node, answer in answers.items():
            failed = [directory for directory in answer.directories if directory.error_code]
            if answer.error_code or failed:
                code = answer.error_code or failed[0].error_code
                where = "" if answer.error_code else f" {failed[0].path}"
                advice = denied(code, "Describe")
                what = f"describing its log directory{where}"
                silent[node] = str(broker_error(code, what, advice=advice))
            elif not answer.directories:  # brokers without KIP-784 answer so without permission
                silent[node] = "it lists no log directory; Describe on the cluster may be missing"
            sizes[node] = {
                replica.partition: replica.size
                for directory in answer.directories
                for replica in directory.replicas
                if not replica.is_future
            }
        return sizes, silent

    async def min_in_sync(self, topics: Iterable[str]) -> dict[str, int]:
        """``min.insync.replicas`` by topic, without topics that this client may not describe."""
        configs = await self._configs.describe_topics(sorted(set(topics)), (_MIN_IN_SYNC,))
        return {
            name: int(entry.value)
            for name, entries in configs.items()
            for entry in ([] if isinstance(entries, KafkaError) else entries.values())
            if entry.value is not None
        }

    async def reading(self, followed: Iterable[TopicPartition] | None = None) -> Measurements:
        """The measurements of all ongoing reassignments, and of the ``followed`` partitions, whose
        reassignment may be complete."""
        ongoing = await self._reassignments.ongoing()
        wanted = sorted(set(ongoing) | set(followed or ()))
        cluster = await self._session.metadata(tuple(sorted({p.topic for p in wanted})))
        live = frozenset(live_brokers(cluster))
        views = partitions_of(cluster)
        involved = {node for p in wanted if p in views for node in views[p].replicas} & live
        new = {
            partition: new_brokers(current_move(move)) & live
            for partition, move in ongoing.items()
            if partition in views and views[partition].leader in live
        }
        (sizes, silent), (logs, without_offsets), rates = await asyncio.gather(
            self.sizes(involved, wanted), self._logs(new, views), self._rates(involved)
        )
        silent = without_offsets | silent
        return Measurements(
            self._clock(), live, ongoing, views, sizes, logs.lags(new), rates, silent
        )

    async def remaining(self, moves: Mapping[TopicPartition, Move]) -> Remaining:
        """The missing bytes of new replicas. The result omits replicas that are in sync, that do
        not exist yet, or whose brokers do not answer."""
        cluster = await self._session.metadata(tuple(sorted({p.topic for p in moves})))
        live = frozenset(live_brokers(cluster))
        views = {p: view for p, view in partitions_of(cluster).items() if p in moves}
        new = {
            partition: nodes
            for partition, view in views.items()
            if view.leader in live
            and (nodes := new_brokers(moves[partition]) & set(view.replicas) & live - set(view.isr))
        }
        involved = {node for nodes in new.values() for node in nodes}
        involved |= {views[partition].leader for partition in new}
        (sizes, _), (logs, _), rates = await asyncio.gather(
            self.sizes(involved, new), self._logs(new, views), self._rates(involved)
        )
        rests = {}
        for (partition, node), lag in logs.lags(new).items():
            leader = views[partition].leader
            whole, own = (sizes.get(at, {}).get(partition) for at in (leader, node))
            if whole is not None and own is not None:
                nbytes = lacking(whole, own, lag, logs.records(partition))
                rests[partition, node] = Rest(leader, nbytes)
        return Remaining(self._clock(), rests, rates)

    async def _logs(
        self,
        new: Mapping[TopicPartition, frozenset[int]],
        views: Mapping[TopicPartition, PartitionView],
    ) -> tuple[_Logs, dict[int, str]]:
        """The log offsets of partitions on their leaders and on their new brokers."""
        wanted: dict[int, set[TopicPartition]] = defaultdict(set)
        leading: dict[int, set[TopicPartition]] = defaultdict(set)
        for partition, nodes in new.items():
            leading[views[partition].leader].add(partition)
            for node in (views[partition].leader, *nodes):
                wanted[node].add(partition)
        (ends, silent), (starts, _) = await asyncio.gather(
            self._offsets(wanted, LATEST_TIMESTAMP), self._offsets(leading, EARLIEST_TIMESTAMP)
        )
        return _Logs(views, ends, starts), silent

    async def _offsets(
        self, wanted: Mapping[int, set[TopicPartition]], timestamp: int
    ) -> tuple[dict[Replica, int], dict[int, str]]:
        def call(partitions: set[TopicPartition]) -> ListOffsetsCall:
            topics = {topic: tuple(each) for topic, each in _by_topic(partitions).items()}
            return ListOffsetsCall(topics, timestamp, replica_id=_DEBUG_REPLICA)

        calls = {node: call(partitions) for node, partitions in wanted.items()}
        answers, silent = await self._request_each(calls)
        found = {
            (TopicPartition(each.topic, each.partition), node): each.offset
            for node, answer in answers.items()
            for each in answer.partitions
            if not each.error_code
        }
        return found, silent

    async def _rates(self, brokers: Iterable[int]) -> dict[int, int]:
        calls = {
            node: DescribeConfigsCall(((ConfigKind.BROKER, str(node)),), RATE_KEYS)
            for node in brokers
        }
        answers, _ = await self._request_each(calls)
        return {
            node: int(entry.value)
            for node, answer in answers.items()
            for resource in answer.resources
            for entry in resource.entries
            if entry.name == FOLLOWER_RATE and entry.value is not None
        }

    async def _request_each(
        self, calls: Mapping[int, Call[T]]
    ) -> tuple[dict[int, T], dict[int, str]]:
        """The answers of the brokers, and the errors of brokers that did not answer."""
        answers, failed = await gather_outcomes(
            {node: self._session.once(call, node) for node, call in calls.items()},
            timeout_s=_TIMEOUT_S,
        )
        return answers, {node: str(error) for node, error in failed.items()}


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        topics[topic].append(partition)
    return topics
