"""The seam: how partitioners are asked, on an accumulator on the bench."""

from __future__ import annotations

from asyncio import CancelledError
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.cluster.view import ClusterView
from kafkaclient.errors import PartitionerError
from kafkaclient.producer.accumulator.partition_strategies import CustomPartitioner
from kafkaclient.producer.partitioning.partitioners import RoundRobinPartitioner, StickyPartitioner
from kafkaclient.wire.records import BATCH_OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.producer.support import Bench


LOAD: Any = object()


@pytest.fixture
def by_policy(bench: type[Bench]) -> Callable[..., Any]:
    """A bench whose topic asks the partitioner."""

    def make(partitioner: Any, leaders: tuple[int, ...] = (0, 0, 1), **settings: Any) -> Any:
        b = bench(leaders, **settings)

        class Metadata:
            @property
            def view(self) -> ClusterView:
                return ClusterView(topics={"test": b.topic.view})

        metadata: Any = Metadata()
        b.topic.strategy = CustomPartitioner(b.topic, partitioner, metadata, LOAD)
        return b

    return make


def batches(b: Any) -> dict[int, int]:
    """How many batches wait, by partition."""
    return {p: len(queue.batches) for p, queue in b.topic.queues.items() if queue.batches}


class Notes:
    """A partitioner that notes what it is asked; ``answers`` in turn, the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Any, ...]] = []

    def partition(self, *question: Any) -> Any:
        self.asked.append(question)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


class BatchNotes(Notes):
    told: list[Any]
    trouble: Exception | None = None

    def on_new_batch(self, topic: str, cluster: ClusterView, previous: int) -> None:
        self.told = [*getattr(self, "told", []), (topic, cluster, previous)]
        if self.trouble is not None:
            raise self.trouble


def test_sticky_batches(by_policy: Any) -> None:
    """RecordAccumulatorTest.testStickyBatches: 83 records fill one batch, then one elsewhere."""
    counter = iter(range(1000))
    b = by_policy(
        StickyPartitioner(counter.__next__), batch_size=1025 + BATCH_OVERHEAD, linger=0.010
    )
    for _ in range(83):
        b.put()
        assert sum(batches(b).values()) == 1
        assert not b.ready(), "no partition is ready"
    (first,) = batches(b)
    b.put()
    assert b.ready() == {b.leaders[first]}, "the first batch is full"
    assert len(batches(b)) == 2
    for _ in range(82):
        b.put()
        assert sum(batches(b).values()) == 2, "the new partition is sticky, too"
    (second,) = set(batches(b)) - {first}
    assert b.queue(second).batches[0].count == 83
    assert len(b.queue(second).batches) == 1
    b.put()
    assert sum(batches(b).values()) == 3


def test_the_first_pick_is_given_up(by_policy: Any) -> None:
    """KIP-480: the first record finds no batch, so the partitioner moves on before it is used."""
    b = by_policy(StickyPartitioner(lambda: 0))
    b.put()
    assert batches(b) == {1: 1}


def test_batches_bound_by_a_partitioner_do_not_grow_beyond_their_size(by_policy: Any) -> None:
    b = by_policy(Notes(1), batch_size=200, elastic_limit=10_000, linger=1.0)
    for _ in range(10):
        b.put(value=bytes(50))
    assert batches(b) == {1: 5}


def test_a_partitioner_is_asked_once_per_record_and_shown_everything(by_policy: Any) -> None:
    mine = Notes(2, 1, 1, 0)
    b = by_policy(mine, linger=1.0)
    b.put(key=b"key", value=b"a")
    b.put(value=b"b")
    b.put(value=None)
    b.put(0)  # an explicit partition is not its business
    assert [q[:3] for q in mine.asked] == [
        ("test", b"key", b"a"),
        ("test", None, b"b"),
        ("test", None, None),
    ]
    assert all(q[3].topics["test"] is b.topic.view and q[4] is LOAD for q in mine.asked)
    assert batches(b) == {2: 1, 1: 1, 0: 1}


def test_one_that_minds_batches_is_asked_again_for_each_new_one(by_policy: Any) -> None:
    mine = BatchNotes(2, 1, 1, 2, 0)
    b = by_policy(mine, linger=1.0)
    b.put()  # 2 would be new: asked again, 1
    b.put()  # 1 has room
    b.put()  # 2 is still new: 0
    assert [told[::2] for told in mine.told] == [("test", 2), ("test", 2)]
    assert len(mine.asked) == 5
    assert batches(b) == {1: 1, 0: 1}
    assert b.queue(1).batches[0].count == 2


@pytest.mark.parametrize("partitions", [5, 6])
@pytest.mark.parametrize("awaited", [True, False])
def test_round_robin_uses_every_partition(by_policy: Any, partitions: int, awaited: bool) -> None:
    """KAFKA-9965: asked twice per new batch, Java left out every second of an even number."""
    b = by_policy(RoundRobinPartitioner(), leaders=(0,) * partitions)
    seen = [0] * partitions
    for _ in range(60):
        delivery = b.put()
        seen[delivery._batch_result.partition] += 1
        if awaited:
            for batch in b.drain():
                b.incomplete.complete(batch, 0, -1, 0.0)
    assert seen == [60 // partitions] * partitions


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (3, "gave 3, not one of the partitions 0 to 2"),
        (-1, "gave -1, not one of the partitions 0 to 2"),
        (None, "gave a NoneType, not an int"),
        ("1", "gave a str, not an int"),
        (1.0, "gave a float, not an int"),
        (True, "gave a bool, not an int"),
        (ZeroDivisionError("oh"), "raised ZeroDivisionError('oh')"),
        (CancelledError("oh"), "raised CancelledError('oh')"),
    ],
)
def test_a_bad_answer_refuses_the_record_and_nothing_else(
    by_policy: Any, answer: Any, told: str
) -> None:
    b = by_policy(Notes(1, answer, 1), linger=1.0)
    b.put()
    used = b.used
    with pytest.raises(PartitionerError) as caught:
        b.put()
    assert str(caught.value) == (
        f"a record for topic 'test' was not sent: the partitioner Notes {told}"
    )
    cause = caught.value.__cause__
    assert cause is (answer if isinstance(answer, BaseException) else None)
    assert b.used == used
    b.put()
    assert batches(b) == {1: 1}
    assert b.queue(1).batches[0].count == 2


def test_a_failure_after_a_new_batch_refuses_the_record_and_nothing_else(by_policy: Any) -> None:
    mine = BatchNotes(1, 1, 2, 9, 1)
    b = by_policy(mine, linger=1.0)
    b.put()
    with pytest.raises(PartitionerError, match="gave 9"):
        b.put()
    mine.trouble = ValueError("no more")
    mine.answers = [2]
    with pytest.raises(PartitionerError, match=r"raised ValueError\('no more'\) in on_new_batch"):
        b.put()
    mine.trouble = None
    b.put(1)
    assert batches(b) == {1: 1}
    assert b.queue(1).batches[0].count == 2


def test_ints_of_other_libraries_are_ints(by_policy: Any) -> None:
    class Int64:
        def __index__(self) -> int:
            return 2

    b = by_policy(Notes(Int64()))
    b.put()
    assert batches(b) == {2: 1}


def test_a_partitioner_may_send_by_itself(by_policy: Any) -> None:
    """It is the application's code, and may well log to Kafka."""

    class Talkative:
        depth = 0

        def partition(self, *_: Any) -> int:
            if not self.depth:
                self.depth = 1
                b.put(value=b"inner")
                self.depth = 0
            return 1

        def on_new_batch(self, *_: Any) -> None:
            b.put(1, b"told")

    b = by_policy(Talkative(), linger=1.0)
    b.put(value=b"outer")
    assert sum(batch.count for q in b.topic.queues.values() for batch in q.batches) == 3
