"""How the group's leader computes assignments, and when it rebalances again. Pure."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.errors import KafkaError
from kafkaclient.group.ownership import Ownership
from kafkaclient.streams.assignor import (
    PriorOwner,
    assign,
    assign_tasks_to_threads,
    assign_to_prior_owners,
)
from kafkaclient.streams.clients import Assignment, Client, task_lags
from kafkaclient.streams.group_protocol import (
    NO_REBALANCE,
    AssignmentInfo,
    AssignorError,
    FutureSubscriptionInfo,
    HostInfo,
    SubscriptionInfo,
    align,
    decode_subscription,
)
from kafkaclient.streams.tasks import LATEST_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from uuid import UUID

    from kafkaclient.streams.clients import AssignmentConfigs
    from kafkaclient.streams.tasks import TaskId
    from kafkaclient.streams.topology import Topology
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.groups import ConsumerSubscription


# --- When this member requests a rebalance: the clock is an argument ------------------------------

_DEBOUNCE_S = 0.1  # requests within this time share a rebalance
_GATHER_S = 0.5  # copies that catch up within this time share a rebalance


class RebalanceSchedule:
    """The next rebalance that this member requests. A new assignment cancels it.

    There are three reasons: the leader's probing interval is over; a standby has caught up while
    the assignment is not balanced; a task needs another assignment after a failure.
    """

    def __init__(
        self, acceptable_recovery_lag: int, clock: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self._acceptable = acceptable_recovery_lag
        self._clock = clock
        self._wall = wall
        self._behind: set[TaskId] = set()
        self._caught_up: set[TaskId] = set()
        self._reported: set[TaskId] = set()
        self.due_at: float | None = None
        """When to request the rebalance, by the clock. None: no request is scheduled."""

    @property
    def warmups(self) -> int:
        """How many copies have not caught up while tasks are to move."""
        return len(self._behind)

    def subscribed(self, running: Iterable[TaskId]) -> None:
        """This member sends its positions to the leader. A ``running`` task counts as caught up: if
        it moves away, its copy here is caught up."""
        self._reported = self._caught_up | set(running)

    def assigned(self, next_rebalance_ms: int, standbys: Iterable[TaskId], *, leader: bool) -> None:
        """A new assignment. ``next_rebalance_ms`` is by the leader's clock. Only the leader starts
        a timer for it. To the other members it only means that their standbys may be warm-ups."""
        standbys = set(standbys)
        self.due_at = None
        self._caught_up &= standbys
        unbalanced = next_rebalance_ms != NO_REBALANCE
        # The leader already knows the copies that had caught up when this member joined.
        self._behind = standbys - self._reported if unbalanced else set()
        if next_rebalance_ms == 0:
            self.request_soon()
        elif unbalanced and leader:
            self._set_due(self._clock() + max(0.0, next_rebalance_ms / 1000 - self._wall()))

    def observe(self, task: TaskId, lag: int) -> None:
        """Note the lag, in records, of this member's copy of the task."""
        if lag > self._acceptable:
            self._caught_up.discard(task)
            return
        self._caught_up.add(task)
        if task in self._behind:
            self._behind.discard(task)
            self._set_due(self._clock() + _GATHER_S)

    def request_soon(self) -> None:
        """Schedule a rebalance after the debounce time."""
        self._set_due(self._clock() + _DEBOUNCE_S)

    def take_due(self) -> bool:
        """Remove the scheduled request if it is due. Returns whether it was due."""
        if self.due_at is None or self._clock() < self.due_at:
            return False
        self.due_at = None
        return True

    def _set_due(self, time: float) -> None:
        self.due_at = time if self.due_at is None else min(self.due_at, time)


# --- How the group's leader computes assignments from subscriptions: no I/O -----------------------

_log = logging.getLogger(__name__)


class MemberAssignment(NamedTuple):
    """The assignment sent to a member: its partitions and their tasks."""

    partitions: list[TopicPartition]
    info: AssignmentInfo


