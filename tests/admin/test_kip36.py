"""KIP-36's assignment, by Kafka's own ``AdminRackAwareTest`` and vectors of its own time."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from kafkaclient.admin.placement import Start, alternated, assign, start_of_extension
from kafkaclient.errors import BrokerError, ConfigError

TWO_EACH = {0: "rack1", 1: "rack2", 2: "rack2", 3: "rack3", 4: "rack3", 5: "rack1"}
UNEVEN = {0: "rack1", 1: "rack1", 2: "rack2", 3: "rack3", 4: "rack3", 5: "rack1"}
LARGE = TWO_EACH | {6: "rack1", 7: "rack2", 8: "rack2", 9: "rack3", 10: "rack1", 11: "rack3"}


def anywhere(seed: int, brokers: int, partition: int = 0) -> Start:
    rng = Random(seed)
    return Start(rng.randrange(brokers), rng.randrange(brokers), partition)


def check(
    assignment, racks, partitions, factor, *, spread=True, leaders=True, replicas=True
) -> None:
    assert len(assignment) == partitions
    for row in assignment:
        assert len(set(row)) == len(row) == factor
        if spread:
            assert len({racks[broker] for broker in row}) == factor
    if leaders:
        counts = Counter(row[0] for row in assignment)
        assert {counts[broker] for broker in racks} == {partitions // len(racks)}
    if replicas:
        counts = Counter(broker for row in assignment for broker in row)
        assert {counts[broker] for broker in racks} == {partitions * factor // len(racks)}


def test_five_brokers_without_racks() -> None:
    assignment = assign(dict.fromkeys(range(5)), 10, 3, Start(0, 0))
    told = ",".join("".join(map(str, row)) for row in assignment)
    assert told == "012,123,234,340,401,023,134,240,301,412"


def test_get_rack_alternated_broker_list_and_assign_replicas() -> None:
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert alternated(racks) == [0, 3, 1, 5, 4, 2]
    assert alternated({b: r for b, r in racks.items() if b != 5}) == [0, 3, 1, 4, 2]
    assignment = assign(racks, 7, 3, Start(0, 0))
    told = ["".join(map(str, row)) for row in assignment]
    assert told == ["031", "315", "154", "542", "420", "203", "042"]


def test_assignment_with_rack_aware() -> None:
    check(assign(TWO_EACH, 6, 3, Start(2, 2)), TWO_EACH, 6, 3)


def test_assignment_with_uneven_replicas() -> None:
    assignment = assign(TWO_EACH, 13, 3, Start(0, 0))
    check(assignment, TWO_EACH, 13, 3, leaders=False, replicas=False)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("racks", "partitions", "factor", "even"),
    [
        (TWO_EACH, 6, 3, True),  # testAssignmentWithRackAwareWithRandomStartIndex
        (UNEVEN, 12, 3, False),  # testAssignmentWithRackAwareWithUnevenRacks
        (TWO_EACH, 12, 2, True),  # testAssignmentWith2ReplicasRackAware
        (TWO_EACH, 6, 2, True),  # testAssignmentWith2ReplicasRackAwareWith6Partitions
        ({0: "rack1", 1: "rack2", 4: "rack3"}, 3, 2, True),  # ...With6PartitionsAnd3Brokers
        (LARGE, 96, 3, True),  # testLargeNumberPartitionsAssignment
    ],
)
def test_wherever_it_begins(racks, partitions, factor, even, seed) -> None:
    assignment = assign(racks, partitions, factor, anywhere(seed, len(racks)))
    check(assignment, racks, partitions, factor, replicas=even)


@pytest.mark.parametrize("seed", range(12))
def test_rack_aware_expansion(seed) -> None:
    racks = {broker + 6: rack for broker, rack in TWO_EACH.items()}
    check(assign(racks, 12, 2, anywhere(seed, 6, partition=12)), racks, 12, 2)


@pytest.mark.parametrize("seed", range(12))
def test_more_and_fewer_replicas_than_racks(seed) -> None:
    racks = TWO_EACH | {5: "rack2"}
    for factor, spread in ((5, 3), (2, 2)):
        for row in assign(racks, 6, factor, anywhere(seed, 6)):
            assert len(set(row)) == factor
            assert len({racks[broker] for broker in row}) == spread


@pytest.mark.parametrize("seed", range(12))
def test_single_rack(seed) -> None:
    racks = dict.fromkeys(range(6), "rack1")
    assignment = assign(racks, 6, 3, anywhere(seed, 6))
    check(assignment, racks, 6, 3, spread=False)


def test_skip_broker_with_replica_already_assigned() -> None:
    racks = {0: "a", 1: "b", 2: "c", 3: "a", 4: "a"}
    assignment = assign(racks, 6, 4, Start(2, 2))
    check(assignment, racks, 6, 4, spread=False, leaders=False, replicas=False)


@pytest.mark.parametrize(("partitions", "factor", "code"), [(0, 1, 37), (3, 0, 38), (3, 6, 38)])
def test_numbers_that_no_placement_can_have(partitions, factor, code) -> None:
    with pytest.raises(BrokerError) as caught:
        assign(dict.fromkeys(range(5)), partitions, factor, Start(0, 0))
    assert caught.value.code == code


def test_racks_of_some_brokers_only_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"\[1\] have no rack"):
        assign({0: "a", 1: None}, 1, 1, Start(0, 0))


def test_one_broker() -> None:
    assert assign({7: None}, 3, 1, Start(0, 0)) == ((7,), (7,), (7,))


def test_added_partitions_go_on_where_the_topic_ends() -> None:
    brokers = dict.fromkeys(range(5))
    whole = assign(brokers, 12, 3, Start(3, 3))
    start = start_of_extension(list(brokers), 7, whole[0][0])
    assert start == Start(3, 3, 7)
    added = assign(brokers, 5, 3, start)
    assert [row[0] for row in added] == [row[0] for row in whole[7:]]


def test_the_first_leader_may_be_gone() -> None:
    assert start_of_extension([5, 1, 9], 4, 3) == Start(1, 1, 4)
    assert start_of_extension([5, 1, 9], 4, 10) == Start(0, 0, 4)
