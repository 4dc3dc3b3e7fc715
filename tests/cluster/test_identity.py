"""Each row of the tables in kafkaclient/cluster/identity.py that is about a topic, and that a view
agrees with its cluster soon after the last change, whatever lagging brokers answered before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.cluster.identity import (
    BELIEVED_AFTER_S,
    BELIEVED_ANSWERS,
    Identity,
    differs,
    merge,
    with_leaders,
)
from kafkaclient.cluster.view import ClusterView, LeaderHint
from kafkaclient.cluster.waits import Outages
from kafkaclient.wire.api import BrokerInfo, MetadataResult, PartitionView, TopicInfo

_LONGEST_PAUSE_S = 1.0  # retry.backoff.max.ms


class Topic(NamedTuple):
    """What a broker with current metadata answers about the topic."""

    cluster: str
    topic_id: int | None
    partitions: tuple[tuple[int, int], ...]  # leader and epoch


def _answer(topic: Topic, *, error: int = 0, brokers: int = 4) -> MetadataResult:
    infos = tuple(
        PartitionView(n, leader, epoch, (leader,), (leader,))
        for n, (leader, epoch) in enumerate(topic.partitions)
    )
    topic_id = None if topic.topic_id is None else UUID(int=topic.topic_id)
    return MetadataResult(
        tuple(BrokerInfo(n, f"b{n}", 9092, None) for n in range(brokers)),
        topic.cluster,
        0,
        (TopicInfo("t", 0, topic_id, False, infos),),
        0,
        error,
    )


def _view(*answers: tuple[float, Topic]) -> ClusterView:
    view = ClusterView()
    for at, topic in answers:
        view = merge(view, _answer(topic), now=at)
    return view


def _shown(view: ClusterView) -> Topic:
    topic = view.topics["t"]
    topic_id = None if topic.topic_id is None else topic.topic_id.int
    partitions = tuple((p.leader, p.leader_epoch) for p in topic.partitions)
    return Topic(view.cluster_id or "", topic_id, partitions)


OLD = Topic("X", 1, ((0, 5),))
NEW = Topic("X", 2, ((1, 0),))


def test_one_late_answer_with_an_unknown_id_does_not_stay() -> None:
    """The topic was created again before the client used it, and one broker lags."""
    view = _view((0, NEW), (1, OLD))
    assert _shown(view) == OLD, "an unknown id is taken for the newer one"
    for at in (1.1, 1.3, 3.0):
        view = merge(view, _answer(NEW), now=at)
        assert _shown(view) == OLD
        assert view.doubts["t"].since == 1.1
    view = merge(view, _answer(NEW), now=3.1)
    assert _shown(view) == NEW
    assert not view.doubts
    assert view.topics["t"].former_ids == (UUID(int=1),)


def test_answers_that_agree_with_the_view_end_the_doubt() -> None:
    view = _view((0, OLD), (1, NEW), *[(2 + n, OLD if n % 2 else NEW) for n in range(20)])
    assert _shown(view) == NEW


def test_it_takes_several_answers_and_some_time() -> None:
    quick = _view((0, OLD), (1, NEW), *[(1 + n / 100, OLD) for n in range(100)])
    assert _shown(quick) == NEW
    rare = _view((0, OLD), (1, NEW), *[(100 * n, OLD) for n in range(1, BELIEVED_ANSWERS)])
    assert _shown(rare) == NEW


def test_leader_epochs_that_start_over_without_topic_ids() -> None:
    """Kafka 2.4 to 2.7: a topic that was created again has no other id."""
    before, after = Topic("X", None, ((0, 8),)), Topic("X", None, ((1, 0),))
    view = _view((0, before), (1, after), (2, after))
    assert _shown(view) == before
    assert _shown(merge(view, _answer(after), now=3)) == after


def test_a_hint_of_the_deleted_topic_does_not_stay() -> None:
    view = with_leaders(_view((0, NEW)), [LeaderHint("t", 0, 3, 9)])
    assert _shown(view).partitions == ((3, 9),)
    for at in (1, 2, 3):
        view = merge(view, _answer(NEW), now=at)
    assert _shown(view) == NEW


def test_a_newer_epoch_is_taken_also_from_an_answer_that_looks_old() -> None:
    view = _view((0, Topic("X", 1, ((0, 5), (0, 5)))), (1, Topic("X", 1, ((1, 4), (2, 6)))))
    assert _shown(view).partitions == ((0, 5), (2, 6))
    assert view.doubts


def test_another_cluster_keeps_nothing() -> None:
    """Ids, epochs and hints mean nothing there, and there is nothing to doubt on the way back."""
    other = Topic("Y", 7, ((2, 0),))
    view = _view((0, OLD), (1, NEW), (2, OLD), (3, other))
    assert _shown(view) == other
    assert view.topics["t"].former_ids == ()
    assert not view.doubts
    assert _shown(merge(view, _answer(OLD), now=4)) == OLD
    assert _shown(merge(view, _answer(other._replace(topic_id=1)), now=4)).cluster == "Y"


def test_an_answer_without_cluster_id_is_of_the_same_cluster() -> None:
    assert differs("X", "Y")
    assert not differs(None, "Y")
    assert not differs("X", None)
    unnamed = replace(_answer(NEW), cluster_id=None)
    assert merge(_view((0, OLD)), unnamed, now=1).cluster_id == "X"


def test_answers_that_are_refused() -> None:
    identity = Identity(Outages(lambda: 0.0))
    identity.cluster_id = "X"
    refused = identity.problem(_answer(OLD, error=129), "broker 1", known=True)
    assert refused is not None
    assert refused.retriable
    assert "REBOOTSTRAP_REQUIRED" in str(refused)
    foreign = _answer(OLD._replace(cluster="Y"))
    assert "broker 1 is a broker of cluster 'Y'" in str(
        identity.problem(foreign, "broker 1", known=True)
    )
    assert identity.problem(foreign, "bootstrap server s:1", known=False) is None
    assert "no brokers" in str(identity.problem(_answer(OLD, brokers=0), "s", known=False))
    assert identity.problem(_answer(OLD), "broker 1", known=True) is None


# --- histories -----------------------------------------------------------------------------------

_change = st.sampled_from(["elect", "elect", "recreate", "grow", "move"])
_step = st.tuples(st.sampled_from(["change", "learn", "ask", "ask", "ask", "hint"]), st.integers(0))


@given(st.booleans(), st.lists(_step, max_size=60), st.data())
def test_a_view_agrees_soon_after_the_last_change(
    has_ids: bool, steps: list[tuple[str, int]], data: Any
) -> None:
    """Three brokers learn each change at their own time. ``move``: the names lead to the other
    cluster, which has changed meanwhile, or has not."""
    truth = Topic("X", 1 if has_ids else None, ((0, 3),))
    elsewhere = Topic("Y", 2 if has_ids else None, ((1, 7), (2, 7)))
    history, known, next_id, now = [truth], [0, 0, 0], 3, 0.0
    view = merge(ClusterView(), _answer(truth), now=now)
    for what, number in steps:
        now += data.draw(st.sampled_from([0.01, 0.1, 1.0, 5.0]))
        if what == "change":
            change = data.draw(_change)
            if change == "move":
                truth, elsewhere = elsewhere, truth
                history, known = [truth], [0, 0, 0]
            elif change == "recreate":
                count = 1 + number % 3
                truth = Topic(
                    truth.cluster, next_id if has_ids else None, ((number % 4, 0),) * count
                )
                next_id += 1
            elif change == "grow":
                truth = truth._replace(partitions=(*truth.partitions, (number % 4, 0)))
            else:
                at = number % len(truth.partitions)
                each = list(truth.partitions)
                each[at] = (number % 4, each[at][1] + 1)
                truth = truth._replace(partitions=tuple(each))
            if change != "move":
                history.append(truth)
        elif what == "learn":
            broker = number % 3
            known[broker] = min(known[broker] + 1 + number % 2, len(history) - 1)
        else:
            told = history[known[number % 3]]
            if what == "ask" or told.cluster != view.cluster_id:
                view = merge(view, _answer(told), now=now)
            else:
                hints = [LeaderHint("t", n, *each) for n, each in enumerate(told.partitions)]
                view = with_leaders(view, hints)
    agreed_at = now
    view = merge(view, _answer(truth), now=now)
    while view.doubts:  # as Metadata asks again
        now += _LONGEST_PAUSE_S
        view = merge(view, _answer(truth), now=now)
    assert now - agreed_at <= BELIEVED_AFTER_S + 2 * _LONGEST_PAUSE_S
    assert _shown(view) == truth
