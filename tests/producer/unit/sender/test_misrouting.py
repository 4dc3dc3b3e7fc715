"""When a broker that refuses to lead is taken for another broker."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kafkaclient.producer.sender.liveness import Misrouting


class World:
    """Metadata that is always newer, and a router that counts."""

    refreshed_at = float("inf")

    def __init__(self) -> None:
        self.reconnected = 0
        self.misrouting = Misrouting(cast("Any", self), cast("Any", self))

    def reconnect(self, _node_id: int, _error: object) -> None:
        self.reconnected += 1


@pytest.mark.parametrize(
    ("refusals", "reconnected"),
    [
        ([0], 0),
        ([0, 1.9], 0),
        ([0, 1, 2], 1),
        ([0, 1, 2, 3], 1),
        ([0, 1, 2, 3, 4], 2),
        ([0, 600], 0),  # it did not lead, and leads again
        ([0, 600, 602], 1),
    ],
)
def test_refusals_in_a_row(refusals: list[float], reconnected: int) -> None:
    world = World()
    for now in refusals:
        world.misrouting.refused(3, now)
    assert world.reconnected == reconnected


def test_health_forgets_what_nothing_has_confirmed_for_a_while() -> None:
    """Without traffic no batch could show that the broker is reached again."""
    world = World()
    for now in (0, 2):
        world.misrouting.refused(3, now)
    assert list(world.misrouting.reasons(32)) == [3]
    assert not world.misrouting.reasons(33)
    world.misrouting.refused(3, 34)
    assert not world.misrouting.reasons(34)


def test_a_written_batch_ends_the_suspicion() -> None:
    world = World()
    for now in (0, 2):
        world.misrouting.refused(3, now)
    world.misrouting.succeeded(3)
    assert not world.misrouting.reasons(2)
