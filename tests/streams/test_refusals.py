"""A commit fails because the broker refused what was written for one input record."""

from __future__ import annotations

from typing import Any

import pytest

from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import (
    DeliveryTimeoutError,
    KafkaError,
    RecordTooLargeError,
    StreamsError,
    TransactionAbortableError,
)
from kafkaclient.streams.runtime.outputs import RefusedChangeError
from kafkaclient.streams.runtime.refusals import RefusedRecordsError, SentRecords
from kafkaclient.streams.tasks import is_recoverable
from kafkaclient.types import TopicPartition
from tests.streams.fakes import FakeDelivery

SOURCE = TopicPartition("words", 0)
CHANGELOG = TopicPartition("changelog", 0)
TOO_LARGE = RecordTooLargeError("5000 bytes to out-0")


class ModelTask:
    id = "0_0"

    def __init__(self) -> None:
        self.refused: dict[int, str] = {}
        self.writers = {b"large": (SOURCE, 4)}

    def refuse(self, source: TopicPartition, offset: int, error: Exception) -> bool:
        assert source == SOURCE
        is_new = offset not in self.refused
        self.refused.setdefault(offset, str(error))
        return is_new

    def writer(self, changelog: TopicPartition, key: bytes) -> tuple[TopicPartition, int] | None:
        return self.writers.get(key) if changelog == CHANGELOG else None


class World:
    def __init__(self) -> None:
        self.sent = SentRecords()
        self.task: Any = ModelTask()

    def send(self, offset: int, error: Exception | None = None) -> None:
        delivery: Any = FakeDelivery(error)
        self.sent.add(self.task, SOURCE, offset, delivery)

    def blame(self, failure: BaseException) -> BaseException:
        return self.sent.blame(failure, [self.task])


def refused_change(changelog: TopicPartition, key: bytes) -> RefusedChangeError:
    return RefusedChangeError({(changelog, key): "50 kB"})


def aborted() -> Exception:
    error = TransactionAbortableError("no")
    error.__cause__ = TOO_LARGE
    return error


@pytest.mark.parametrize("failure", [TOO_LARGE, aborted()], ids=["plain", "transactional"])
def test_emitted_records_blame_their_input_records(failure: Exception) -> None:
    world = World()
    world.send(1)
    world.send(2, TOO_LARGE)
    world.send(2, TOO_LARGE)
    world.send(3, DeliveryTimeoutError("the producer gave up"))
    world.send(4, TOO_LARGE)
    assert not is_recoverable(failure)
    assert is_recoverable(world.blame(failure))
    assert world.task.refused == {2: str(TOO_LARGE), 4: str(TOO_LARGE)}


def refusal(code: int, *, of_this_record: bool) -> KafkaError:
    error = broker_error(code, "a record to out-0")
    error.refuses_record = of_this_record  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize("code", [18, 32, 87])
@pytest.mark.parametrize("transactional", [False, True])
def test_only_the_refused_record_of_a_batch_is_blamed(code: int, transactional: bool) -> None:
    """In a transaction, the other records of its batch fail with the same code."""
    world = World()
    neighbor = refusal(code, of_this_record=False)
    world.send(1, neighbor)
    world.send(2, refusal(code, of_this_record=True))
    world.send(3, neighbor)
    failure: Exception = neighbor
    if transactional:
        failure = TransactionAbortableError("no")
        failure.__cause__ = neighbor
    assert is_recoverable(world.blame(failure))
    assert world.task.refused.keys() == {2}


def test_a_refusal_that_names_no_record_stays() -> None:
    world = World()
    failure = refusal(87, of_this_record=False)
    world.send(1, failure)
    assert world.blame(failure) is failure


def test_a_change_blames_the_record_that_wrote_it() -> None:
    world = World()
    world.send(1)
    assert is_recoverable(world.blame(refused_change(CHANGELOG, b"large")))
    assert world.task.refused == {4: "50 kB"}


def test_all_refused_changes_of_a_commit_are_noted_at_once() -> None:
    world = World()
    world.task.writers[b"other"] = (SOURCE, 6)
    failure = RefusedChangeError({(CHANGELOG, b"large"): "50 kB", (CHANGELOG, b"other"): "60 kB"})
    assert isinstance(world.blame(failure), RefusedRecordsError)
    assert world.task.refused == {4: "50 kB", 6: "60 kB"}


@pytest.mark.parametrize(
    "failure",
    [
        refused_change(CHANGELOG, b"small"),
        refused_change(TopicPartition("other", 0), b"large"),
        TOO_LARGE,
        StreamsError("something else"),
    ],
)
def test_a_failure_that_no_record_is_known_for_stays(failure: Exception) -> None:
    world = World()
    world.send(1)
    assert world.blame(failure) is failure
    assert world.task.refused == {}


def test_a_record_is_blamed_once() -> None:
    """Then its dead letter is refused."""
    world = World()
    world.send(2, TOO_LARGE)
    world.blame(TOO_LARGE)
    world.sent = SentRecords()  # the next commit's
    world.send(2, RecordTooLargeError("5000 bytes to dead-0"))
    failure = world.blame(TOO_LARGE)
    assert not is_recoverable(failure)
    assert "the dead letter of the record at words-0, offset 1, is refused" in str(failure)
    assert "5000 bytes to dead-0" in str(failure)


def test_a_task_that_was_dropped_is_not_blamed() -> None:
    world = World()
    world.send(2, TOO_LARGE)
    assert is_recoverable(world.sent.blame(TOO_LARGE, []))
    assert world.task.refused == {}
