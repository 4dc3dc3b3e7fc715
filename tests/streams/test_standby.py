"""Standbys by tags (KIP-708), after Kafka's ClientTagAwareStandbyTaskAssignorTest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkaclient.streams import AssignmentConfigs, Client, TaskId, assign
from tests.streams.group import process, tasks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkaclient.streams import Assignment

STATEFUL = tasks("0_0 0_1 0_2 1_0 1_1 1_2")


def run(
    tags_of: Sequence[Mapping[str, str]], standbys: int, *tags: str, stateful: object = STATEFUL
) -> Assignment:
    clients = {
        process(number): Client(lags=dict.fromkeys(STATEFUL, 0), tags=own)
        for number, own in enumerate(tags_of, 1)
    }
    configs = AssignmentConfigs(num_standby_replicas=standbys, rack_aware_assignment_tags=tags)
    return assign(clients, stateful, (), configs)


def places(
    assignment: Assignment, tags_of: Sequence[Mapping[str, str]], tag: str
) -> dict[TaskId, list[str]]:
    """By task, the tag's values at its active copy and its standbys."""
    found: dict[TaskId, list[str]] = {}
    for process_id, got in assignment.clients.items():
        for task in got.active | got.standby:
            found.setdefault(task, []).append(tags_of[process_id.int - 1].get(tag, "none"))
    return found


def grid(zones: int, clusters: int, each: int = 1) -> list[dict[str, str]]:
    return [
        {"zone": f"z{zone}", "cluster": f"k{cluster}"}
        for _ in range(each)
        for cluster in range(clusters)
        for zone in range(zones)
    ]


def test_copies_differ_in_every_tag_with_enough_values() -> None:
    tags_of = grid(3, 3)
    assignment = run(tags_of, 2, "zone", "cluster")
    for tag in ("zone", "cluster"):
        for values in places(assignment, tags_of, tag).values():
            assert len(values) == len(set(values)) == 3


def test_a_tag_with_fewer_values_than_copies_spreads_only_the_first_copies() -> None:
    # Two clusters, three zones: the second standby can differ in its zone alone.
    tags_of = grid(3, 2)
    assignment = run(tags_of, 2, "zone", "cluster")
    assert all(len(set(each)) == 3 for each in places(assignment, tags_of, "zone").values())
    assert all(len(set(each)) == 2 for each in places(assignment, tags_of, "cluster").values())


def test_standbys_that_tags_do_not_allow_are_placed_anyway() -> None:
    tags_of = [{"zone": "z0"}] * 3
    assignment = run(tags_of, 2, "zone")
    assert all(len(each) == 3 for each in places(assignment, tags_of, "zone").values())
    assert assignment.missing_standbys == 0


@pytest.mark.parametrize("tags", [(), ("cluster",)])
def test_tags_outside_the_option_are_ignored(tags: tuple[str, ...]) -> None:
    # By load alone the standby of a task would be beside it in the zone for some task.
    tags_of = [{"zone": "z0"}, {"zone": "z1"}, {"zone": "z0"}, {"zone": "z1"}]
    apart = places(run(tags_of, 1, "zone"), tags_of, "zone")
    assert all(len(set(each)) == 2 for each in apart.values())
    by_load = places(run(tags_of, 1, *tags), tags_of, "zone")
    assert any(len(set(each)) == 1 for each in by_load.values())


def test_clients_without_the_tag_take_standbys_too() -> None:
    tags_of = [{"zone": "z0"}, {}, {"zone": "z0"}]
    assignment = run(tags_of, 1, "zone", stateful=tasks("0_0"))
    assert assignment.clients[process(1)].active == tasks("0_0")
    # All clients have the same value, so the least loaded one gets the standby.
    assert assignment.clients[process(2)].standby == tasks("0_0")


def test_balancing_keeps_standbys_out_of_the_zone_they_avoid() -> None:
    # Twice as many clients in z0: evening out by load alone would move standbys there.
    tags_of = [{"zone": "z0"}, {"zone": "z0"}, {"zone": "z0"}, {"zone": "z1"}]
    assignment = run(tags_of, 1, "zone")
    assert all(len(set(each)) == 2 for each in places(assignment, tags_of, "zone").values())
