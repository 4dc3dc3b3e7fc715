"""Which partition a batch is bound to: a pure decision over a survey of the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkaclient.cluster.view import PartitionView, TopicView
from kafkaclient.producer.sender.broker_lanes import BrokerSurvey
from kafkaclient.producer.settings import NEVER

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkaclient.producer.sender.batch_drainer import Requests
    from tests.producer.support import Bench


def survey(
    free: Collection[int],
    sound: Collection[int] | None = None,
    overdue: Collection[int] = (),
    pressed: Collection[int] = (),
    latencies: dict[int, float] | None = None,
) -> BrokerSurvey:
    connection: Any = None  # nothing is sent here
    sound = free if sound is None else sound
    available = dict.fromkeys(free, connection)
    return BrokerSurvey(
        available, pressed, set(sound), set(overdue), NEVER, expected_latency=latencies
    )


@pytest.fixture
def late(bench: type[Bench]) -> Any:
    def made(*leaders: int, **settings: Any) -> Any:
        b = bench(leaders, late=True, **settings)
        b.accumulator.update_topic(b.view(), 0.0)
        return b

    return made


def bind(b: Any, found: BrokerSurvey, max_bytes: int = 1 << 20) -> Requests:
    return b.binder.drain(found, max_bytes, 0.0)


def test_a_free_broker_gets_the_batch(late: Any) -> None:
    b = late(0, 1, 2)
    b.put()
    requests = bind(b, survey([2]))
    assert {node: [batch.queue.partition for batch in got] for node, got in requests.items()} == {
        2: [2]
    }
    assert not b.topic.unbound.batches


def test_of_the_free_brokers_one_that_answers_soon_gets_the_batch(late: Any) -> None:
    b = late(0, 1, 2)
    given = []
    for _ in range(4):
        b.put()
        given += bind(b, survey([0, 1, 2], latencies={0: 0.02, 1: 0.003, 2: 0.006, 7: 0.0}))
    assert sorted(given) == [1, 1, 2, 2], "within 1.5 times the best, and 2 ms, they are alike"


def test_a_soon_answering_broker_that_may_take_nothing_is_not_waited_for(late: Any) -> None:
    b = late(0, 1)
    b.put()
    bind(b, survey([0], latencies={0: 0.02}))
    b.put()
    assert list(bind(b, survey([0, 1], latencies={0: 0.02, 1: 0.001}))) == [1]


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


@pytest.mark.parametrize("others", [(1, 2), ()])
def test_a_broker_that_fills_the_buffer_gets_nothing_that_others_can_take(
    late: Any, others: tuple[int, ...]
) -> None:
    b = late(0, *others)
    pool = b.accumulator.buffer_pool
    b.put()
    pool.shares.of(0).held = pool.total - 100
    pool.shares.of(7)
    pool.force(pool.total - 100)
    assert list(bind(b, survey([0], sound=(0, *others)))) == ([] if others else [0])
    if others:
        assert list(bind(b, survey([0, 2]))) == [2]


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
    b.lines.schedule(b.topic.unbound, 0.0, had_turn=True)
    [first] = b.put_batches(0, 1)
    b.lines.schedule(b.topic.unbound, 0.0, had_turn=True)  # its turn is after that of the partition
    assert bind(b, survey([0]), batch.size)[0] == [first]
    assert bind(b, survey([0]), batch.size // 2)[0] == [batch], "alone it may be larger"


def partitions(requests: Requests) -> dict[int, list[int]]:
    return {n: [batch.queue.partition for batch in batches] for n, batches in requests.items()}


# --- turns ------------------------------------------------------------------------------------


def test_who_is_ready_first_goes_first(late: Any) -> None:
    """A topic's only partition at a broker takes one batch in each request."""
    b = late(0)
    b.leaders = [0, -1]  # with one partition, records without key are bound at once
    b.epochs = [1, 1]
    b.accumulator.update_topic(b.view(), 0.0)
    (keyed,) = b.put_batches(0)
    b.put()
    (unkeyed,) = b.topic.unbound.batches
    (later,) = b.put_batches(0)
    requests = [bind(b, survey([0]))[0] for _ in range(3)]
    assert requests == [[keyed], [unkeyed], [later]]


