"""Plans and their JSON. Upstream: the parse and generate tests of ReassignPartitionsUnitTest."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.admin.reassign.plan import (
    ReassignmentPlan,
    generate,
    parse_broker_list,
    parse_topics,
    with_replication_factor,
)
from kafkaclient.errors import BrokerError, ConfigError
from kafkaclient.types import TopicPartition

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


racks = st.sampled_from(["a", "b", "c"])


@given(
    st.dictionaries(st.integers(0, 8), racks, min_size=3, max_size=9),
    st.integers(1, 3),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_another_replication_factor_moves_nothing_that_stays(brokers, before, after, rng) -> None:
    present = {TopicPartition("t", n): tuple(rng.sample(sorted(brokers), before)) for n in range(6)}
    found = with_replication_factor(present, brokers, after)
    for partition, nodes in present.items():
        new = found[partition]
        assert len(new) == len(set(new)) == after
        assert set(new) <= set(nodes) or set(new) >= set(nodes)
        assert new[0] == nodes[0]
        used = {brokers[node] for node in new}
        if after > before and len(used) < len(set(brokers.values())):
            # A rack is left out only for those that were together in one before.
            assert len(used) >= len({brokers[node] for node in nodes}) + after - before


def test_a_replication_factor_that_brokers_do_not_suffice_for() -> None:
    with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR"):
        with_replication_factor(PRESENT, {0: None, 1: None}, 3)
