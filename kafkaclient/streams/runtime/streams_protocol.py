"""What this instance tells its group, and does with the answer: Kafka Streams' protocol."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from kafkaclient.errors import KafkaError, StateStoreError, StreamsError
from kafkaclient.group.ownership import Claims
from kafkaclient.streams.group_protocol import (
    AssignmentInfo,
    AssignorError,
    SubscriptionInfo,
    tasks_by_partition,
)
from kafkaclient.streams.leader import compute_assignments
from kafkaclient.streams.tasks import LATEST_OFFSET
from kafkaclient.time_limit import time_limit, why_given_up
from kafkaclient.wire.groups import (
    ConsumerAssignment,
    ConsumerSubscription,
    assignment_in,
    subscription_in,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Set

    from kafkaclient.cluster.topics import FetchEnds
    from kafkaclient.group.member import Generation
    from kafkaclient.streams.config import StreamsConfig
    from kafkaclient.streams.group_protocol import Hosts
    from kafkaclient.streams.leader import RebalanceSchedule
    from kafkaclient.streams.runtime.observer import Observer
    from kafkaclient.streams.runtime.task_manager import TaskManager
    from kafkaclient.streams.state_directory import StateDirectory
    from kafkaclient.streams.tasks import TaskId
    from kafkaclient.streams.topology import Topology
    from kafkaclient.types import TopicPartition

_log = logging.getLogger(__name__)

ASSIGNOR = "stream"
"""The name of Kafka Streams' assignor."""

_REVOKE_TIMEOUT_S = 1.0  # how long the next owner of a task waits for a record
_GIVE_UP_TIMEOUT_S = 3.0  # how long the group waits for records and commits of tasks that leave
_MIN_WATCH_INTERVAL_S = 0.1
_LOOKS = 3  # for new partitions: not every broker knows them yet
_LOOK_INTERVAL_S = 0.1
_ERROR_MEANINGS: Mapping[int, str] = {
    AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA: "an input topic does not exist",
    AssignorError.ASSIGNMENT_ERROR: "the tasks could not be assigned, or the leader has other "
    "processors under the same application.id; the leader's log says why",
    AssignorError.SHUTDOWN_REQUESTED: "a member requested the shutdown of the application",
}