def test_a_full_window_is_for_the_batch_that_must_go_there(late: Any) -> None:
    b = late(0, 0)
    (keyed,) = b.put_batches(0)
    b.put()
    assert bind(b, survey([0], pressed=[0])) == {0: [keyed]}
    assert len(b.topic.unbound.batches) == 1


def test_an_older_batch_goes_along_beyond_a_full_window(late: Any) -> None:
    b = late(0, 0)
    b.topic.fair_share.add(0, 1)  # so that partition 1 is furthest behind
    b.put()
    (unkeyed,) = b.topic.unbound.batches
    (keyed,) = b.put_batches(0)
    assert bind(b, survey([0], pressed=[0])) == {0: [unkeyed, keyed]}
    assert unkeyed.queue.partition == 1


def test_an_older_batch_prefers_a_broker_with_its_window_open(late: Any) -> None:
    b = late(0, 0, 1)
    b.put()
    b.put_batches(0)
    assert partitions(bind(b, survey([0, 1], pressed=[0]))) == {0: [0], 1: [2]}


def test_it_does_not_go_along_with_a_batch_that_is_set_aside(late: Any) -> None:
    """Such a batch need not go there either."""
    b = late(0, 0)
    b.put()
    (batch,) = b.put_batches(0)
    batch.bind(batch.queue, rebindable=True)
    assert partitions(bind(b, survey([0], pressed=[0]))) == {0: [0]}


# --- leaders that change ------------------------------------------------------------------------


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
    bench: type[Bench], leaders: list[int], rounds: list[tuple[int, set[int], set[int], set[int]]]
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
        allowed = found.eligible if led & sound else found.last_resort
        for node, batches in requests.items():
            assert node in free
            assert node in allowed
            assert len({batch.queue for batch in batches}) == len(batches)
            for batch in batches:
                assert leaders[batch.queue.partition] == node
                assert batch.result.partition == batch.queue.partition
                bound += batch.count
                b.incomplete.complete(batch, 0, -1, 0.0)
        waiting = sum(batch.count for batch in b.topic.unbound.batches)
        assert bound + waiting == put
        if waiting:
            assert not (led & free & set(allowed)), "somebody could have taken it"


# --- cost -------------------------------------------------------------------------------------


@pytest.fixture
def many(late: Any) -> Any:
    """That many topics with a ready batch each, in the order of their names."""

    def made(topics: int, **settings: Any) -> Any:
        b = late(0, **settings)
        for n in range(topics):
            b.topic = b.accumulator.topic(f"t{n:03}")
            view = TopicView(b.topic.name, None, (PartitionView(0, 0), PartitionView(1, 1)))
            b.accumulator.update_topic(view, 0.0)
            b.put(value=bytes(1000))
        return b

    return made


def names(queues: Any) -> list[str]:
    return [queue.topic.name for queue in queues]


def test_topics_that_find_no_room_keep_their_turns(many: Any) -> None:
    b = many(100)
    requests = bind(b, survey([0]), max_bytes=5000)
    assert names(batch.queue for batch in requests[0]) == ["t000", "t001", "t002", "t003"]
    assert names(b.lines.unbound) == [f"t{n:03}" for n in range(4, 100)], "the oldest stay first"


def test_a_request_that_is_full_is_not_overtaken_by_later_ones(many: Any) -> None:
    b = many(3)
    b.topic = b.accumulator.topic("t001")
    for _ in range(4):
        b.put(value=bytes(1000))
    requests = bind(b, survey([0]), max_bytes=4000)
    assert names(batch.queue for batch in requests[0]) == ["t000"]
    assert names(b.lines.unbound) == ["t001", "t002"]


def test_nothing_is_looked_at_before_there_is_a_producer_id(late: Any) -> None:
    b = late(*[n % 3 for n in range(1000)], idempotent=True)
    b.identity.assign(-1, -1)
    b.put()
    assert bind(b, survey([0, 1, 2])) == {}
    assert not b.topic.queues
    b.identity.assign(1, 0)
    assert len(bind(b, survey([0, 1, 2]))) == 1
    assert len(b.topic.queues) == 1


def test_queues_are_made_for_the_partitions_that_get_something(late: Any) -> None:
    b = late(*[n % 3 for n in range(1000)])
    for n in range(20):
        b.put()
        bind(b, survey([n % 3]))
    assert len(b.topic.queues) == 20