@dataclass(slots=True)
class _ClientMembers:
    """The members of one process, from their subscriptions."""

    members: dict[str, set[TaskId]] = field(default_factory=dict)
    """Member id -> tasks that the member reported."""
    sums: dict[TaskId, int] = field(default_factory=dict)
    lags: dict[TaskId, int] = field(default_factory=dict)
    """Empty if the end offsets are not known."""
    tags: Mapping[str, str] = field(default_factory=dict)
    end_point: HostInfo | None = None


def compute_assignments(
    subscriptions: Mapping[str, ConsumerSubscription],
    topology: Topology,
    partitions: Mapping[str, int],
    end_offsets: Mapping[TaskId, int] | None,
    configs: AssignmentConfigs,
    next_probing_ms: int,
    follow_up_ms: int,
) -> dict[str, MemberAssignment]:
    """Member id -> assignment. Never raises because of a member's subscription.

    A task that another member has not given up yet is withheld from its new owner, which gets it as
    a standby meanwhile (KIP-429). The old owner gives it up and joins again.

    ``subscriptions``: by member id. ``partitions``: input topic -> number of partitions, 0
    if the topic does not exist. ``end_offsets``: task -> end offset of its changelog; None if the
    offsets could not be fetched, and then tasks stay where they were. ``next_probing_ms``: when to
    rebalance again if the assignment is not balanced. ``follow_up_ms``: the latest time of the next
    rebalance if a task is withheld, because a restarted owner may not know that it must give up the
    task. All members get the earlier of both times. It tells them that standbys may be warm-ups.
    Only the leader acts on it.
    """
    processes: dict[UUID, _ClientMembers] = {}
    answers: dict[str, MemberAssignment] = {}
    shutdown = False
    for member, told in subscriptions.items():
        subscription = _decode(member, told.user_data)
        if subscription is not None and set(told.topics) != set(topology.topics):
            _log.error(
                "member %s reads the topics %s, and this one, the group's leader, %s: the same "
                "application.id needs the same processors. The member gets no tasks, and ends",
                *(member, sorted(told.topics), sorted(topology.topics)),
            )
            subscription = None
        if subscription is None:
            answers[member] = _error_answer(AssignorError.ASSIGNMENT_ERROR)
        elif isinstance(subscription, FutureSubscriptionInfo):
            # A newer member: it rejoins with the version of this answer.
            answers[member] = _error_answer(AssignorError.NONE)
        else:
            shutdown |= subscription.error_code == AssignorError.SHUTDOWN_REQUESTED
            _add_member(processes, member, subscription)
    error = _group_error(topology, partitions, end_offsets, shutdown=shutdown)
    if error is not None:
        return dict.fromkeys(subscriptions, _error_answer(error))
    if not processes:
        return answers
    try:
        tasks = topology.tasks(partitions)
        stateful = [task for task in tasks if topology.is_stateful(task)]
        stateless = [task for task in tasks if not topology.is_stateful(task)]
        sources = {task: topology.sources(task, partitions) for task in tasks}
        assignment = _assign(processes, stateful, stateless, end_offsets, configs)
        ownership = Ownership.of(subscriptions)
        answers |= _member_assignments(
            assignment, processes, topology, sources, ownership, next_probing_ms, follow_up_ms
        )
    except KafkaError:
        # An exception would stop this member's heartbeats, and so the whole group.
        _log.exception("the tasks could not be assigned; all members get ASSIGNMENT_ERROR")
        return dict.fromkeys(subscriptions, _error_answer(AssignorError.ASSIGNMENT_ERROR))
    return answers


def _decode(member: str, data: bytes | None) -> SubscriptionInfo | FutureSubscriptionInfo | None:
    if data is None:
        _log.error("member %s sent no subscription: is it a streams application?", member)
        return None
    try:
        return decode_subscription(data)
    except KafkaError as error:
        _log.warning("member %s sent a subscription that cannot be decoded: %s", member, error)
        return None


def _add_member(
    processes: dict[UUID, _ClientMembers], member: str, subscription: SubscriptionInfo
) -> None:
    process = processes.setdefault(subscription.process_id, _ClientMembers())
    process.members[member] = set(subscription.task_offset_sums)
    process.tags = subscription.client_tags
    if subscription.user_end_point is not None:
        try:
            process.end_point = HostInfo.parse(subscription.user_end_point)
        except ValueError as error:
            _log.warning("member %s has a wrong application.server: %s", member, error)
    for task, offsets in subscription.task_offset_sums.items():
        running = LATEST_OFFSET in (offsets, process.sums.get(task))
        process.sums[task] = LATEST_OFFSET if running else max(offsets, process.sums.get(task, 0))


