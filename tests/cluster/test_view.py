"""Merging answers and hints: never back to an older epoch, never half a topic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.cluster.identity import impossible, merge, with_leaders
from kafkaclient.cluster.view import (
    Broker,
    ClusterView,
    LeaderHint,
    PartitionView,
    TopicView,
)
from kafkaclient.wire.api import BrokerInfo, MetadataResult, TopicInfo

BROKERS = (BrokerInfo(0, "b0", 9092, None), BrokerInfo(1, "b1", 9092, "r1"))


def _info(
    name: str, *partitions: tuple[int, int], topic_id: int | None = 1, error: int = 0
) -> TopicInfo:
    """Partitions as (leader, epoch)."""
    return TopicInfo(
        name,
        error,
        None if topic_id is None else UUID(int=topic_id),
        False,
        tuple(
            PartitionView(n, leader, epoch, (leader,), (leader,))
            for n, (leader, epoch) in enumerate(partitions)
        ),
    )


def _result(*topics: TopicInfo, brokers: tuple[BrokerInfo, ...] = BROKERS) -> MetadataResult:
    return MetadataResult(brokers, "c", 0, topics, 0)


def _view(*topics: TopicInfo) -> ClusterView:
    return merge(ClusterView(), _result(*topics), now=1.0)


def test_an_answer_becomes_a_view() -> None:
    view = _view(_info("t", (0, 5), (-1, 6), (7, 0)))
    assert view.brokers == {0: Broker(0, "b0", 9092), 1: Broker(1, "b1", 9092, "r1")}
    assert (view.cluster_id, view.controller_id, view.fetched_at) == ("c", 0, 1.0)
    topic = view.topics["t"]
    assert topic.partition_count == 3
    assert topic.available == (0, 2)
    assert topic.partitions[0] == PartitionView(0, 0, 5, (0,), (0,))
    assert view.leader("t", 0) == Broker(0, "b0", 9092)
    assert view.leader("t", 1) is None
    assert view.leader("t", 2) is None  # a leader that is not among the brokers
    assert view.leader("t", 3) is None
    assert view.leader("u", 0) is None


def test_a_partial_answer_keeps_the_other_topics() -> None:
    view = merge(_view(_info("a", (0, 0)), _info("b", (0, 0))), _result(_info("b", (1, 1))), now=2)
    assert view.topics["a"].partitions[0].leader == 0
    assert view.topics["b"].partitions[0].leader == 1


def test_only_topics_in_use_are_kept() -> None:
    old = _view(_info("a", (0, 0)), _info("b", (0, 0)))
    view = merge(old, _result(_info("c", (1, 1))), now=2, keep={"b"})
    assert set(view.topics) == {"b"}


def test_an_error_leaves_the_topic_as_it_was() -> None:
    old = _view(_info("a", (0, 0)))
    for error in (3, 5, 29):
        assert merge(old, _result(_info("a", error=error)), now=2).topics == old.topics


def test_an_older_epoch_is_not_believed() -> None:
    old = _view(_info("t", (0, 5), (0, 5)))
    topic = merge(old, _result(_info("t", (1, 4), (1, 6))), now=2).topics["t"]
    assert [p.leader for p in topic.partitions] == [0, 1]
    assert [p.leader_epoch for p in topic.partitions] == [5, 6]


def test_the_same_epoch_may_lose_its_leader() -> None:
    old = _view(_info("t", (0, 5)))
    assert merge(old, _result(_info("t", (-1, 5))), now=2).topics["t"].available == ()


def test_a_broker_without_epochs_is_believed_but_the_floor_stays() -> None:
    old = _view(_info("t", (0, 5)))
    (partition,) = (
        merge(old, _result(_info("t", (1, -1), topic_id=None)), now=2).topics["t"].partitions
    )
    assert (partition.leader, partition.leader_epoch) == (1, 5)


def test_a_topic_that_was_created_again_replaces_the_old_one() -> None:
    old = _view(_info("t", (0, 5), (0, 5), topic_id=1))
    topic = merge(old, _result(_info("t", (1, 0), topic_id=2)), now=2).topics["t"]
    assert topic.topic_id == UUID(int=2)
    assert topic.partitions == (PartitionView(0, 1, 0, (1,), (1,)),)


def test_a_lagging_broker_does_not_bring_the_old_topic_back() -> None:
    """KIP-516: an id is not given twice."""
    old = _view(_info("t", (0, 5), topic_id=1))
    new = merge(old, _result(_info("t", (1, 0), topic_id=2)), now=2)
    assert new.topics["t"].former_ids == (UUID(int=1),)
    assert merge(new, _result(_info("t", (0, 6), topic_id=1)), now=3).topics == new.topics
    newest = merge(new, _result(_info("t", (1, 0), topic_id=3)), now=4)
    assert newest.topics["t"].former_ids == (UUID(int=1), UUID(int=2))
    for stale in (1, 2):
        assert merge(newest, _result(_info("t", (0, 9), topic_id=stale)), now=5).topics == (
            newest.topics
        )
    hinted = with_leaders(newest, [LeaderHint("t", 0, 0, 7)])
    assert hinted.topics["t"].former_ids == newest.topics["t"].former_ids


def test_a_cluster_that_was_switched_back_is_believed() -> None:
    """Behind the same address: its topics have the ids that they had before."""

    def of(cluster: str, topic_id: int) -> MetadataResult:
        return replace(_result(_info("t", (0, 1), topic_id=topic_id)), cluster_id=cluster)

    view = ClusterView()
    for cluster, topic_id in [("east", 1), ("west", 2), ("east", 1), ("east", 1), ("west", 2)]:
        view = merge(view, of(cluster, topic_id), now=1)
        assert view.topics["t"].topic_id == UUID(int=topic_id)
        assert UUID(int=topic_id) not in view.topics["t"].former_ids


def test_former_ids_are_bounded() -> None:
    view = ClusterView()
    for topic_id in range(1, 100):
        view = merge(view, _result(_info("t", (0, 1), topic_id=topic_id)), now=1)
    assert len(view.topics["t"].former_ids) < 20


def test_a_lagging_broker_takes_no_partitions_away() -> None:
    old = _view(_info("t", (0, 5), (0, 5)))
    assert merge(old, _result(_info("t", (0, 5))), now=2).topics["t"] is old.topics["t"]


def test_partitions_in_any_order_and_with_gaps() -> None:
    info = _info("t", (0, 1), (1, 1), (0, 1))
    shuffled = TopicInfo("t", 0, info.topic_id, False, (info.partitions[2], info.partitions[0]))
    topic = _view(shuffled).topics["t"]
    assert [p.partition for p in topic.partitions] == [0, 1, 2]
    assert topic.available == (0, 2)


_partition = st.tuples(st.integers(-1, 3), st.integers(-1, 5))
_answers = st.lists(
    st.tuples(st.lists(_partition, min_size=1, max_size=4), st.sampled_from([1, 1, 1, 2])),
    max_size=12,
)


@given(_answers)
def test_epochs_and_partition_counts_never_go_back(answers: Any) -> None:
    view = ClusterView()
    for partitions, topic_id in answers:
        before = view.topics.get("t")
        view = merge(view, _result(_info("t", *partitions, topic_id=topic_id)), now=0)
        after = view.topics["t"]
        assert [p.partition for p in after.partitions] == list(range(after.partition_count))
        assert after.available == tuple(p.partition for p in after.partitions if p.leader >= 0)
        if before is not None and before.topic_id == after.topic_id:
            assert after.partition_count >= before.partition_count
            for old, new in zip(before.partitions, after.partitions, strict=False):
                assert new.leader_epoch >= old.leader_epoch


@given(_answers)
def test_merging_the_same_answer_twice_changes_nothing(answers: Any) -> None:
    view = ClusterView()
    for partitions, topic_id in answers:
        result, equal = (
            _result(_info("t", *partitions, topic_id=topic_id)) for _ in ("once", "once more")
        )
        view = merge(view, result, now=0)
        for answer in (result, equal):
            again = merge(view, answer, now=0)
            assert again == view
            assert again.topics["t"] is view.topics["t"]


_hints = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 6)), max_size=3)


@given(_answers, st.lists(_hints, max_size=12))
def test_knowing_an_answer_again_is_as_good_as_reading_it_again(answers: Any, hints: Any) -> None:
    """The codec gives a topic that is told once more as the same object, which is taken for no
    news; whatever happened to the view meanwhile."""
    known: dict[Any, MetadataResult] = {}
    view = read = ClusterView()
    for n, (partitions, topic_id) in enumerate(answers):
        result = _result(_info("t", *partitions, topic_id=topic_id))
        view = merge(view, known.setdefault((tuple(partitions), topic_id), result), now=0)
        read = merge(read, result, now=0)
        assert view == read
        told = [LeaderHint("t", *hint) for hint in (hints[n] if n < len(hints) else ())]
        view, read = with_leaders(view, told), with_leaders(read, told)
        assert view == read


def test_a_partition_that_has_not_changed_stays_the_same_object() -> None:
    old = _view(_info("t", (0, 1), (1, 1), (0, 1)), _info("u", (0, 1)))
    answer = _result(_info("t", (0, 1), (0, 2), (0, 1), (1, 1)), _info("u", (0, 1)))
    new = merge(old, answer, now=2)
    same = [
        a is b for a, b in zip(old.topics["t"].partitions, new.topics["t"].partitions, strict=False)
    ]
    assert same == [True, False, True]
    assert new.topics["t"].partition_count == 4
    assert new.topics["u"] is old.topics["u"]


# --- hints ----------------------------------------------------------------------------------


def test_a_newer_hint_moves_the_leader() -> None:
    view = _view(_info("t", (0, 5), (0, 5)))
    new = with_leaders(view, [LeaderHint("t", 1, 1, 6)])
    assert [p.leader for p in new.topics["t"].partitions] == [0, 1]
    assert new.topics["t"].partitions[1].replicas == (0,)
    assert view.topics["t"].partitions[1].leader == 0


def test_a_hint_brings_its_brokers_address() -> None:
    view = _view(_info("t", (0, 5)))
    new = with_leaders(view, [LeaderHint("t", 0, 9, 6)], [BrokerInfo(9, "b9", 9092, None)])
    assert new.leader("t", 0) == Broker(9, "b9", 9092)


def test_hints_for_one_topic_are_taken_up_together() -> None:
    view = _view(_info("t", (0, 5), (0, 5), (0, 5)), _info("u", (0, 1)))
    hints = [LeaderHint("t", 0, 1, 6), LeaderHint("t", 2, 1, 7), LeaderHint("t", 2, 0, 6)]
    new = with_leaders(view, hints)
    told = [(p.leader, p.leader_epoch) for p in new.topics["t"].partitions]
    assert told == [(1, 6), (0, 5), (1, 7)]
    assert new.topics["t"].leaders == {0, 1}
    assert new.topics["u"] is view.topics["u"]


def test_what_is_no_news_changes_nothing() -> None:
    view = _view(_info("t", (0, 5)))
    for hint in (
        LeaderHint("t", 0, 1, 5),
        LeaderHint("t", 0, 1, 4),
        LeaderHint("t", 0, 9, 6),  # broker 9 is unknown
        LeaderHint("t", 1, 1, 6),
        LeaderHint("t", -1, 1, 6),
        LeaderHint("u", 0, 1, 6),
    ):
        assert with_leaders(view, [hint], [BrokerInfo(8, "b8", 1, None)]) is view
    assert with_leaders(view, []) is view


@given(st.lists(st.tuples(st.integers(-2, 3), st.integers(-1, 2), st.integers(-1, 6))))
def test_hints_never_take_an_epoch_back(hints: list[tuple[int, int, int]]) -> None:
    view = _view(_info("t", (0, 3), (1, 0)))
    new = with_leaders(view, [LeaderHint("t", *hint) for hint in hints])
    for old_partition, partition in zip(
        view.topics["t"].partitions, new.topics["t"].partitions, strict=True
    ):
        assert partition.leader_epoch >= old_partition.leader_epoch
        assert partition.leader in new.brokers


def test_a_topic_view_compares_by_what_was_told() -> None:
    assert TopicView("t", None, ()) == TopicView("t", None, ())


# --- partitions that cannot be ----------------------------------------------------------------


def _numbered(*numbers: int) -> TopicInfo:
    return TopicInfo("t", 0, UUID(int=1), False, tuple(PartitionView(n, 0, 5) for n in numbers))


@pytest.mark.parametrize(
    "numbers", [(), (-1,), (0, -1), (-(2**31),), (3_000_000,), (200_000_000, 0), (2**31 - 1,)]
)
def test_partitions_that_cannot_be_are_not_taken_up(numbers: tuple[int, ...]) -> None:
    """They would be no partition at all, or as many as there is memory for."""
    odd = _numbered(*numbers)
    assert impossible(odd)
    assert "t" not in _view(odd, _info("other", (0, 1))).topics
    assert "other" in _view(odd, _info("other", (0, 1))).topics, "what is beside it is"
    known = _view(_info("t", (0, 5), (1, 5)))
    assert merge(known, _result(odd), now=2.0).topics["t"] is known.topics["t"]


@pytest.mark.parametrize("numbers", [(0,), (1,), (0, 2, 1), (9_999,), tuple(range(5))])
def test_partitions_may_be_left_out_and_in_any_order(numbers: tuple[int, ...]) -> None:
    assert not impossible(_numbered(*numbers))
    topic = _view(_numbered(*numbers)).topics["t"]
    assert [p.partition for p in topic.partitions] == list(range(max(numbers) + 1))
    assert topic.available == tuple(sorted(numbers))


@given(st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 12), max_size=12))
def test_whatever_numbers_a_broker_tells(numbers: list[int]) -> None:
    topic = _view(_numbered(*numbers)).topics.get("t")
    if topic is not None:
        assert 1 <= topic.partition_count <= len(numbers) + 10_000
        assert [p.partition for p in topic.partitions] == list(range(topic.partition_count))
