"""The cases of Kafka's TaskMovementTest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkaclient.streams import Client
from kafkaclient.streams.clients import ClientState, TaskMover
from tests.streams.group import process, tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

SIX = "0_0 0_1 0_2 1_0 1_1 1_2"
THREE = "0_0 0_1 0_2"


def clients(
    active: Sequence[str], lags: Sequence[Sequence[int]], among: str = THREE
) -> list[ClientState]:
    made = []
    for number, (own, each) in enumerate(zip(active, lags, strict=True)):
        lag_of = dict(zip(sorted(tasks(among)), each, strict=True))
        state = ClientState(number, process(number + 1), Client(lags=lag_of))
        state.active |= tasks(own)
        made.append(state)
    return made


def outcome(found: Sequence[ClientState]) -> list[tuple[str, str]]:
    return [
        (" ".join(map(str, sorted(c.active))), " ".join(map(str, sorted(c.standby)))) for c in found
    ]


@pytest.mark.parametrize("lag", [0, 10_000])
def test_nothing_moves_where_all_are_equal(lag: int) -> None:
    states = clients(["0_0 1_0", "0_1 1_1", "0_2 1_2"], [[lag] * 6] * 3, SIX)
    assert TaskMover(states, 0, 100).move_actives() == 0
    assert outcome(states) == [("0_0 1_0", ""), ("0_1 1_1", ""), ("0_2 1_2", "")]


CROSSED = [[0, 10_000, 10_000], [10_000, 10_000, 0], [10_000, 0, 10_000]]


def test_should_move_tasks_to_caught_up_clients_and_assign_warmups_in_their_place() -> None:
    states = clients(["0_0", "0_1", "0_2"], CROSSED)
    assert TaskMover(states, 0, 100).move_actives() == 2
    assert outcome(states) == [("0_0", ""), ("0_2", "0_1"), ("0_1", "0_2")]
    assert [state.warmup for state in states] == [set(), tasks("0_1"), tasks("0_2")]


def test_should_only_get_up_to_max_warmup_replicas() -> None:
    states = clients(["0_0", "0_1", "0_2"], CROSSED)
    assert TaskMover(states, 0, 1).move_actives() == 2
    assert outcome(states) == [("0_0", ""), ("0_2", "0_1"), ("0_1", "")]


def test_should_move_tasks_to_most_caught_up_clients() -> None:
    lags = [[10_000, 20_000, 30_000], [20_000, 30_000, 10_000], [30_000, 10_000, 20_000]]
    states = clients(["0_0", "0_1", "0_2"], lags)
    states[2].standby |= tasks("0_1")
    assert TaskMover(states, 100, 100).move_actives() == 2
    assert outcome(states) == [("0_0", ""), ("0_2", "0_1"), ("0_1", "0_2")]


def test_a_swap_with_a_caught_up_standby_takes_no_warmup() -> None:
    states = clients(["", "0_0"], [[0], [10_000]], "0_0")
    states[0].standby |= tasks("0_0")
    assert TaskMover(states, 0, 0).move_actives() == 1
    assert outcome(states) == [("0_0", ""), ("", "0_0")]
    assert not states[1].warmup


def test_a_standby_moves_to_a_caught_up_client_and_its_client_warms_up() -> None:
    states = clients(["0_0", "", ""], [[0], [10_000], [0]], "0_0")
    states[1].standby |= tasks("0_0")
    assert TaskMover(states, 0, 1).move_standbys() == 1
    assert outcome(states) == [("0_0", ""), ("", "0_0"), ("", "0_0")]
    assert [state.warmup for state in states] == [set(), tasks("0_0"), set()]


def test_without_a_warmup_left_a_standby_just_moves() -> None:
    states = clients(["0_0", "", ""], [[0], [10_000], [500]], "0_0")
    states[1].standby |= tasks("0_0")
    assert TaskMover(states, 100, 0).move_standbys() == 1
    assert outcome(states) == [("0_0", ""), ("", ""), ("", "0_0")]


def test_a_standby_stays_if_all_clients_ahead_have_a_copy() -> None:
    states = clients(["0_0", ""], [[0], [10_000]], "0_0")
    states[1].standby |= tasks("0_0")
    assert TaskMover(states, 0, 1).move_standbys() == 0
    assert outcome(states) == [("0_0", ""), ("", "0_0")]


def test_an_unknown_lag_counts_as_the_furthest() -> None:
    states = clients(["0_0", "", ""], [[10_000], [-3], [500]], "0_0")
    assert TaskMover(states, 100, 1).move_actives() == 1
    assert outcome(states) == [("", "0_0"), ("0_0", ""), ("", "")]
