"""Who is near."""

from __future__ import annotations

from kafkaclient.cluster.view import Broker, PartitionView, TopicView
from kafkaclient.producer.partitioning.partitioners import Rack

VIEW = TopicView("t", None, tuple(PartitionView(p, node) for p, node in enumerate((0, 1, -1, 0))))


def brokers(*racks: str | None) -> list[Broker]:
    return [Broker(node, "h", 9092, rack) for node, rack in enumerate(racks)]


def test_near_is_what_is_led_in_the_rack() -> None:
    rack = Rack("a")
    assert rack.near(VIEW) == ()
    assert rack.update(brokers("a", "b"))
    assert rack.near(VIEW) == (0, 3)
    assert not rack.update(brokers("a", "b")), "nothing has changed"
    assert rack.update(brokers("b", "a"))
    assert rack.near(VIEW) == (1,)
    assert rack.update(brokers(None, None))
    assert rack.near(VIEW) == ()


def test_without_a_rack_of_ones_own_nobody_is_near() -> None:
    """Also not the brokers whose rack is an empty string."""
    rack = Rack()
    assert not rack.update(brokers("", None))
    assert rack.near(VIEW) == ()
    assert rack.brokers == frozenset()
