"""Start and end of triggers, on the fake cluster. The tests call the reader as Spark does."""

from __future__ import annotations

import asyncio
import pickle
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    ReadMinRows,
)

from kafkaclient import Producer
from kafkaclient.errors import OffsetOutOfRangeError
from kafkaclient.spark import planning, stream
from kafkaclient.spark.group_progress import GroupProgress
from kafkaclient.spark.offsets import parse_offsets
from kafkaclient.spark.planning import Planner
from kafkaclient.spark.stream import KafkaStreamReader
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ALL = ReadAllAvailable()


@pytest.fixture
def opened(
    fake, options, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., KafkaStreamReader]]:
    monkeypatch.setattr(planning, "Planner", partial(Planner, dialer=fake))
    readers = []

    def make(**given: str) -> KafkaStreamReader:
        readers.append(KafkaStreamReader(options("streaming", **given)))
        return readers[-1]

    yield make
    for reader in readers:
        reader.stop()


class Offsets(dict[str, Any]):
    """Equal to offsets with and without the ids of their topics."""

    __hash__ = None

    def __or__(self, other: dict[str, Any]) -> Offsets:
        return Offsets({**self, **other})

    def __eq__(self, other: object) -> bool:
        return parse_offsets(self) == parse_offsets(other)


def at(*offsets: int) -> dict[str, Any]:
    return Offsets({"t": {str(number): offset for number, offset in enumerate(offsets)}})


def ranges(parts: list[Any]) -> list[tuple[int, int, int]]:
    return [(p.value.partition, p.value.start, p.value.end) for p in parts]


def test_a_query_continues_at_its_offsets(opened, fill) -> None:
    fill(0, 5)
    reader = opened()
    assert pickle.dumps(reader)  # it goes to the tasks
    assert reader.getDefaultReadLimit() == ALL
    start = reader.initialOffset()
    assert start == at(5, 0, 0)
    assert reader.latestOffset(start, ALL) == start
    fill(0, 2)
    fill(2, 3)
    assert reader.initialOffset() == start  # Spark calls it again when it plans the batch
    end = reader.latestOffset(start, ALL)
    assert end == at(7, 0, 3)
    assert ranges(reader.partitions(start, end)) == [(0, 5, 7), (2, 0, 3)]
    assert reader.partitions(end, end) == []
    assert reader.reportLatestOffset() == end


def test_limits(opened, fill) -> None:
    for number in range(3):
        fill(number, 40 * number)
    reader = opened(startingOffsets="earliest", maxOffsetsPerTrigger="30")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(30)
    assert reader.latestOffset(at(0, 0, 0), limit) == at(0, 10, 20)
    assert reader.latestOffset(at(0, 0, 0), ALL) == at(0, 40, 80)
    pieces = opened(minPartitions="6").partitions(at(0, 0, 0), at(0, 40, 80))
    assert ranges(pieces) == [
        (1, 0, 20),
        (1, 20, 40),
        *((2, n, n + 20) for n in range(0, 80, 20)),
    ]


