"""What ``SyncProducer`` does with records that fail."""

from __future__ import annotations

import gc
from concurrent.futures import wait
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import SyncProducer, UnseenFailure
from kafkaclient.errors import (
    BootstrapError,
    BulkDeliveryError,
    InvalidRecordError,
    MetadataTimeoutError,
    PartitionOutOfRangeError,
    PolicyViolationError,
    RecordTooLargeError,
)
from tests.producer.properties.test_user_code import PARTITIONS, Application, FailingHooks
from tests.sync.support import POLICY_VIOLATION, one_topic, running, threads, values

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from kafkaclient.testing import FakeCluster


@pytest.mark.parametrize(
    ("send", "error"),
    [
        (lambda p: p.send("no topic!", b"x"), InvalidRecordError),
        (lambda p: p.send(["t"], b"x"), InvalidRecordError),
        (lambda p: p.send("t", "text"), InvalidRecordError),
        (lambda p: p.send("t", b"x", partition=-1), InvalidRecordError),
        (lambda p: p.send("t", bytes(2000)), RecordTooLargeError),
        (lambda p: p.send_and_wait("t", bytes(2000)), RecordTooLargeError),
    ],
)
def test_an_invalid_record_raises_in_the_call(
    send: Callable[[SyncProducer], object], error: type[Exception]
) -> None:
    fake = one_topic()
    with running(fake, max_request_size=1000) as producer:
        producer.send("t", b"1")  # the topic is known from now on
        with pytest.raises(error):
            send(producer)
    assert values(fake) == [b"1"]


def test_what_the_cluster_refuses_fails_the_future() -> None:
    fake, unseen = one_topic(auto_create_topics=False), []
    with running(fake, max_block_ms=500, on_error=unseen.append) as producer:
        no_topic = producer.send("unknown", b"x")
        no_partition = producer.send("t", b"x", partition=9)
        invalid = producer.send_many("t", [b"x", 5])
        with pytest.raises(MetadataTimeoutError):
            no_topic.result(10)
        assert isinstance(no_partition.exception(10), PartitionOutOfRangeError)
        with pytest.raises(InvalidRecordError) as caught:
            invalid.result(10)
        assert caught.value.index == 1
        with pytest.raises(PartitionOutOfRangeError):
            producer.send_and_wait("t", b"x", partition=9)
    assert unseen == []


def test_one_failed_bulk_is_one_error() -> None:
    fake = one_topic()
    fake.fail_produce("t", 0, POLICY_VIOLATION)
    with running(fake) as producer, pytest.raises(BulkDeliveryError) as caught:
        producer.send_many("t", [b"1", b"2"]).result(10)
    assert caught.value.failures[0].records == 2


def _sends(producer: SyncProducer) -> list[Future[Any]]:
    return [producer.send("t", b"1"), producer.send_many("t", [b"2"])]


def test_a_failure_that_nobody_reads_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    fake, unseen = one_topic(auto_create_topics=False), []
    fake.fail_produce("t", 0, POLICY_VIOLATION, times=9)
    with running(fake, on_error=unseen.append, max_block_ms=500, linger_ms=0) as producer:
        _sends(producer)
        producer.flush()
        producer.send("unknown", b"3")
        producer.flush()
    gc.collect()
    assert {(f.topic, f.records, type(f.error)) for f in unseen} == {
        ("t", 1, PolicyViolationError),
        ("unknown", 1, MetadataTimeoutError),
    }
    assert all(isinstance(failure, UnseenFailure) for failure in unseen)
    assert sum(failure.records for failure in unseen) == 3
    assert "no caller checked the delivery" in caplog.text


def _result_raises(future: Any) -> None:
    with pytest.raises(PolicyViolationError):
        future.result(10)


@pytest.mark.parametrize(
    "read",
    [
        lambda f: f.exception(10),
        _result_raises,
        lambda f: f.add_done_callback(lambda _: None),
        lambda f: wait([f], 10),
    ],
    ids=["exception", "result", "callback", "wait"],
)
def test_a_failure_that_is_read_is_not_reported(read: Callable[[Any], object]) -> None:
    fake, unseen = one_topic(), []
    fake.fail_produce("t", 0, POLICY_VIOLATION)
    with running(fake, on_error=unseen.append) as producer:
        read(producer.send("t", b"1"))
        producer.flush()
    gc.collect()
    assert unseen == []


def failed_start() -> tuple[FakeCluster, SyncProducer]:
    """A producer whose start has failed, with the record that began it; its broker is down."""
    fake = one_topic()
    fake.stop_broker(0)
    producer = SyncProducer(fake.bootstrap, dialer=fake, max_block_ms=500, reconnect_backoff_ms=10)
    with pytest.raises(BootstrapError):
        producer.send("t", b"lost").result(10)
    return fake, producer


def test_a_close_after_a_failed_start_leaves_no_record_without_an_outcome() -> None:
    _, producer = failed_start()
    assert producer.close() == 0


def test_a_failed_start_fails_the_records_and_the_next_call_tries_again() -> None:
    fake, producer = failed_start()
    with pytest.raises(BootstrapError):
        producer.start()
    fake.start_broker(0)
    with producer:
        assert producer.send_and_wait("t", b"written").offset == 0
    assert values(fake) == [b"written"]
    assert threads() == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_applications_code_may_do_anything(seed: int) -> None:
    """It raises or answers nonsense in the producer's thread: each record has its outcome."""
    application = Application(Random(seed), 0.3)
    fake = one_topic(PARTITIONS)
    options: dict[str, Any] = {
        "partitioner": application,
        "on_delivery": application.called,
        "on_error": application.called,
        "hooks": (FailingHooks(application),),
        "linger_ms": 0,
    }
    futures: list[Any] = []
    with running(fake, **options) as producer:
        for n in range(60):
            if n % 10:
                futures.append(producer.send("t", b"%d" % n))
            else:
                futures.append(producer.send_many("t", [b"%d" % n]))
    assert all(future.done() for future in futures)
    written = sum(len(fake.log("t", partition)) for partition in range(PARTITIONS))
    assert written == sum(future.exception() is None for future in futures)
