"""Stateful tasks that move without a pause (KIP-441): which client runs which task, and how the
members of a group tell each other. docs/streams.md describes it.
"""

from __future__ import annotations

from kafkaclient.streams.assignment.assignor import assign
from kafkaclient.streams.assignment.clients import Assignment, Client, ClientAssignment
from kafkaclient.streams.assignment.configs import AssignmentConfigs
from kafkaclient.streams.assignment.fallback import assign_to_prior_owners
from kafkaclient.streams.assignment.threads import ConsumerTasks, assign_tasks_to_threads
from kafkaclient.streams.tasks import TaskId

__all__ = [
    "Assignment",
    "AssignmentConfigs",
    "Client",
    "ClientAssignment",
    "ConsumerTasks",
    "TaskId",
    "assign",
    "assign_tasks_to_threads",
    "assign_to_prior_owners",
]
