"""Which records of a slice went to which batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import BufferFullError
from kafkaclient.perf.slices import Slice
from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.batches.delivery import delivery_for_last

if TYPE_CHECKING:
    from kafkaclient.perf.traffic import KeyValue


class Sender:
    """Puts the records with key ``a`` in one batch and the others in another, of ``most`` records;
    refuses record number ``full_at``."""

    def __init__(self, most: int = 1000, full_at: int = -1) -> None:
        self._most = most
        self._open: dict[bool, Any] = {}
        self.batches: list[Any] = []
        self.full_at = full_at
        self.calls = 0

    def send_nowait(self, topic: str, value: bytes, key: bytes | None) -> Any:
        if self.calls == self.full_at:
            raise BufferFullError("full")
        self.calls += 1
        batch = self._open.get(key == b"a")
        if batch is None or batch.count == self._most:
            batch = self._open[key == b"a"] = BatchResult(topic)
            self.batches.append(batch)
        batch.count += 1
        return delivery_for_last(batch, 0)


def runs(given: Any) -> list[tuple[int, int, int]]:
    """(first record in its batch, count, bytes) of each run."""
    return [(run.last._index - run.count + 1, run.count, run.nbytes) for run in given.runs.values()]


def test_records_of_a_batch_make_one_run() -> None:
    sender = Sender(most=40)
    records: list[KeyValue] = [(None, b"v" * 10)] * 30
    for expected in ([(0, 30, 300)], [(30, 10, 100), (0, 20, 200)]):
        given = Slice()
        given.hand_over(sender.send_nowait, "t", records)
        assert given.taken == 30
        assert runs(given) == expected
        assert list(given.runs) == sender.batches[: len(expected)][-len(expected) :]


def test_keyed_records_of_two_batches_make_two_runs() -> None:
    given = Slice()
    given.hand_over(Sender().send_nowait, "t", [(b"a", b"vv"), (b"bcd", b"v"), (b"a", b"")])
    assert runs(given) == [(0, 2, 4), (0, 1, 4)]


def test_a_run_stands_for_its_records_until_it_is_dropped() -> None:
    sender, given = Sender(), Slice()
    given.hand_over(sender.send_nowait, "t", [(None, b"v")] * 10)
    (batch,) = sender.batches
    assert batch.live_deliveries == 10
    unseen: list[int] = []
    batch.on_unseen = lambda _batch, _error, count: unseen.append(count)
    batch.fail(BufferFullError("lost"))
    assert unseen == []


def test_a_record_that_is_refused_is_not_taken_and_can_be_left_out() -> None:
    sender, given = Sender(full_at=3), Slice()
    records: list[KeyValue] = [(None, b"%d" % n) for n in range(10)]
    with pytest.raises(BufferFullError):
        given.hand_over(sender.send_nowait, "t", records)
    assert given.taken == 3
    assert runs(given) == [(0, 3, 3)]
    sender.full_at = -1
    given.taken += 1
    given.hand_over(sender.send_nowait, "t", records)
    assert given.taken == 10
    assert runs(given) == [(0, 9, 9)]
