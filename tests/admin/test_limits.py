"""The limits' arithmetic, by KIP-578's own examples."""

from __future__ import annotations

import pytest

from kafkaclient.admin.limits import LIMITS_TOPIC, OFF, Addition, Limits, Usage, limits_report
from kafkaclient.errors import ConfigError, PartitionLimitRaceError, PolicyViolationError
from kafkaclient.wire.api import BrokerInfo, MetadataResult, PartitionView, TopicInfo


def usage(hosted, partitions=0) -> Usage:
    return Usage(dict.fromkeys(hosted), hosted, partitions, sum(hosted.values()))


def gains(what="move", **more) -> Addition:
    return Addition(what, 0, 0, {int(name[1:]): count for name, count in more.items()})


def test_limits_by_their_names() -> None:
    limits = Limits.parse({"max.broker.partitions": "4000", "max.partitions": " 200000 "})
    assert limits == Limits(4000, 200_000)
    assert str(limits) == "max.broker.partitions=4000, max.partitions=200000"
    assert Limits.parse(limits.as_properties()) == limits
    assert limits.changed({"max.partitions": "off"}) == Limits(4000)
    assert not Limits.parse({"max.partitions": str(OFF), "max.broker.partitions": None}).any
    assert Limits.parse({"max.partitions.count": "replicas"}).count == "replicas"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"max.partition": "3"}, "unknown partition limit 'max.partition'"),
        ({"max.partitions": "-1"}, "max.partitions=-1"),
        ({"max.partitions": "many"}, "max.partitions=many"),
        ({"max.partitions": str(OFF + 1)}, f"from 0 to {OFF}, or off"),
        ({"max.partitions.count": "topics"}, "partitions or replicas"),
    ],
)
def test_what_is_no_limit(given, told) -> None:
    with pytest.raises(ConfigError, match=told):
        Limits.parse(given)


def test_usage_counts_neither_internal_topics_nor_exempt_ones() -> None:
    def topic(name, internal, *replicas) -> TopicInfo:
        partitions = tuple(PartitionView(n, 1, 0, r, r) for n, r in enumerate(replicas))
        return TopicInfo(name, 0, None, internal, partitions)

    brokers = tuple(BrokerInfo(n, "h", 1, "r") for n in (1, 2, 3))
    cluster = MetadataResult(
        brokers,
        "c",
        1,
        (
            topic("a", False, (1, 2), (2, 4)),
            topic("moving", False, (3, 4, 1, 2)),
            topic("__consumer_offsets", True, (1, 2)),
            topic(LIMITS_TOPIC, False, (1,)),
        ),
        0,
    )
    counted = Usage.of(cluster)
    assert counted.hosted == {1: 2, 2: 3, 3: 1, 4: 2}
    assert (counted.partitions, counted.replicas) == (3, 8)
    assert counted.racks.keys() == {1, 2, 3}  # 4 is down
    assert counted.capacities(Limits(2)) == {1: 0, 2: 0, 3: 1}
    assert counted.capacities(Limits(None, 5)) == {}


def test_the_total_may_fail_alone() -> None:
    limits, used = Limits(10, 5), usage({1: 2, 2: 3}, partitions=5)
    with pytest.raises(PolicyViolationError) as caught:
        used.check_total(limits, Addition("creating topic 't'", 1, 1))
    error = caught.value
    assert (error.code, error.name, error.retriable) == (44, "POLICY_VIOLATION", False)
    assert "max.broker.partitions=10, max.partitions=5" in str(error)
    assert "broker 1: 8, broker 2: 7; cluster: 0" in str(error)
    assert (error.max_broker_partitions, error.max_partitions) == (10, 5)
    assert error.remaining == {1: 8, 2: 7}


def test_what_max_partitions_bounds_can_be_chosen() -> None:
    used, asked = usage({1: 4, 2: 4}, partitions=4), Addition("t", 1, 2)
    used.check_total(Limits(None, 5), asked)
    used.check_total(Limits(None, 10, "replicas"), asked)
    with pytest.raises(PolicyViolationError, match="10 replicas"):
        used.check_total(Limits(None, 9, "replicas"), asked)


def test_a_reassignment_is_judged_by_its_peak() -> None:
    """What a broker gives away stays until the move is done (B=10, hosted 10, one for one)."""
    limits, used = Limits(10), usage({1: 10, 2: 10, 3: 9})
    with pytest.raises(PolicyViolationError, match="broker 2 would have 11"):
        used.check_gains(limits, gains(b2=1))
    used.check_gains(limits, gains(b3=1))


def test_a_reassignment_knows_no_total() -> None:
    used = usage({1: 10, 2: 1}, partitions=50)
    used.check_total(Limits(None, 5), gains(b2=1))
    used.check_gains(Limits(None, 5), gains(b2=1))


def test_a_broker_above_the_limit_can_be_drained() -> None:
    limits, used = Limits(10), usage({1: 30, 2: 3})
    used.check_gains(limits, gains(b2=5))
    with pytest.raises(PolicyViolationError):
        used.check_gains(limits, gains(b1=1))


def test_no_limits_refuse_nothing() -> None:
    used = usage({1: 10**12}, partitions=10**12)
    used.check_total(Limits(), Addition("t", 10**9, 10**9))
    used.check_gains(Limits(), gains(b1=10**9))


def test_a_race_is_told_by_what_came_of_it() -> None:
    limits = Limits(10, 20)
    asked = Addition("creating topic 't'", 1, 2, {1: 1, 2: 1})
    usage({1: 10, 2: 9, 3: 44}, partitions=20).check_race(limits, asked)
    with pytest.raises(PartitionLimitRaceError, match="broker 1 has 11 replicas"):
        usage({1: 11, 2: 9}, partitions=20).check_race(limits, asked)
    with pytest.raises(PartitionLimitRaceError, match="21 partitions"):
        usage({1: 1, 2: 9}, partitions=21).check_race(limits, asked)


def test_a_report_has_every_broker_and_the_cluster() -> None:
    told = limits_report(Limits(10, 100), usage({1: 12, 2: 8}, partitions=90))
    assert [(b.node_id, b.hosted, b.headroom) for b in told.brokers] == [(1, 12, -2), (2, 8, 2)]
    assert told.headroom == 10
    assert told.violations == ("broker 1 has 12 of max.broker.partitions=10",)
    assert len(told.above(0.85)) == 2
    assert told.above(0.79)[1:] == (
        "broker 2 has 8 of max.broker.partitions=10",
        "the cluster has 90 partitions of max.partitions=100",
    )
