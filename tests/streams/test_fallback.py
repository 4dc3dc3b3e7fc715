"""Assignments without the end offsets of changelogs."""

from __future__ import annotations

import pytest

from kafkaclient.errors import TaskAssignmentError
from kafkaclient.streams import assign_to_prior_owners
from kafkaclient.streams.assignor import PriorOwner
from tests.streams.group import process, show, tasks


def test_all_tasks_stay_and_another_rebalance_is_requested() -> None:
    clients = {
        process(1): PriorOwner(active=tasks("0_0 0_1 9_0"), standby=tasks("0_2")),
        process(2): PriorOwner(active=tasks("0_2"), standby=tasks("0_0 0_1")),
        process(3): PriorOwner(),
    }
    assignment = assign_to_prior_owners(clients, tasks("0_0 0_1 0_2"), tasks("9_0"), 1)
    assert show(assignment) == {1: ("0_0 0_1 9_0", "0_2"), 2: ("0_2", "0_0 0_1"), 3: ("", "")}
    assert assignment.probing_rebalance_needed
    assert assignment.missing_standbys == 0


def test_tasks_of_a_client_that_left_go_to_their_copies_then_to_the_least_loaded() -> None:
    clients = {
        process(1): PriorOwner(active=tasks("0_0"), standby=tasks("0_1")),
        process(2): PriorOwner(capacity=3, active=tasks("0_2")),
    }
    assignment = assign_to_prior_owners(clients, tasks("0_0 0_1 0_2 0_3"), tasks("9_0"), 0)
    assert show(assignment) == {1: ("0_0 0_1", ""), 2: ("0_2 0_3 9_0", "")}


def test_of_two_owners_the_less_loaded_gets_the_task_and_the_other_a_standby() -> None:
    clients = {
        process(1): PriorOwner(active=tasks("0_0 0_1")),
        process(2): PriorOwner(active=tasks("0_1")),
    }
    assignment = assign_to_prior_owners(clients, tasks("0_0 0_1"), (), 1)
    assert show(assignment) == {1: ("0_0", "0_1"), 2: ("0_1", "0_0")}


def test_standbys_without_a_client_are_counted() -> None:
    assignment = assign_to_prior_owners({process(1): PriorOwner()}, tasks("0_0 0_1"), (), 2)
    assert show(assignment) == {1: ("0_0 0_1", "")}
    assert assignment.missing_standbys == 4


def test_at_least_one_client_is_required() -> None:
    with pytest.raises(TaskAssignmentError, match="no client"):
        assign_to_prior_owners({}, tasks("0_0"), (), 0)
