"""The assignor of KIP-441 as Kafka Streams ships it (``HighAvailabilityTaskAssignor.java``).

First the assignment that would be balanced, whatever it takes to get there; then back from it, task
by task, to one in which only clients with the state do the work and some others warm up. When
these have caught up, the same calculation comes nearer to the balanced assignment, and ends there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.streams.assignment.balance import assign_actives, assign_stateless
from kafkaclient.streams.assignment.clients import Assignment, Client, client_states
from kafkaclient.streams.assignment.lags import Rankings
from kafkaclient.streams.assignment.movement import WarmupBudget, move_actives, move_standbys
from kafkaclient.streams.assignment.standby import assign_standbys

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from kafkaclient.streams.assignment.configs import AssignmentConfigs
    from kafkaclient.streams.tasks import TaskId

__all__ = ["assign"]


def assign(
    clients: Mapping[UUID, Client],
    stateful_tasks: Collection[TaskId],
    stateless_tasks: Collection[TaskId],
    configs: AssignmentConfigs,
) -> Assignment:
    """Who gets which task, decided by the arguments alone.

    Active stateful tasks go to clients within ``acceptable.recovery.lag``, or to the furthest where
    nobody is; standbys to the next; stateless tasks fill up. Which client had a task before counts
    only by its lag.

    Raises :class:`~kafkaclient.errors.TaskAssignmentError` when there is no client, or when the
    lag of a stateful task is missing.
    """
    states = client_states(clients, frozenset(stateful_tasks))
    stateful = sorted(set(stateful_tasks))
    assign_actives(states, stateful)
    missing = assign_standbys(
        states, stateful, configs.num_standby_replicas, configs.rack_aware_assignment_tags
    )
    rankings = Rankings(states, configs.acceptable_recovery_lag)
    warmups = WarmupBudget(configs.max_warmup_replicas)
    movements = move_actives(states, rankings, warmups)
    movements += move_standbys(states, rankings, warmups)
    assign_stateless(states, sorted(set(stateless_tasks) - set(stateful)))
    return Assignment(
        clients={state.process_id: state.result() for state in states},
        movements=movements,
        missing_standbys=missing,
        probing_rebalance_needed=movements > 0,
    )
