"""Which partition a batch is bound to: a pure decision over a survey of the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkaclient.producer.alarm import NEVER
from kafkaclient.producer.binder import Binder, Requests
from kafkaclient.producer.lanes import Survey

if TYPE_CHECKING:
    from collections.abc import Collection


def survey(
    free: Collection[int], sound: Collection[int] | None = None, overdue: Collection[int] = ()
) -> Survey:
    connection: Any = None  # nothing is sent here
    sound = free if sound is None else sound
    return Survey(dict.fromkeys(free, connection), (), set(sound), set(overdue), NEVER)


@pytest.fixture
def late(bench: Any) -> Any:
    def made(*leaders: int, **settings: Any) -> Any:
        b = bench(leaders, late=True, **settings)
        b.accumulator.update_topic(b.view(), 0.0)
        return b

    return made


def bind(b: Any, found: Survey, max_bytes: int = 1 << 20) -> Requests:
    requests: Requests = {}
    Binder(b.accumulator).bind(requests, found, max_bytes, 0.0)
    return requests


def test_a_free_broker_gets_the_batch(late: Any) -> None:
    b = late(0, 1, 2)
    b.put()
    requests = bind(b, survey([2]))
    assert {node: [batch.queue.partition for batch in got] for node, got in requests.items()} == {
        2: [2]
    }
    assert not b.topic.unbound.batches


def test_nobody_is_free(late: Any) -> None:
    b = late(0, 1)
    b.put()
    assert bind(b, survey([], sound=[0, 1])) == {}
    assert len(b.topic.unbound.batches) == 1


def test_an_overdue_broker_waits_for_the_others_unless_they_are_all_overdue(late: Any) -> None:
    b = late(0, 1)
    b.put()
    assert bind(b, survey([0], sound=[1], overdue=[0])) == {}, "broker 1 is busy, and in order"
    assert bind(b, survey([0], sound=[], overdue=[0, 1]))[0]


def test_a_broker_excluded_for_good_gets_nothing(late: Any) -> None:
    b = late(0, 1)
    b.put()
    assert bind(b, survey([0], sound=[], overdue=[])) == {}


def test_sound_brokers_of_other_topics_do_not_count(late: Any) -> None:
    b = late(0, 0)
    b.put()
    assert bind(b, survey([0], sound=[7], overdue=[0]))[0]


def test_a_retry_ahead_closes_a_partition(late: Any) -> None:
    b = late(0, 1)
    retried = b.put_batches(0, 1)[0]
    b.drain(0)
    b.incomplete.retry(retried, Exception("refused"), 5.0, 0.0)
    b.put()
    assert list(bind(b, survey([0, 1]))) == [1]


def test_what_does_not_fit_waits(late: Any) -> None:
    b = late(0, 0)
    for _ in range(40):
        b.put(value=bytes(100))
    batch = b.topic.unbound.batches[0]
    taken = b.put_batches(0, 1)
    requests: Requests = {0: b.drain(0)}
    assert requests[0] == taken
    Binder(b.accumulator).bind(requests, survey([0]), batch.size, 0.0)
    assert requests[0] == taken
    assert bind(b, survey([0]), batch.size // 2)[0] == [batch], "alone it may be larger"


def test_a_topic_made_anew_with_fewer_partitions_while_records_wait(late: Any) -> None:
    b = late(0, 1, 0, 1, 0, 1)
    b.put()
    b.leaders, b.epochs = [0, 1], [9, 9]
    b.accumulator.update_topic(b.view(), 0.0)
    requests = bind(b, survey([0, 1]))
    assert [batch.queue.partition for batches in requests.values() for batch in batches] in (
        [0],
        [1],
    )


def test_a_topic_that_grows_while_records_wait(late: Any) -> None:
    b = late(0, 1)
    b.put()
    b.leaders, b.epochs = [-1, -1, 2], [1, 1, 0]
    b.accumulator.update_topic(b.view(), 0.0)
    assert list(bind(b, survey([0, 1, 2]))) == [2]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # it is a class
@given(
    leaders=st.lists(st.integers(-1, 3), min_size=2, max_size=6),
    rounds=st.lists(
        st.tuples(
            st.integers(0, 4),
            st.sets(st.integers(0, 3)),
            st.sets(st.integers(0, 3)),
            st.sets(st.integers(0, 3)),
        ),
        max_size=12,
    ),
)
def test_every_bond_is_to_a_free_leader_that_is_allowed(
    bench: Any, leaders: list[int], rounds: list[tuple[int, set[int], set[int], set[int]]]
) -> None:
    """And what is put in is bound once, or still waits."""
    b = bench(leaders, late=True)
    b.accumulator.update_topic(b.view(), 0.0)
    put = bound = 0
    for records, free, sound, overdue in rounds:
        for _ in range(records):
            b.put()
        put += records
        found = survey(free, sound, overdue - sound)
        requests = bind(b, found)
        led = {leader for leader in leaders if leader >= 0}
        allowed = found.sound if led & sound else found.overdue
        for node, batches in requests.items():
            assert node in free
            assert node in allowed
            assert len({batch.queue for batch in batches}) == len(batches)
            for batch in batches:
                assert leaders[batch.queue.partition] == node
                assert batch.receipt.partition == batch.queue.partition
                bound += batch.count
                b.incomplete.complete(batch, 0, -1, 0.0)
        waiting = sum(batch.count for batch in b.topic.unbound.batches)
        assert bound + waiting == put
        if waiting:
            assert not (led & free & set(allowed)), "somebody could have taken it"
