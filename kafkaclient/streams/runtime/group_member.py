"""This instance as a member of the application's group."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from aiokafka import ConsumerRebalanceListener
from aiokafka import TopicPartition as ConsumerPartition
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from kafkaclient.errors import KafkaError, StreamsError
from kafkaclient.streams.group_protocol import (
    AssignmentInfo,
    AssignorError,
    SubscriptionInfo,
    tasks_by_partition,
)
from kafkaclient.streams.membership.leader import compute_assignments
from kafkaclient.streams.runtime.task_states import TaskEvent
from kafkaclient.streams.tasks import LATEST_OFFSET
from kafkaclient.types import ConsumerGroupMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkaclient.streams.config import StreamsConfig
    from kafkaclient.streams.membership.aiokafka_hooks import ConsumerHooks
    from kafkaclient.streams.membership.leader import MemberAssignment
    from kafkaclient.streams.membership.rebalance_schedule import RebalanceSchedule
    from kafkaclient.streams.runtime.task_manager import FetchEnds, TaskManager
    from kafkaclient.streams.state.directory import StateDirectory
    from kafkaclient.streams.tasks import TaskId
    from kafkaclient.streams.topology import Topology

_log = logging.getLogger(__name__)

_REBALANCE_TIMEOUT_S = 1.0  # how long a rebalance, and so the whole group, waits for a record
_ERROR_MEANINGS: Mapping[int, str] = {
    AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA: "an input topic does not exist",
    AssignorError.ASSIGNMENT_ERROR: "the tasks could not be assigned; the leader's log says why",
    AssignorError.SHUTDOWN_REQUESTED: "a member requested the shutdown of the application",
}


class ProtocolAssignor:
    """The assignor of one consumer, as aiokafka expects it. It must be the only one in
    ``partition_assignment_strategy``: with several, aiokafka joins once for each.

    Set ``member`` before the consumer subscribes.
    """

    name = "stream"  # the name of Kafka Streams' assignor
    member: GroupMember

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        return ConsumerProtocolMemberMetadata(0, sorted(topics), self.member.subscription())

    def assign(self, cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
        topics = {topic for metadata in members.values() for topic in metadata.subscription}
        answers = self.member.compute_assignments(
            {member: metadata.user_data for member, metadata in members.items()},
            {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics},
        )
        return {member: _encoded(answer) for member, answer in answers.items()}

    def on_assignment(self, assignment: Any) -> None:
        partitions = [TopicPartition(*partition) for partition in assignment.partitions()]
        self.member.assigned(partitions, assignment.user_data)


def _encoded(answer: MemberAssignment) -> ConsumerProtocolMemberAssignment:
    topics = defaultdict(list)
    for topic, partition in answer.partitions:
        topics[topic].append(partition)
    return ConsumerProtocolMemberAssignment(0, list(topics.items()), answer.info.encode())


class GroupMember(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Connects aiokafka's callbacks to the tasks. aiokafka swallows errors of its callbacks or
    stops silently, so every error goes to ``manager.crash``."""

    def __init__(
        self,
        config: StreamsConfig,
        topology: Topology,
        directory: StateDirectory,
        manager: TaskManager,
        schedule: RebalanceSchedule,
        fetch_ends: FetchEnds,
        hooks: ConsumerHooks,
        partitions: Mapping[str, int],
    ) -> None:
        self._config = config
        self._topology = topology
        self._directory = directory
        self._manager = manager
        self._schedule = schedule
        self._fetch_ends = fetch_ends
        self._hooks = hooks
        self._known_tasks = topology.tasks(partitions)
        self._joins = 0
        self._is_leader = False
        self._ends: dict[TaskId, int] | None = None
        self._active: set[TaskId] = set()
        self._standby: set[TaskId] = set()
        self.group = ConsumerGroupMetadata(config.application_id)
        """The member id and generation of the current assignment, for committing offsets."""

    def subscription(self) -> bytes:
        sums = self._directory.report()
        # After the group has removed this member, another one may have newer state.
        running = set(self._manager.running()) if self._hooks.member_id else set()
        for task in self._manager.tasks.values():
            sums[task.id] = LATEST_OFFSET if task.id in running else task.position
        self._schedule.subscribed(running)
        self._joins += 1
        return SubscriptionInfo(
            process_id=self._directory.process_id,
            task_offset_sums=sums,
            unique_field=(self._joins + 128) % 256 - 128,
            client_tags=self._config.client_tags,
        ).encode()

    async def fetch_ends(self) -> None:
        """Fetch the changelogs' end offsets for the assignment. If that takes a third of the
        session timeout, tasks stay where they are: the other members' sessions must not expire."""
        changelogs = {task: self._topology.changelog(task) for task in self._known_tasks}
        try:
            async with asyncio.timeout(self._config.session_timeout_ms / 3000):
                ends = await self._fetch_ends(changelogs.values())
        except (TimeoutError, KafkaError) as error:
            _log.warning("no end offsets of changelogs, so tasks stay where they are: %r", error)
            self._ends = None
        else:
            self._ends = {task: ends[changelog] for task, changelog in changelogs.items()}

    def compute_assignments(
        self, user_data: Mapping[str, bytes | None], partitions: Mapping[str, int]
    ) -> Mapping[str, MemberAssignment]:
        self._is_leader = True
        probing_ms = int(time.time() * 1000) + self._config.probing_rebalance_interval_ms
        return compute_assignments(
            user_data, self._topology, partitions, self._ends, self._config, probing_ms
        )

    async def on_partitions_revoked(self, revoked: Any) -> None:
        try:
            await self._manager.suspend(_REBALANCE_TIMEOUT_S)
        except Exception as error:  # noqa: BLE001 - aiokafka ignores errors
            self._manager.crash(error)

    def assigned(self, partitions: list[TopicPartition], user_data: bytes) -> None:
        try:
            self._apply(partitions, AssignmentInfo.decode(user_data))
        except Exception as error:  # noqa: BLE001 - as above
            self._manager.crash(error)

    def _apply(self, partitions: list[TopicPartition], info: AssignmentInfo) -> None:
        if info.error_code:
            meaning = _ERROR_MEANINGS.get(info.error_code, f"error {info.error_code}")
            raise StreamsError(
                f"the group leader ended application {self._config.application_id!r}: {meaning}"
            )
        by_partition = tasks_by_partition(info.active_tasks, partitions)
        self._active = set(by_partition.values())
        self._standby = set(info.standby_tasks)
        before, self.group = self.group, self._hooks.group
        missed_generation = (
            before.member_id != self.group.member_id
            or before.generation_id + 1 != self.group.generation_id
        )
        for partition, task_id in by_partition.items():
            source = ConsumerPartition(*partition)
            task = self._manager.tasks.get(task_id)
            if missed_generation and task is not None and task.is_active:
                # Another member may have run the task in a generation that this member missed.
                self._manager.handle(task, TaskEvent.FAILED)
            self._hooks.consumer.pause(source)  # Inputs reads it
        is_leader, self._is_leader = self._is_leader, False
        self._schedule.assigned(info.next_rebalance_ms, self._standby, leader=is_leader)

    async def on_partitions_assigned(self, assigned: Any) -> None:
        try:
            self._manager.assign(self._active, self._standby)
            self._manager.resume()
            await self._manager.open(self._active, self._standby)
            self._directory.release()
        except Exception as error:  # noqa: BLE001 - as above
            self._manager.crash(error)
