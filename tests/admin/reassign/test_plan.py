"""Plans and their JSON. Upstream: the parse and generate tests of ReassignPartitionsUnitTest."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.admin.reassign.plan import (
    Move,
    ReassignmentPlan,
    generate,
    in_sync,
    leaves_fewer_in_sync,
    parse_broker_list,
    parse_topics,
    with_replication_factor,
)
from kafkaclient.errors import BrokerError, ConfigError
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import PartitionView

FOO0, FOO1, BAR0 = TopicPartition("foo", 0), TopicPartition("foo", 1), TopicPartition("bar", 0)


def plan(*partitions: str) -> ReassignmentPlan:
    return ReassignmentPlan.from_json(f'{{"version":1,"partitions":[{",".join(partitions)}]}}')


def entry(topic: str, partition: int, replicas: list[int], **more) -> str:
    return json.dumps({"topic": topic, "partition": partition, "replicas": replicas, **more})


def test_the_json_of_kafkas_tool() -> None:
    """testCurrentPartitionReplicaAssignmentToString: sorted, log_dirs spelt out."""
    written = ReassignmentPlan({FOO1: (4, 5, 6), BAR0: (7, 8)}).to_json()
    assert written == (
        '{"version":1,"partitions":'
        '[{"topic":"bar","partition":0,"replicas":[7,8],"log_dirs":["any","any"]},'
        '{"topic":"foo","partition":1,"replicas":[4,5,6],"log_dirs":["any","any","any"]}]}'
    )
    assert ReassignmentPlan.from_json(written).replicas == {BAR0: (7, 8), FOO1: (4, 5, 6)}


def test_version_and_log_dirs_may_be_missing() -> None:
    read = ReassignmentPlan.from_json(f'{{"partitions":[{entry("foo", 0, [1, 2])}]}}')
    assert read == ReassignmentPlan({FOO0: (1, 2)})
    with pytest.raises(ConfigError, match="Not supported version field value 2"):
        ReassignmentPlan.from_json('{"version":2,"partitions":[]}')


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("invalid_json", "not JSON"),
        ("[]", "not a JSON object"),
        ("[" * 100_000, "not JSON"),
        (f'{{"partitions":[{entry("foo", -1, [1])}]}}', '"topic", "partition" and "replicas"'),
        (f'{{"partitions":[{entry("foo", 2**31, [1])}]}}', '"topic", "partition" and "replicas"'),
        (f'{{"partitions":[{entry("foo", 0, [-1])}]}}', "replicas must be broker ids"),
        ('{"partitions":1}', "must be a list"),
        ('{"partitions":[1]}', "JSON object"),
        ('{"partitions":[{"topic":"foo","replicas":[1]}]}', '"topic", "partition" and "replicas"'),
        (f'{{"partitions":[{entry("foo", 0, ["a"])}]}}', "replicas must be broker ids"),
        (f'{{"partitions":[{entry("foo", 0, [1], log_dirs=["any"] * 2)}]}}', "is different from"),
        (f'{{"partitions":[{entry("foo", 0, [1], log_dirs=["x"])}]}}', "an absolute path"),
        ('{"version":1,"partitions":[]}', "Partition reassignment list cannot be empty"),
        ('{"version":1}', "Partition reassignment list cannot be empty"),
        (f'{{"partitions":[{entry("foo", 0, [1])},{entry("foo", 0, [2])}]}}', "duplicate.*foo-0"),
    ],
)
def test_what_is_no_plan(text: str, why: str) -> None:
    """testPropagateInvalidJsonError and parts of testParseExecuteAssignmentArgs."""
    with pytest.raises(ConfigError, match=why):
        ReassignmentPlan.from_json(text)


def test_what_cannot_be_executed() -> None:
    """testParseExecuteAssignmentArgs."""
    with pytest.raises(ConfigError, match="Partition reassignment list cannot be empty"):
        ReassignmentPlan({}).check()
    with pytest.raises(ConfigError, match="Partition replica list cannot be empty"):
        plan(entry("foo", 0, [])).check()
    message = (
        "Partition replica lists may not contain duplicate entries: foo-0 contains multiple "
        "entries for 0"
    )
    with pytest.raises(ConfigError, match=message):
        plan(entry("foo", 0, [0, 0, 1])).check()
    with pytest.raises(ConfigError, match="does not move replicas between log directories"):
        plan(entry("foo", 0, [0, 1], log_dirs=["any", "/d1"])).check()
    plan(entry("foo", 0, [0, 1])).check()


def test_directories_come_back_as_they_were() -> None:
    given_ = plan(entry("foo", 0, [0, 1], log_dirs=["any", "/d1"]))
    assert ReassignmentPlan.from_json(given_.to_json()) == given_


def test_arguments_of_generate() -> None:
    """testParseGenerateAssignmentArgs."""
    with pytest.raises(ConfigError, match="Broker list contains duplicate entries: 1"):
        parse_broker_list("1,1,2")
    with pytest.raises(ConfigError, match="0,1,2"):
        parse_broker_list("a,b")
    assert parse_broker_list("5, 2,3") == [5, 2, 3]
    topics = '{"topics": [{"topic": "foo"},{"topic": "foo"}], "version":1}'
    with pytest.raises(ConfigError, match="topics to reassign contains duplicate entries: foo"):
        parse_topics(topics)
    assert parse_topics('{"topics": [{"topic": "foo"},{"topic": "bar"}]}') == ["foo", "bar"]
    with pytest.raises(ConfigError, match="a topic to move"):
        parse_topics('{"topics": ["foo"]}')


PRESENT = {FOO0: (0, 1, 2), FOO1: (1, 2, 3), BAR0: (2, 3)}
RACKS: dict[int, str | None] = {0: "rack0", 1: "rack1", 2: None, 3: "rack1"}


def test_too_few_brokers() -> None:
    """testGenerateAssignmentFailsWithoutEnoughReplicas."""
    with pytest.raises(BrokerError, match="Replication factor: 3 larger than available brokers: 2"):
        generate(PRESENT, {0: None, 1: None}, rng=Random(1))


def test_some_brokers_without_rack() -> None:
    """testGenerateAssignmentWithInconsistentRacks."""
    with pytest.raises(ConfigError, match=r"broker 2 has none\. Use --disable-rack-aware"):
        generate(PRESENT, RACKS, rng=Random(1))
    found = generate(PRESENT, RACKS, rng=Random(1), rack_aware=False)
    assert {partition: len(nodes) for partition, nodes in found.items()} == {
        partition: len(nodes) for partition, nodes in PRESENT.items()
    }


def test_on_some_of_the_brokers() -> None:
    """testGenerateAssignmentWithFewerBrokers: on 0, 1 and 3 only, one replica each."""
    found = generate({FOO0: (0, 1, 2), FOO1: (1, 2, 3)}, dict.fromkeys((0, 1, 3)), rng=Random(1))
    assert {frozenset(nodes) for nodes in found.values()} == {frozenset({0, 1, 3})}


def test_each_partition_keeps_its_replication_factor() -> None:
    """Java gives all partitions the factor of the topic's first partition."""
    mixed = {FOO0: (0, 1), FOO1: (0, 1, 2, 3), BAR0: (2,)}
    found = generate(mixed, dict.fromkeys(range(4)), rng=Random(1))
    assert {p: len(set(nodes)) for p, nodes in found.items()} == {FOO0: 2, FOO1: 4, BAR0: 1}


