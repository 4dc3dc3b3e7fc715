"""The assignor of KIP-441, as in Kafka Streams (``HighAvailabilityTaskAssignor.java``).

It first computes the balanced assignment, regardless of where state is. Then it moves each task
that the balanced assignment gives to a client without the state: a caught-up client processes the
task for now, and the intended client gets a warm-up. Repeated after the warm-ups have caught up,
the calculation converges to the balanced assignment.
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
    """The assignment of all tasks. Pure: it depends on the arguments only.

    An active stateful task goes to a client within ``acceptable.recovery.lag`` of the changelog's
    end, or, if there is none, to the client with the smallest lag. Standbys follow, then stateless
    tasks fill up the load. Earlier assignments count only through the lags.

    Raises :class:`~kafkaclient.errors.TaskAssignmentError` if there is no client, or if the lag of
    a stateful task is missing.
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