class StreamsProtocol:
    """The :class:`~kafkaclient.group.member.GroupProtocol` of an instance: which tasks
    it has and reports, and how assignments reach the tasks. What it raises ends the instance.

    ``fetch_counts`` returns the input topics' numbers of partitions; ``partitions`` has those of
    the start.
    """

    def __init__(
        self,
        config: StreamsConfig,
        topology: Topology,
        directory: StateDirectory,
        manager: TaskManager,
        schedule: RebalanceSchedule,
        fetch_ends: FetchEnds,
        fetch_counts: Callable[[], Awaitable[Mapping[str, int]]],
        partitions: Mapping[str, int],
        observer: Observer,
    ) -> None:
        self._config = config
        self._topology = topology
        self._directory = directory
        self._manager = manager
        self._schedule = schedule
        self._fetch_ends = fetch_ends
        self._fetch_counts = fetch_counts
        self._partitions = self._partitions_at_start = partitions
        self._observer = observer
        self.hosts: Hosts = {}
        """Input partitions of all active tasks by instance, as the leader has told."""
        self._joins = 0
        self._claims = Claims()
        self._assigned: Set[TopicPartition] = set()
        self._is_leader = False
        self._opening: asyncio.Task[None] | None = None

    @property
    def partitions(self) -> Mapping[str, int]:
        """Input topic -> number of partitions, as far as this member knows."""
        return self._partitions

    def subscriptions(self) -> Mapping[str, bytes]:
        self._observer.joining()
        sums = self._directory.report()
        running = set(self._manager.running())
        for task in self._manager.tasks.values():
            if not task.task_stores and task.id not in running:
                continue  # a stateless task has no position
            sums[task.id] = LATEST_OFFSET if task.id in running else task.position
        self._schedule.subscribed(running)
        self._joins += 1
        info = SubscriptionInfo(
            process_id=self._directory.process_id,
            user_end_point=self._config.application_server,
            task_offset_sums=sums,
            unique_field=(self._joins + 128) % 256 - 128,
            client_tags=self._config.client_tags,
        )
        topics, claims = tuple(sorted(self._topology.topics)), self._claims
        told = ConsumerSubscription(topics, info.encode(), claims.claim(), claims.generation_id)
        return {ASSIGNOR: told.encode()}

    async def before_rejoin(self) -> None:
        """Tasks stay until an assignment takes them away."""

    async def assign(self, _assignor: str, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        subscriptions = {member: _subscription(member, data) for member, data in members.items()}
        await self._ask_brokers()
        now_ms, config = int(time.time() * 1000), self._config
        answers = compute_assignments(
            subscriptions,
            self._topology,
            self._partitions,
            self._ends,
            config,
            now_ms + config.probing_rebalance_interval_ms,
            now_ms + config.session_timeout_ms,
        )
        return {
            member: ConsumerAssignment(tuple(answer.partitions), answer.info.encode()).encode()
            for member, answer in answers.items()
        }

    async def _ask_brokers(self) -> None:
        """Fetch the changelogs' end offsets for the assignment. If that takes a third of the
        session timeout, tasks stay where they are: the other members' sessions must not expire."""
        self._ends: dict[TaskId, int] | None = None
        limit_s = self._config.session_timeout_ms / 3000
        try:
            async with time_limit(limit_s):
                tasks = self._topology.tasks(self._partitions)
                changelogs = {
                    task: self._topology.changelogs(task)
                    for task in tasks
                    if self._topology.is_stateful(task)
                }
                ends, self._partitions = await asyncio.gather(
                    self._fetch_ends({p for found in changelogs.values() for p in found}),
                    self._fetch_counts(),
                )
        except (TimeoutError, KafkaError) as error:
            why = why_given_up(error, limit_s)
            _log.warning("no end offsets of changelogs, so tasks stay where they are: %s", why)
        else:
            self._ends = {task: sum(ends[p] for p in found) for task, found in changelogs.items()}

    async def assigned(self, assignment: bytes, generation: Generation) -> bool:
        found = assignment_in(assignment)
        info = AssignmentInfo.decode(found.user_data or b"")
        self._is_leader = generation.is_leader
        if info.error_code == AssignorError.ASSIGNMENT_ERROR:
            await self._check_growth()
        if info.error_code:
            meaning = _ERROR_MEANINGS.get(info.error_code, f"error {info.error_code}")
            raise StreamsError(
                f"the group leader ended application {self._config.application_id!r}: {meaning}"
            )
        tasks = tasks_by_partition(info.active_tasks, found.partitions)
        held_back = self._claims.take(tasks.keys(), generation.generation_id)
        self._assigned = tasks.keys()
        standby = set(info.standby_tasks)
        self._schedule.assigned(info.next_rebalance_ms, standby, leader=generation.is_leader)
        active: defaultdict[TaskId, list[TopicPartition]] = defaultdict(list)
        for partition, task in tasks.items():
            active[task].append(partition)
        leaving = self._manager.assign(active, standby)
        # Stores are opened while revoked tasks commit, and while the next rebalance begins.
        self._opening = asyncio.create_task(self._open(self._joins, after=self._opening))
        late = await self._manager.give_up(leaving, _REVOKE_TIMEOUT_S, _GIVE_UP_TIMEOUT_S)
        self._release()
        for each in late:
            each.add_done_callback(self._given_up_late)
        self.hosts = info.hosts
        self._observer.assigned(tasks.values())
        return not held_back <= self._claims.owned

    def _release(self) -> None:
        """Claim only what is assigned, or still to be committed."""
        self._claims.keep(self._assigned | self._manager.leaving_sources)

    def _given_up_late(self, work: asyncio.Task[None]) -> None:
        """Join again without the claim, so that the next owner gets the task."""
        if not work.cancelled() and (error := work.exception()):
            self._manager.crash(error)
        owned = set(self._claims.owned)
        self._release()
        if self._claims.owned != owned:
            self._schedule.request_soon()

    async def _open(self, joins: int, after: asyncio.Task[None] | None) -> None:
        if after is not None:
            await asyncio.wait({after})
        try:
            await self._manager.open()
            if self._joins == joins:  # else it has reported anew, to the next generation
                self._directory.release()
        except Exception as error:  # noqa: BLE001 - raised by run
            self._manager.crash(error)

    def all_lost(self) -> None:
        self._observer.lost()
        self._is_leader = False
        self._claims.clear()
        self._manager.lose()

    # --- new partitions -------------------------------------------------------------------------

    async def watch_inputs(self, interval_s: float, request_rejoin: Callable[[str], None]) -> None:
        """As the group's leader, look once per interval whether input topics have more partitions,
        and then join again: the rebalance gives them tasks. Never returns."""
        while True:
            await asyncio.sleep(max(interval_s, _MIN_WATCH_INTERVAL_S))
            if not self._is_leader:
                continue
            try:
                counts = await self._fetch_counts()
            except KafkaError as error:
                _log.info("the input topics could not be looked at: %s", error)
                continue
            if grown := _grown(self._partitions, counts):
                reason = f"input topic {', '.join(grown)} has more partitions"
                _log.info("%s: the group rebalances", reason)
                request_rejoin(reason)

    async def _check_growth(self) -> None:
        """Raise StateStoreError if an input of stores has more partitions than at the start."""
        with_stores = {
            self._topology.topic_name(name)
            for subtopology in self._topology.subtopologies
            if subtopology.stores
            for name in subtopology.topics
        }
        before = {name: n for name, n in self._partitions_at_start.items() if name in with_stores}
        for look in range(_LOOKS if before else 0):
            if look:
                await asyncio.sleep(_LOOK_INTERVAL_S)
            try:
                counts = await self._fetch_counts()
            except KafkaError as error:
                _log.info("the input topics could not be looked at: %s", error)
                return
            for name in _grown(before, counts):
                raise StateStoreError(
                    f"input topic {name} has {counts[name]} partitions now, and the changelogs of "
                    f"its stores have {before[name]}: keys would move to tasks without their "
                    "state. Restart the application with another application.id, without its old "
                    "state"
                )

    async def close(self) -> None:
        """Open no more stores."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)


def _grown(before: Mapping[str, int], counts: Mapping[str, int]) -> list[str]:
    """The topics with more partitions than before. Fewer: a broker that does not know all yet."""
    return sorted(name for name, count in before.items() if counts.get(name, 0) > count)


def _subscription(member: str, data: bytes) -> ConsumerSubscription:
    """An unreadable member gets an empty subscription, so that the others get their tasks."""
    try:
        return subscription_in(data)
    except KafkaError as error:
        _log.warning("member %s sent a subscription that cannot be decoded: %s", member, error)
        return ConsumerSubscription(())