racks = st.sampled_from(["a", "b", "c"])


@st.composite
def clusters(draw) -> tuple[dict[int, str], list[int], dict[TopicPartition, PartitionView]]:
    """The racks of the brokers that are up, those of them that may get replicas (the others are
    cordoned), and partitions with factors of their own. Some replicas are down or not in sync."""
    up = draw(st.dictionaries(st.integers(0, 8), racks, min_size=3, max_size=9))
    usable = draw(st.lists(st.sampled_from(sorted(up)), min_size=1, unique=True))
    present = {}
    for number in range(draw(st.integers(1, 6))):
        nodes = draw(st.lists(st.integers(0, 11), min_size=1, max_size=4, unique=True))
        isr = draw(st.lists(st.sampled_from(nodes), unique=True))
        present[TopicPartition("t", number)] = PartitionView(number, -1, -1, tuple(nodes), (*isr,))
    return up, usable, present


@given(clusters(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_another_replication_factor_keeps_what_is_healthy(cluster, factor, rng) -> None:
    up, usable, present = cluster
    try:
        found = with_replication_factor(present, up, usable, factor, rng=rng)
    except BrokerError:
        least = min(len({*view.replicas, *usable}) for view in present.values())
        assert factor > len(up) or factor > least
        return
    for partition, view in present.items():
        old, new = set(view.replicas), found[partition]
        healthy = in_sync(view, up)
        assert len(new) == len(set(new)) == factor
        assert set(new) <= old or set(new) > old
        assert set(new) - old <= set(usable)
        removed, kept = old - set(new), old & set(new)
        # Neither a dead nor a lagging replica stays where an in-sync one goes, nor a dead one
        # where a live one goes.
        assert not removed & healthy or kept <= healthy
        assert not removed & set(up) or kept <= set(up)
        # The preferred leader is in sync where the former one is dead.
        assert new[0] in up or not healthy
        if view.replicas[0] in healthy:
            assert new[0] == view.replicas[0]
        move = Move(frozenset(old), frozenset(new) - old)
        assert not leaves_fewer_in_sync(view, move, new, up)


@given(clusters(), st.randoms(use_true_random=False))
def test_a_new_placement_uses_brokers_that_may_get_replicas(cluster, rng) -> None:
    up, usable, present = cluster
    replicas = {partition: view.replicas for partition, view in present.items()}
    if max(map(len, replicas.values())) > len(usable):
        with pytest.raises(BrokerError):
            generate(replicas, {node: up[node] for node in usable}, rng=rng)
        return
    found = generate(replicas, {node: up[node] for node in usable}, rng=rng)
    for partition, view in present.items():
        old, new = set(view.replicas), found[partition]
        assert len(set(new)) == len(old)
        assert set(new) <= set(usable)
        # As many replicas as before, none of them dead: never fewer in sync.
        move = Move(frozenset(old), frozenset(new) - old)
        assert not leaves_fewer_in_sync(view, move, new, up)


@given(
    st.dictionaries(st.integers(0, 8), racks, min_size=3, max_size=9),
    st.integers(1, 3),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_another_replication_factor_moves_nothing_that_stays(brokers, before, after, rng) -> None:
    present = {TopicPartition("t", n): tuple(rng.sample(sorted(brokers), before)) for n in range(6)}
    views = {
        p: PartitionView(p.partition, nodes[0], 0, nodes, nodes) for p, nodes in present.items()
    }
    found = with_replication_factor(views, brokers, sorted(brokers), after, rng=rng)
    for partition, nodes in present.items():
        new = found[partition]
        assert len(new) == len(set(new)) == after
        assert set(new) <= set(nodes) or set(new) >= set(nodes)
        assert new[0] == nodes[0]
        used = {brokers[node] for node in new}
        if after > before and len(used) < len(set(brokers.values())):
            # A rack is left out only for those that were together in one before.
            assert len(used) >= len({brokers[node] for node in nodes}) + after - before


@pytest.mark.parametrize(
    ("replicas", "isr", "factor", "proposed"),
    [
        ((0, 9, 1), (0, 1), 2, (0, 1)),
        ((9, 1, 2), (1, 2), 2, (1, 2)),
        ((9, 1), (1,), 2, (1, 9)),
        ((0, 1, 2), (1, 2), 2, (1, 2)),
        ((9, 0, 1), (9,), 1, (0,)),
    ],
    ids=["dead", "dead preferred leader", "dead, but kept", "lagging", "no leader"],
)
def test_which_replica_is_removed(replicas, isr, factor, proposed) -> None:
    """Broker 9 is down."""
    view, up = PartitionView(0, replicas=replicas, isr=isr), dict.fromkeys(range(4))
    found = with_replication_factor({FOO0: view}, up, list(up), factor, rng=Random(1))
    assert found == {FOO0: proposed}


def test_plans_topic_by_topic_use_all_brokers() -> None:
    """Each plan is generated alone, before any of them is executed."""
    rng, new = Random(1), Counter[int]()
    for number in range(60):
        view = PartitionView(0, replicas=(0,), isr=(0,))
        found = with_replication_factor(
            {TopicPartition(f"t{number}", 0): view}, dict.fromkeys(range(5)), range(5), 2, rng=rng
        )
        new.update(nodes[1] for nodes in found.values())
    assert set(new) == {1, 2, 3, 4}
    assert min(new.values()) > 5


def test_a_replication_factor_that_brokers_do_not_suffice_for() -> None:
    views = {p: PartitionView(0, replicas=nodes, isr=nodes) for p, nodes in PRESENT.items()}
    with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR"):
        with_replication_factor(views, {0: None, 1: None}, [0, 1], 3, rng=Random(1))
    cordoned = {0: None, 1: None, 2: None, 3: None}
    with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR"):
        with_replication_factor(views, cordoned, [3], 3, rng=Random(1))
