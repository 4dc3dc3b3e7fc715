"""Offsets as spark-sql-kafka has them: JSON, divisions, limits."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.spark.offsets import (
    ReadRange,
    created_again,
    id_text,
    limit_offsets,
    offsets_as_json,
    parse_offsets,
    parse_partitions,
    split,
    topic_ids,
)
from kafkaclient.types import TopicPartition

TP = TopicPartition
numbers = st.integers(0, 2**40)
ranges = st.lists(
    st.builds(
        lambda partition, start, size: ReadRange("t", partition, start, start + size),
        st.integers(0, 50),
        numbers,
        st.integers(0, 10_000),
    ),
    max_size=8,
    unique_by=lambda each: each.partition,
)


def test_json_round_trip() -> None:
    text = '{"b":{"10":-1,"2":7},"a":{"0":-2}}'
    offsets = parse_offsets(text)
    assert offsets == {TP("b", 10): -1, TP("b", 2): 7, TP("a", 0): -2}
    # In order of numbers: Spark compares the text.
    assert json.dumps(offsets_as_json(offsets)) == '{"a": {"0": -2}, "b": {"2": 7, "10": -1}}'


def test_ids_beside_the_offsets() -> None:
    ids = {"a": id_text(UUID(int=1)), "other": id_text(UUID(int=2))}
    found = offsets_as_json({TP("a", 0): 3, TP("b", 0): 4}, ids)
    text = '{"a": {"0": 3}, "b": {"0": 4}, "@topicIds": {"a": "AAAAAAAAAAAAAAAAAAAAAQ"}}'
    assert json.dumps(found) == text
    assert parse_offsets(text) == {TP("a", 0): 3, TP("b", 0): 4}
    assert topic_ids(found) == {"a": ids["a"]}
    assert topic_ids({"a": {"0": 3}}) == topic_ids(None) == {}
    assert created_again(topic_ids(found), {"a": "another", "b": "new"}) == {"a"}
    assert created_again({}, ids) == created_again(ids, ids) == set()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "not JSON"),
        ("[1]", "give"),
        ("{}", "give"),
        ('{"t": 1}', "topic t has 1"),
        ('{"t": {"one": 1}}', "'one'"),
        ('{"t": {"1": -3}}', "t-1 has -3"),
        ('{"t": {"1": true}}', "t-1 has True"),
    ],
)
def test_invalid_offsets(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_offsets(text)


def test_assigned_partitions() -> None:
    assert parse_partitions('{"b": [1, 0], "a": [2]}') == (TP("a", 2), TP("b", 0), TP("b", 1))
    for text in ('{"t": 1}', '{"t": [-1]}', '{"t": ["1"]}', "[]"):
        with pytest.raises(ValueError, match=r"give|instead"):
            parse_partitions(text)


def test_split_as_spark_does() -> None:
    """The cases of KafkaOffsetRangeCalculatorSuite."""

    def sizes(given: dict[int, int], least: int | None, most: int | None = None) -> list[int]:
        whole = [ReadRange("t", n, 0, size) for n, size in given.items()]
        return [each.size for each in split(whole, least, most)]

    assert sizes({1: 1, 2: 0}, 3) == [1]
    assert sizes({1: 5}, 4) == [1, 1, 1, 2]
    assert sizes({1: 1, 2: 1, 3: 1}, 2) == [1, 1, 1]
    assert sizes({1: 2, 2: 1}, 3) == [1, 1, 1]
    assert sizes({1: 10, 2: 10_000}, 3) == [10, 5000, 5000]
    assert sizes({1: 100, 2: 10_000}, 6)[0] == 100
    assert sizes({1: 50}, None, 20) == [16, 17, 17]
    assert sizes({1: 50}, 1, 50) == [50]


@given(ranges, st.none() | st.integers(1, 60), st.none() | st.integers(1, 5000))
def test_a_split_reads_each_offset_once(
    whole: list[ReadRange], least: int | None, most: int | None
) -> None:
    pieces = split(whole, least, most)
    for each in whole:
        place = each.start
        for piece in pieces:
            if piece.partition == each.partition:
                assert piece.start == place
                assert piece.size > 0
                place = piece.end
        assert place == (each.end if each.size else each.start)
    if most is not None:
        assert all(piece.size <= most for piece in pieces)


@given(ranges, st.integers(1, 20_000))
def test_a_limit_starves_no_partition(whole: list[ReadRange], most: int) -> None:
    start = {each.topic_partition: each.start for each in whole}
    end = {each.topic_partition: each.end for each in whole}
    until = limit_offsets(start, end, most)
    taken = {tp: until[tp] - start[tp] for tp in until}
    assert all(start[tp] <= until[tp] <= end[tp] for tp in end)
    assert all(taken[tp] > 0 for tp in end if end[tp] > start[tp])
    assert sum(taken.values()) <= max(most, 0) + len(whole)
    total = sum(each.size for each in whole)
    if total <= most:
        assert until == end


def test_a_partition_that_got_shorter_keeps_its_end() -> None:
    assert limit_offsets({TP("t", 0): 9, TP("t", 1): 0}, {TP("t", 0): 5, TP("t", 1): 100}, 10) == {
        TP("t", 0): 5,
        TP("t", 1): 10,
    }
