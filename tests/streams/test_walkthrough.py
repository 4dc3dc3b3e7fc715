"""The tables of docs/concepts/streams.md show what the assignor does."""

from __future__ import annotations

from pathlib import Path

from kafkaclient.streams import AssignmentConfigs, TaskId
from tests.streams.group import Group, process

PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "streams.md").read_text("utf-8")


def listed(tasks: frozenset[TaskId]) -> str:
    return " ".join(map(str, sorted(tasks))) or "-"


def rows(group: Group, clients: list[int], event: str) -> list[str]:
    """A row for each rebalance until no task moves."""
    found = []
    while True:
        assignment = group.rebalance()
        cells = [event]
        for number in clients:
            got = assignment.clients.get(process(number))
            if got is None:
                cells += ["", ""]
                continue
            copies = [
                f"{task}*" if task in got.warmup else f"{task}" for task in sorted(got.standby)
            ]
            cells += [listed(got.active), " ".join(copies) or "-"]
        cells.append(str(assignment.movements))
        found.append(f"| {' | '.join(cells)} |")
        group.catch_up()
        if not assignment.probing_rebalance_needed:
            return found
        event = "warm-ups are there"


def test_the_walk_through_scaling_out() -> None:
    group = Group(
        stateful=[TaskId(0, partition) for partition in range(6)],
        configs=AssignmentConfigs(max_warmup_replicas=2),
    )
    group.join(1)
    table = rows(group, [1, 2, 3], "1 starts")
    group.join(2)
    table += rows(group, [1, 2, 3], "2 joins")
    group.join(3)
    table += rows(group, [1, 2, 3], "3 joins")
    assert "\n".join(table) in PAGE


def test_the_walk_through_a_restart() -> None:
    group = Group(
        stateful=[TaskId(0, partition) for partition in range(4)],
        configs=AssignmentConfigs(num_standby_replicas=1),
    )
    group.join(1, 2)
    table = rows(group, [1, 2], "both run")
    disk = group.leave(2)
    table += rows(group, [1, 2], "2 stops")
    group.join(2)
    group.members[2] = dict.fromkeys(disk, 130_000)
    table += rows(group, [1, 2], "2 is back, 20,000 records behind")
    assert "\n".join(table) in PAGE
