from __future__ import annotations

from kafkaclient.perf.traffic import PartitionTraffic, skew_of


def partition(number: int, nbytes: int, leader: int = 0) -> PartitionTraffic:
    return PartitionTraffic(number, leader, 1, nbytes)


def test_skew_is_the_most_over_the_mean_of_partitions_with_a_leader() -> None:
    assert skew_of([partition(0, 100), partition(1, 100)]) == 1.0
    assert skew_of([partition(0, 300), partition(1, 0), partition(2, 0)]) == 3.0
    assert skew_of([partition(0, 300), partition(1, 100), partition(2, 0, -1)]) == 1.5
    assert skew_of([partition(0, 0)]) is None
    assert skew_of([]) is None