def _group_error(
    topology: Topology,
    partitions: Mapping[str, int],
    end_offsets: Mapping[TaskId, int] | None,
    *,
    shutdown: bool,
) -> AssignorError | None:
    if shutdown:
        return AssignorError.SHUTDOWN_REQUESTED
    if missing := [topic for topic in topology.topics if not partitions.get(topic)]:
        _log.error("input topic %s does not exist: no tasks are assigned", ", ".join(missing))
        return AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA
    if end_offsets is not None:
        without = [
            task
            for task in topology.tasks(partitions)
            if topology.is_stateful(task) and task not in end_offsets
        ]
        if without:
            _log.warning(
                "changelog %s has no partition for task %s: it needs as many partitions as its "
                "input topic",
                ", ".join(topic for topic, _ in topology.changelogs(without[0])),
                without[0],
            )
            return AssignorError.ASSIGNMENT_ERROR
    return None


def _error_answer(code: AssignorError) -> MemberAssignment:
    return MemberAssignment([], AssignmentInfo(error_code=code))


def _assign(
    processes: Mapping[UUID, _ClientMembers],
    tasks: Collection[TaskId],
    stateless: Collection[TaskId],
    end_offsets: Mapping[TaskId, int] | None,
    configs: AssignmentConfigs,
) -> Assignment:
    """``tasks``: the stateful ones."""
    if end_offsets is None:
        owners = {}
        for process, client in processes.items():
            active = {task for task, offsets in client.sums.items() if offsets == LATEST_OFFSET}
            owners[process] = PriorOwner(
                capacity=len(client.members), active=active, standby=client.sums.keys() - active
            )
        return assign_to_prior_owners(owners, tasks, stateless, configs.num_standby_replicas)
    clients = {}
    for process, client in processes.items():
        client.lags = task_lags(end_offsets, client.sums)
        clients[process] = Client(capacity=len(client.members), lags=client.lags, tags=client.tags)
    return assign(clients, tasks, stateless, configs)


def _member_assignments(
    assignment: Assignment,
    processes: Mapping[UUID, _ClientMembers],
    topology: Topology,
    sources: Mapping[TaskId, Collection[TopicPartition]],
    ownership: Ownership,
    next_probing_ms: int,
    follow_up_ms: int,
) -> dict[str, MemberAssignment]:
    hosts: dict[HostInfo, set[TopicPartition]] = {}
    standby_hosts: dict[HostInfo, set[TopicPartition]] = {}
    shares = {}
    for process, given in assignment.clients.items():
        client = processes[process]
        if client.end_point is not None:
            # A task that is withheld counts for its new owner, as in Kafka Streams.
            for by_host, tasks in ((hosts, given.active), (standby_hosts, given.standby)):
                found = by_host.setdefault(client.end_point, set())
                found.update(p for task in tasks for p in sources[task])
        lags = client.lags or dict.fromkeys(given.active | given.standby, 0)
        for member, share in assign_tasks_to_threads(given, lags, client.members).items():
            withheld = {
                task
                for task in share.active
                if not all(ownership.may_have(member, source) for source in sources[task])
            }
            shares[member] = (share, withheld)
    when = min(
        next_probing_ms if assignment.probing_rebalance_needed else NO_REBALANCE,
        follow_up_ms if any(withheld for _, withheld in shares.values()) else NO_REBALANCE,
    )
    answers = {}
    for member, (share, withheld) in shares.items():
        partitions, active = align(
            {task: sources[task] for task in share.active if task not in withheld}
        )
        # A stateless task has no copy: it just comes later.
        copies = (*share.standby, *filter(topology.is_stateful, withheld))
        standby = {task: frozenset(topology.changelogs(task)) for task in copies}
        info = AssignmentInfo(
            active_tasks=active,
            standby_tasks=standby,
            hosts=hosts,
            standby_hosts=standby_hosts,
            next_rebalance_ms=when,
        )
        answers[member] = MemberAssignment(partitions, info)
    return answers
