"""KIP-73's formulas, with its own numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.admin.reassign.estimate import Estimate, SafeRange, estimate, growth_of, shown
from kafkaclient.admin.reassign.plan import Move
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import PartitionView

MB = 1_000_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

KIP_EXAMPLE = Estimate(
    partitions=3,
    total_partitions=10,
    bytes_to_move=900_000 * MB,
    bytes_in={1: 500_000 * MB, 2: 400_000 * MB},
    bytes_out={0: 900_000 * MB},
    log_bytes_per_broker=500_000 * MB,
    brokers=6,
    inbound=20 * MB,
    written_in={1: 20 * MB, 2: 20 * MB},
    written_out={0: 20 * MB},
    replication_factor=2,
)


def written(rate: float, **changes) -> Estimate:
    """The example, where producers write all inbound bytes to one moving partition."""
    rates = {"inbound": rate, "written_in": {1: rate, 2: rate}, "written_out": {0: rate}}
    return replace(KIP_EXAMPLE, **rates, **changes)


def test_the_example_of_eight_hours() -> None:
    """0.3 x 500 GB x 6 / (50 - 20 MB/s) = 30,000 s."""
    assert KIP_EXAMPLE.move_ratio == 0.3
    assert KIP_EXAMPLE.move_time_s(50 * MB) == pytest.approx(30_000)
    assert KIP_EXAMPLE.move_time_s(20 * MB) is None
    assert KIP_EXAMPLE.expected_s(22 * MB) is None


def test_who_takes_is_slower_than_who_gives() -> None:
    assert KIP_EXAMPLE.expected_s(50 * MB) == pytest.approx(900_000 / 30)
    alone = replace(KIP_EXAMPLE, bytes_in={1: 900_000 * MB})
    assert alone.expected_s(50 * MB) == pytest.approx(900_000 / 24)


def test_the_safe_range() -> None:
    """IN < T < N - IN/R."""
    safe = KIP_EXAMPLE.safe_range(125 * MB)
    assert safe == SafeRange(20 * MB, 115 * MB, 30 * MB + 2)
    assert safe.problem(50 * MB) is None
    assert "use a quota above that" in (safe.problem(20 * MB) or "")
    assert "below 115.0 MB/s" in (safe.problem(115 * MB) or "")
    alone = KIP_EXAMPLE.safe_range(None)
    assert alone.above is None
    assert alone.problem(10**12) is None
    assert "would never end" in (written(0.0).safe_range(None).problem(0) or "")


def test_bytes_of_other_topics_do_not_keep_a_move_from_ending() -> None:
    """The quota counts only throttled partitions, so only these need to be kept up with."""
    other = replace(written(0.0), inbound=20 * MB)
    assert other.safe_range(125 * MB) == SafeRange(0.0, 115 * MB, 10 * MB + 2)
    assert other.safe_range(None).problem(10 * MB) is None
    assert other.expected_s(10 * MB) == pytest.approx(90_000)
    assert other.move_time_s(10 * MB) == pytest.approx(90_000)


@given(st.integers(1, 10**9), st.integers(0, 10**9), st.integers(1, 5), st.integers(0, 10**9))
def test_a_quota_is_safe_exactly_within_the_range(n, inbound, r, quota) -> None:
    found = written(float(inbound), replication_factor=r)
    safe = found.safe_range(n).problem(quota) is None
    assert safe == (inbound < quota < n - inbound / r)
    if safe:
        assert found.move_time_s(quota) is not None


@given(st.integers(1, 10**9), st.integers(0, 10**9), st.integers(1, 5))
def test_the_least_network_with_which_a_quota_is_safe(n, quarters, r) -> None:
    inbound = quarters / 4
    found = written(inbound, replication_factor=r)
    least = found.safe_range(None).least_network
    assert found.safe_range(n).is_empty == (n < least)
    lowest = math.floor(inbound) + 1
    assert found.safe_range(least).problem(lowest) is None
    told = found.safe_range(least - 1).problem(lowest) or ""
    assert "no quota is safe with this network bandwidth" in told
    assert f"at least {least} bytes per second" in told


def test_the_fetch_size_wants_a_megabyte_a_second() -> None:
    """Question 5: with 10 MB at once and 11 s to look back on."""
    assert KIP_EXAMPLE.is_coarse(900_000)
    assert not KIP_EXAMPLE.is_coarse(MB)


def test_the_fetch_size_in_a_large_cluster() -> None:
    """Question 5: 500 brokers x 10 MB exceed what a 100 MB/s network takes in 11 s."""
    large = replace(KIP_EXAMPLE, brokers=500)
    assert large.is_coarse(50 * MB, 100 * MB)
    assert not large.is_coarse(50 * MB)
    assert not replace(KIP_EXAMPLE, brokers=5).is_coarse(MB, 100 * MB)


def test_an_estimate_from_what_is_on_the_disks() -> None:
    views = {
        T0: PartitionView(0, leader=0, replicas=(0, 1), isr=(0, 1)),
        T1: PartitionView(1, leader=1, replicas=(1, 0)),
        TopicPartition("u", 0): PartitionView(0, leader=0, replicas=(0,)),
    }
    moves = {
        T0: Move(frozenset({0, 1}), frozenset({2, 3})),
        T1: Move(frozenset({0, 1}), frozenset()),
    }
    sizes = {0: {T0: 100, T1: 7}, 1: {T0: 90, T1: 7}, 2: {}, 3: {}}
    growth = {0: {T0: 3.0, T1: 50.0}, 1: {T0: 4.0}}
    found = estimate(moves, views, sizes, growth=growth)
    assert (found.partitions, found.total_partitions, found.bytes_to_move) == (1, 3, 200)
    assert (found.bytes_in, found.bytes_out) == ({2: 100, 3: 100}, {0: 200})
    assert (found.log_bytes_per_broker, found.brokers) == (51.0, 4)
    assert (found.inbound, found.replication_factor) == (53.0, 2)
    # The leader sends to its follower and to two new replicas; T1 does not move.
    assert (found.written_in, found.written_out) == ({2: 3.0, 3: 3.0}, {0: 9.0})
    # Bytes that a new replica has already are not moved again.
    sizes[2][T0] = 60
    again = estimate(moves, views, sizes)
    assert (again.bytes_in, again.bytes_out) == ({2: 40, 3: 100}, {0: 140})


def test_topics_that_stop_while_they_move() -> None:
    """The new replicas count for min.insync.replicas before they are in sync."""
    view = PartitionView(0, leader=0, replicas=(0,), isr=(0,))
    pair = PartitionView(0, leader=0, replicas=(0, 1), isr=(0, 1))
    behind = PartitionView(0, leader=0, replicas=(0, 1), isr=(0,))

    def waiting(view: PartitionView, new: set[int], least: int | None) -> tuple[str, ...]:
        moves = {T0: Move(frozenset(view.replicas), frozenset(new))}
        told = {} if least is None else {"t": least}
        return estimate(moves, {T0: view}, {}, min_in_sync=told).waiting

    assert waiting(view, {1}, 2) == ("t",)
    assert waiting(view, {1}, 1) == waiting(view, {1}, None) == waiting(view, set(), 2) == ()
    assert waiting(pair, {2}, 2) == ()
    assert waiting(pair, {2}, 3) == ("t",)
    # Stopped already, and not because of the move.
    assert waiting(behind, {2}, 2) == ()


def test_nothing_to_move() -> None:
    found = estimate({}, {}, {})
    assert (found.move_ratio, found.move_time_s(1), found.expected_s(1)) == (0.0, 0.0, 0.0)


def test_growth() -> None:
    first = {0: {T0: 100, T1: 100}, 1: {T0: 100}}
    second = {0: {T0: 300, T1: 50}, 1: {T0: 200, T1: 1000}, 2: {T0: 5}}
    assert growth_of(first, second, 2.0) == {0: {T0: 100.0, T1: 0.0}, 1: {T0: 50.0}}


def test_bytes_for_people() -> None:
    told = [shown(n) for n in (0, 9999, 12_345, 10 * MB, 2_500 * MB, 5 * 10**15)]
    assert told == ["0 B", "9,999 B", "12.3 KB", "10.0 MB", "2.5 GB", "5,000.0 TB"]
