"""Reads the measurements of a reassignment: sizes on disk, log end offsets and quotas."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from kafkaclient.admin.description import live_brokers, partitions_of, topic_error
from kafkaclient.admin.reassign.outcome import FOLLOWER_RATE, RATE_KEYS, some
from kafkaclient.admin.reassign.plan import current_move, new_brokers
from kafkaclient.admin.reassign.progress import Measurements
from kafkaclient.admin.session import gather_outcomes
from kafkaclient.broker_errors import ErrorCode, broker_error, denied
from kafkaclient.errors import KafkaError
from kafkaclient.types import TopicPartition
from kafkaclient.wire.admin import ConfigKind, DescribeConfigsCall, DescribeLogDirsCall
from kafkaclient.wire.fetch import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, ListOffsetsCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Set

    from kafkaclient.admin.reassign.estimate import Sizes
    from kafkaclient.admin.reassign.plan import Move
    from kafkaclient.admin.running import RunningAdmin
    from kafkaclient.admin.session import AdminSession
    from kafkaclient.wire.api import Call, MetadataResult, PartitionView

T = TypeVar("T")

Replica: TypeAlias = "tuple[TopicPartition, int]"
"""A partition, and the broker of the replica."""

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
        if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
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
        raise broker_error(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"reassigning partition {some(missing)}"
        )
    return cluster


class _Logs(NamedTuple):
    """The records that new replicas lack, those on the leaders, and brokers that did not answer."""

    lags: dict[Replica, int]
    records: dict[TopicPartition, int]
    silent: dict[int, str]


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

    async def measure(self, moves: Mapping[TopicPartition, Move] | None = None) -> Measurements:
        """The measurements of all ongoing reassignments, and of ``moves``, whose reassignment may
        be complete, or which are not reassignments."""
        ongoing = await self._reassignments.ongoing()
        moves = {**(moves or {}), **{p: current_move(move) for p, move in ongoing.items()}}
        cluster = await self._session.metadata(tuple(sorted({p.topic for p in moves})))
        live = frozenset(live_brokers(cluster))
        views = partitions_of(cluster)
        involved = {node for p in moves if p in views for node in views[p].replicas} & live
        new: dict[TopicPartition, frozenset[int]] = {}
        for partition, move in moves.items():
            view = views.get(partition)
            if view is not None and view.leader in live:
                arrived = () if partition in ongoing else view.isr
                new[partition] = (new_brokers(move) & live).difference(arrived)
        (sizes, silent), logs, rates = await asyncio.gather(
            self.sizes(involved, sorted(moves)), self._logs(new, views), self._rates(involved)
        )
        return Measurements(
            at=self._clock(),
            live=live,
            ongoing=ongoing,
            partitions=views,
            sizes=sizes,
            lags=logs.lags,
            records=logs.records,
            rates=rates,
            silent=logs.silent | silent,
        )

    async def _logs(
        self,
        new: Mapping[TopicPartition, frozenset[int]],
        views: Mapping[TopicPartition, PartitionView],
    ) -> _Logs:
        """The records of partitions on their leaders, and what their new brokers lack."""
        wanted: dict[int, set[TopicPartition]] = defaultdict(set)
        leading: dict[int, set[TopicPartition]] = defaultdict(set)
        for partition, nodes in new.items():
            if nodes:
                leading[views[partition].leader].add(partition)
            for node in nodes and (views[partition].leader, *nodes):
                wanted[node].add(partition)
        (ends, silent), (starts, _) = await asyncio.gather(
            self._offsets(wanted, LATEST_TIMESTAMP), self._offsets(leading, EARLIEST_TIMESTAMP)
        )
        logs = _Logs({}, {}, silent)
        for partition, nodes in new.items():
            leader = (partition, views[partition].leader)
            if leader not in ends:
                continue
            end, start = ends[leader], starts.get(leader, 0)
            logs.records[partition] = end - start
            for node in nodes:
                # A replica that does not exist yet lacks all records. A new replica has offset 0.
                own = max(start, ends.get((partition, node), start))
                logs.lags[partition, node] = max(0, end - own)
        return logs

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