def test_a_trigger_waits_for_enough(opened, fill, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(stream.time, "monotonic", lambda: now[0])
    reader = opened(minOffsetsPerTrigger="10", maxTriggerDelay="1m")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    fill(0, 4)
    first = reader.latestOffset(at(0, 0, 0), limit)
    assert first == at(4, 0, 0)  # the first does not wait
    fill(0, 4)
    assert reader.latestOffset(first, limit) == first
    assert reader.latestOffset(first, ALL) == at(8, 0, 0)
    now[0] += 61
    assert reader.latestOffset(first, limit) == at(8, 0, 0)
    fill(1, 6)
    assert reader.latestOffset(first, limit) == at(8, 6, 0)


def test_both_limits(opened, fill, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Java's ``CompositeReadLimit``: a trigger waits for the minimum, and reads the maximum."""
    now = [1000.0]
    monkeypatch.setattr(stream.time, "monotonic", lambda: now[0])
    given = {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "12", "maxTriggerDelay": "1m"}
    reader = opened(**given)
    limit = reader.getDefaultReadLimit()
    fill(0, 30)
    first = reader.latestOffset(at(0, 0, 0), limit)
    assert first == at(12, 0, 0)
    second = reader.latestOffset(first, limit)
    assert second == at(24, 0, 0)
    assert reader.latestOffset(second, limit) == second  # 6 are left
    now[0] += 61
    assert reader.latestOffset(second, limit) == at(30, 0, 0)
    # After a restart the first trigger does not wait.
    again = opened(**given)
    assert again.latestOffset(second, limit) == at(30, 0, 0)
    fill(0, 6)
    assert again.latestOffset(at(30, 0, 0), limit) == at(30, 0, 0)


def test_progress_goes_to_a_group(opened, fake, fill) -> None:
    reader = opened(commitOffsetsToGroup="lag", startingOffsets="earliest")
    fill(0, 5)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    reader.partitions(start, end)
    reader.commit(end)
    reader.stop()
    assert [fake.committed_offset("lag", "t", n) for n in range(3)] == [5, 0, 0]
    # Spark commits a batch late, when there is a next one; an idle query's last batch counts too.
    fill(0, 2)
    reader = opened(commitOffsetsToGroup="lag")
    assert reader.latestOffset(at(7, 0, 0), ALL) == at(7, 0, 0)
    reader.stop()
    assert fake.committed_offset("lag", "t", 0) == 7


def test_available_now_ends_with_its_commit(opened, fake, fill) -> None:
    """Spark kills the planning process, so nothing may be left to ``stop()``."""
    fake.round_trip_s = 0.02
    fill(0, 10)
    reader = opened(commitOffsetsToGroup="lag", startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert reader.latestOffset(end, ALL) == end
    assert fake.committed_offset("lag", "t", 0) == 10


def test_available_now(opened, fill) -> None:
    fill(0, 10)
    reader = opened(startingOffsets="earliest", maxOffsetsPerTrigger="6", minOffsetsPerTrigger="5")
    reader.prepareForTriggerAvailableNow()
    fill(0, 10)
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first == at(6, 0, 0)
    last = reader.latestOffset(first, limit)
    assert last == at(10, 0, 0)
    assert reader.latestOffset(last, limit) == last


def test_available_now_from_the_end_of_a_busy_topic(opened, fill) -> None:
    """Spark asks for the start after it has asked for the end."""
    fill(0, 5)
    reader = opened()
    reader.prepareForTriggerAvailableNow()
    fill(0, 5)
    start = reader.initialOffset()
    assert start == at(10, 0, 0)
    fill(0, 5)
    end = reader.latestOffset(start, ALL)
    assert ranges(reader.partitions(start, end)) == [(0, 10, 15)]
    fill(0, 5)
    assert reader.latestOffset(end, ALL) == end


def test_new_partitions_are_read_from_their_start(opened, fake, fill) -> None:
    reader = opened()
    fake.add_partitions("t", 5)
    fill(3, 4)
    fill(4, 4)
    end = reader.latestOffset(at(0, 0, 0), ALL)
    assert end == at(0, 0, 0, 4, 4)
    assert ranges(reader.partitions(at(0, 0, 0), end)) == [(3, 0, 4), (4, 0, 4)]
    fake.delete_records("t", 4, 2)
    with pytest.raises(OffsetOutOfRangeError, match="new partition t-4 begins at offset 2"):
        reader.partitions(at(0, 0, 0), end)
    lenient = opened(failOnDataLoss="false").partitions(at(0, 0, 0), end)
    assert ranges(lenient) == [(3, 0, 4), (4, 2, 4)]


@pytest.mark.parametrize("given", [{}, {"subscribePattern": "t.*"}])
@pytest.mark.parametrize("available_now", [False, True])
def test_a_partition_that_the_broker_asked_does_not_know_yet(
    opened, fake, given: dict[str, str], available_now: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = opened(failOnDataLoss="false", **given)
    if available_now:
        reader.prepareForTriggerAvailableNow()
    begin = at(0, 0, 0, 0) | ({"tt": {"0": 0}} if given else {})

    def pauses() -> Iterator[float]:
        yield 0.0
        fake.add_partitions("t", 4)
        fake.create_topic("tt", 1)
        yield 0.0

    monkeypatch.setattr(planning, "_PAUSES_S", pauses())
    assert reader.latestOffset(begin, ALL) == begin


def test_a_topic_that_was_deleted(opened, fake, fill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_PAUSES_S", [0.0])
    fill(0, 5)
    reader = opened()
    start = reader.latestOffset(at(0, 0, 0), ALL)
    fake.delete_topic("t")
    with pytest.raises(OffsetOutOfRangeError, match="partition t-0 is gone; it was read to off"):
        reader.latestOffset(start, ALL)
    lenient = opened(failOnDataLoss="false")
    assert lenient.latestOffset(start, ALL) == {}
    assert reader.partitions(start, {}) == []  # Spark may have stored it without failOnDataLoss
    fake.create_topic("t", 3)
    with pytest.raises(OffsetOutOfRangeError, match="topic t was deleted and created again"):
        opened().latestOffset(start, ALL)
    old = {"t": start["t"]}  # of an earlier version, or of spark-sql-kafka: without ids
    with pytest.raises(
        OffsetOutOfRangeError, match="partition t-0 ends at 0, before the read begins, at 5"
    ):
        opened().latestOffset(old, ALL)
    assert opened(failOnDataLoss="false").partitions(start, at(0, 0, 0)) == []


@pytest.mark.parametrize("records", [3, 5, 8])
def test_a_topic_that_was_deleted_and_created_again(opened, fake, fill, records: int) -> None:
    fill(0, 5)
    strict, lenient = opened(), opened(failOnDataLoss="false")
    start = strict.latestOffset(at(0, 0, 0), ALL)
    assert lenient.latestOffset(at(0, 0, 0), ALL) == start
    fake.delete_topic("t")
    fake.create_topic("t", 3)
    fill(0, records)
    with pytest.raises(
        OffsetOutOfRangeError, match=r"topic t was deleted and created again: .* Use"
    ):
        strict.latestOffset(start, ALL)
    first = lenient.latestOffset(start, ReadMaxRows(2))
    assert first == at(2, 0, 0)
    assert ranges(lenient.partitions(start, first)) == [(0, 0, 2)]
    end = lenient.latestOffset(first, ALL)
    assert ranges(lenient.partitions(first, end)) == [(0, 2, records)]


@pytest.mark.parametrize("loss", ["true", "false"])
@pytest.mark.parametrize("most", [None, 2])
def test_an_old_end_is_not_believed_at_once(
    opened, fill, answer_old_ends, loss: str, most: int | None
) -> None:
    fill(0, 5)
    reader = opened(startingOffsets="earliest", failOnDataLoss=loss)
    limit = ALL if most is None else ReadMaxRows(most)
    start = reader.latestOffset(at(0, 0, 0), ALL)
    fill(0, 1)
    answer_old_ends(2, answers=2)
    assert reader.latestOffset(start, limit) == at(6, 0, 0)


def test_a_log_that_has_lost_records(opened, fill, answer_old_ends) -> None:
    """The query ends before Spark stores the lower offset in the checkpoint."""
    fill(0, 5)
    answer_old_ends(3, answers=99)
    with pytest.raises(OffsetOutOfRangeError, match="t-0 ends at 3, before the read begins, at 5"):
        opened().latestOffset(at(5, 0, 0), ALL)
    assert opened(failOnDataLoss="false").latestOffset(at(5, 0, 0), ALL) == at(3, 0, 0)


@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_checkpoint_behind_the_start_of_an_open_transaction(opened, fake, fill, loss) -> None:
    """As one that was read with ``read_uncommitted``: nothing is lost, nothing is read again."""
    fill(0, 2)

    async def write() -> Producer:
        producer = Producer(fake.bootstrap, dialer=fake, transactional_id="x")
        await producer.start()
        await producer.begin_transaction()
        for _ in range(4):
            await producer.send_and_wait("t", b"open", partition=0)
        return producer

    async def commit(producer: Producer) -> None:
        await producer.commit_transaction()
        await producer.stop()

    with asyncio.Runner() as runner:
        producer = runner.run(write())
        given = {"kafka.isolation.level": "read_committed", "failOnDataLoss": loss}
        reader = opened(**given)
        assert reader.latestOffset(at(5, 0, 0), ALL) == at(5, 0, 0)
        assert reader.partitions(at(5, 0, 0), at(5, 0, 0)) == []
        runner.run(commit(producer))
    assert reader.latestOffset(at(5, 0, 0), ALL) == at(7, 0, 0)


@pytest.fixture
def half_read(opened, fill) -> tuple[KafkaStreamReader, KafkaStreamReader, dict[str, Any]]:
    """Queries with availableNow that have read 4 of 10 records, and the offsets; for the first
    query loss is an error."""
    fill(0, 10)
    readers = opened(), opened(failOnDataLoss="false")
    for reader in readers:
        reader.prepareForTriggerAvailableNow()
        read = reader.latestOffset(at(0, 0, 0), ReadMaxRows(4))
        assert read == at(4, 0, 0)
    return *readers, read


def test_available_now_sees_topics_that_are_created_again(half_read, fake, fill) -> None:
    fake.delete_topic("t")
    fake.create_topic("t", 3)
    fill(0, 12)
    strict, lenient, start = half_read
    with pytest.raises(OffsetOutOfRangeError, match="topic t was deleted and created again"):
        strict.latestOffset(start, ALL)
    end = lenient.latestOffset(start, ALL)
    assert ranges(lenient.partitions(start, end)) == [(0, 0, 12)]
    fill(0, 1)
    assert lenient.latestOffset(end, ALL) == end


def test_available_now_sees_topics_that_are_gone(
    half_read, fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_PAUSES_S", [0.0])
    fake.delete_topic("t")
    strict, lenient, start = half_read
    with pytest.raises(OffsetOutOfRangeError, match="partition t-0 is gone; it was read to off"):
        strict.latestOffset(start, ALL)
    assert lenient.latestOffset(start, ALL) == {}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("read", [1, 5])
@pytest.mark.parametrize("records", [1, 5, 12])
@pytest.mark.parametrize("most", [None, 1, 5])
def test_a_topic_created_again_is_read_completely(
    opened, fake, fill, restarted: bool, read: int, records: int, most: int | None
) -> None:
    """Also between two runs, and if a batch of the new topic ends at the offset where the old one
    was read to: Spark plans no batch that ends where it starts."""
    fill(0, read)
    reader = opened(failOnDataLoss="false")
    limit = ALL if most is None else ReadMaxRows(most)
    start = reader.latestOffset(at(0, 0, 0), ALL)
    fake.delete_topic("t")
    fake.create_topic("t", 3)
    fill(0, records)
    if restarted:
        with pytest.raises(OffsetOutOfRangeError, match="deleted and created again"):
            opened().latestOffset(start, limit)
        reader = opened(failOnDataLoss="false")
    found: list[int] = []
    while (end := reader.latestOffset(start, limit)) != start:
        for _, begin, until in ranges(reader.partitions(start, end)):
            found += range(begin, until)
        start = end
    assert found == [*range(records)]


def test_a_repeated_batch_of_a_topic_created_again(opened, fake, fill) -> None:
    """Spark has stored its end: nothing of the new topic is taken for it, and nothing skipped."""
    fill(0, 5)
    reader = opened(startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    fake.delete_topic("t")
    fake.create_topic("t", 3)
    fill(0, 7)
    with pytest.raises(OffsetOutOfRangeError, match="deleted and created again"):
        opened().partitions(start, end)
    reader = opened(failOnDataLoss="false")
    assert reader.partitions(start, end) == []
    last = reader.latestOffset(end, ALL)
    assert ranges(reader.partitions(end, last)) == [(0, 0, 7)]


def test_a_topic_created_again_while_its_end_is_asked_for(opened, fake, fill) -> None:
    """Its end is not taken for one of the old topic: records would be read twice."""
    fill(0, 5)
    reader = opened(failOnDataLoss="false")
    start = reader.latestOffset(at(0, 0, 0), ALL)

    left = [1]

    def create_again(_: object) -> None:
        if left and left.pop():
            fake.delete_topic("t")
            fake.create_topic("t", 3)
            fill(0, 8)

    fake.control(ApiKey.LIST_OFFSETS, create_again)
    end = reader.latestOffset(start, ALL)
    assert ranges(reader.partitions(start, end)) == [(0, 0, 8)]
    assert reader.latestOffset(end, ALL) == end


def test_a_broker_with_old_metadata_after_a_restart(opened, fake, fill, monkeypatch) -> None:
    old = fake._state.topics["t"]
    fake.delete_topic("t")
    fake.create_topic("t", 3)
    new = fake._state.topics["t"]
    fill(0, 3)
    start = opened(startingOffsets="earliest").initialOffset()

    def pauses() -> Iterator[float]:
        fake._state.topics["t"] = new
        yield 0.0
        yield 0.0

    for call in ("latestOffset", "partitions"):
        monkeypatch.setattr(planning, "_PAUSES_S", pauses())
        fake._state.topics["t"] = old
        getattr(opened(), call)(start, ALL if call == "latestOffset" else start)


@pytest.mark.parametrize(
    ("given", "moves"),
    [
        ({}, True),
        ({"startingOffsets": '{"t": {"0": 0, "1": 0, "2": -1}}'}, True),
        ({"startingTimestamp": "0", "startingOffsetsByTimestampStrategy": "latest"}, True),
        ({"startingOffsets": "earliest"}, False),
        ({"startingOffsets": '{"t": {"0": 0, "1": 0, "2": 0}}'}, False),
    ],
)
def test_a_repeated_first_batch(opened, fill, given: dict[str, str], moves: bool) -> None:
    """Spark calls initialOffset again, and plans with the end offsets that it has stored."""
    reader = opened(**given)
    start = reader.initialOffset()
    if moves:
        with pytest.raises(OffsetOutOfRangeError, match="stopped in its first batch"):
            reader.partitions(start, at(1, 0, 0))
    else:
        assert ranges(reader.partitions(start, at(1, 0, 0))) == [(0, 0, 1)]
    fill(0, 1)
    reader = opened(**given)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    reader.partitions(start, end)  # the usual way


def test_calls_of_spark_that_repeat_no_batch(opened, fill) -> None:
    """A query that goes on after its first batch never asks for the start, a new one for each
    batch."""
    reader = opened()
    start = at(0, 0, 0)
    fill(0, 1)
    end = reader.latestOffset(start, ALL)
    assert ranges(reader.partitions(start, end)) == [(0, 0, 1)]
    new = opened()
    for _ in range(2):
        start = new.initialOffset()
        assert new.partitions(start, new.latestOffset(start, ALL)) == []


@pytest.mark.parametrize(("records", "requests"), [(0, 1), (3, 2)])
def test_metadata_requests_of_a_trigger(opened, fake, fill, records: int, requests: int) -> None:
    """The second makes sure that the ends are those of the same topic."""
    reader = opened(startingOffsets="earliest")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    fill(0, records)
    asked: list[object] = []
    fake.control(ApiKey.METADATA, asked.append, keep=True)
    end = reader.latestOffset(start, ALL)
    reader.partitions(start, end)
    assert len(asked) == requests


@pytest.mark.parametrize("start", ["earliest", '{"t": {"0": 0, "1": 0, "2": 0, "3": 7}}'])
def test_a_repeated_first_batch_of_fewer_partitions(opened, fake, fill, start: str) -> None:
    fill(0, 2)
    fake.add_partitions("t", 4)
    fill(3, 1)
    reader = opened(startingOffsets=start)
    stored = at(1, 0, 0)
    assert ranges(reader.partitions(reader.initialOffset(), stored)) == [(0, 0, 1)]
    end = reader.latestOffset(stored, ALL)
    assert ranges(reader.partitions(stored, end)) == [(0, 1, 2), (3, 0, 1)]


def test_an_error_at_the_end_hides_no_other(
    opened, fake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: GroupProgress) -> None:
        raise LookupError("a defect")

    reader = opened(commitOffsetsToGroup="lag")
    reader.initialOffset()
    with monkeypatch.context() as patched:
        patched.setattr(GroupProgress, "finish", fail)
        reader.stop()
    assert "a defect" in caplog.text
    assert not any(fake.connections(broker) for broker in range(3))
    assert all(thread.name != "kafkaclient-plan" for thread in threading.enumerate())
