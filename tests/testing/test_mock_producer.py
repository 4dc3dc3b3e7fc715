"""MockProducer: the surface of Producer, its history, and the failures that a test sets."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kafkaclient import Delivery, Health, Producer, RecordMetadata, TopicPartition
from kafkaclient.errors import (
    BufferFullError,
    BulkDeliveryError,
    ConfigError,
    DeliveryTimeoutError,
    InvalidRecordError,
    PartitionOutOfRangeError,
    ProducerClosedError,
    ProducerFencedError,
    ProducerStateError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from kafkaclient.testing import FakeCluster, MockProducer
from kafkaclient.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_REFUSED = DeliveryTimeoutError("too late")


def _public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_it_has_the_methods_of_a_producer_with_their_signatures() -> None:
    """Every public method is either overridden with the same signature, or works on what is
    overridden; a new method of Producer has to be put into one of the two."""
    inherited = {
        *("send", "send_nowait", "send_and_wait", "create_batch", "is_stopped", "forked"),
        *("transaction", "begin_transaction", "prepare_transaction", "commit_transaction"),
        *("abort_transaction", "send_offsets_to_transaction", "committed"),
        *("register_metric_for_subscription", "unregister_metric_from_subscription"),
    }
    overridden = {name for name in _public(Producer) if name in vars(MockProducer)}
    assert inherited | overridden == _public(Producer)
    assert not inherited & overridden
    for name in overridden - {"in_transaction"}:
        theirs, ours = getattr(Producer, name), getattr(MockProducer, name)
        assert inspect.signature(ours) == inspect.signature(theirs), name
        assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(theirs), name
    constructor = inspect.signature(MockProducer).parameters
    for name, parameter in inspect.signature(Producer).parameters.items():
        assert constructor[name] == parameter


async def _service(producer: Producer) -> list[Any]:
    """The same calls for a producer and its mock; the results do not depend on the partition."""
    results: list[Any] = []

    async def note(call: Callable[[], Awaitable[Any]]) -> None:
        try:
            results.append(await call())
        except Exception as error:  # noqa: BLE001 - both must raise the same
            results.append(type(error))

    await note(lambda: producer.send("t", b"too early"))
    await producer.start()
    await note(producer.start)
    results.append(await producer.send_and_wait("t", b"v", key=b"k", timestamp_ms=5))
    await note(lambda: producer.send("t", "no bytes"))
    await note(lambda: producer.send("..", b"v"))
    await note(lambda: producer.send("t", b"v", partition=-1))
    await note(lambda: producer.send_many("t", [b"a", "no bytes"]))
    delivery = await producer.send_many("t", [b"a", b"b"], keys=[b"k", b"k"], timestamp_ms=6)
    results.append(await delivery)
    table = pa.table({"key": [b"k"], "value": ["text"], "timestamp": [7]})
    results.append(await (await producer.send_arrow("t", table)))
    batch = producer.create_batch()
    for value in (b"debit", b"credit"):
        batch.append(value, timestamp_ms=8)
    results.append(await (await producer.send_batch(batch, "t", partition=2)))
    await note(lambda: producer.send_batch(batch, "t"))
    results.append(await producer.send_nowait("t", None, b"k", timestamp_ms=9))
    await producer.flush()
    results += [len(await producer.partitions_for("t")), str(await producer.healthy())]
    await note(producer.begin_transaction)
    results += [await producer.stop(), str(await producer.healthy()), producer.is_stopped]
    await note(lambda: producer.send("t", b"too late"))
    return results


@virtual_time
async def test_a_service_cannot_tell_it_from_a_producer() -> None:
    fake = FakeCluster(1)
    fake.create_topic("t", 3)
    mock = MockProducer(partitions=3)
    assert await _service(mock) == await _service(Producer(fake.bootstrap, dialer=fake))
    written = {(r.value, r.key, r.timestamp, p) for p in range(3) for r in fake.log("t", p)}
    kept = {(r.value_bytes, r.key_bytes, r.timestamp_ms, r.partition) for r in mock.history}
    assert kept == written


async def test_the_history_has_what_the_caller_gave_and_the_bytes() -> None:
    options = {"value.serializer": lambda value: str(value).encode()}
    async with MockProducer(options, partitions={"orders": 4}, wall_clock=lambda: 3.0) as producer:
        await producer.send("orders", 7, b"ann", headers={"a": b"1"})
        await producer.send_nowait("orders", 8, partition=2)
    first, second = producer.history
    assert (first.topic, first.value, first.value_bytes, first.key) == ("orders", 7, b"7", b"ann")
    assert (first.headers, first.timestamp_ms) == ((("a", b"1"),), 3000)
    assert (second.value_bytes, second.key, second.partition) == (b"8", None, 2)
    producer.clear()
    assert producer.history == []


async def test_wrong_options_and_partitions_are_refused_as_by_a_producer() -> None:
    with pytest.raises(ConfigError, match="ling"):
        MockProducer(lingr_ms=5)
    async with MockProducer("ignored:1", partitions={"t": 2}) as producer:
        with pytest.raises(PartitionOutOfRangeError):
            await producer.send("t", b"v", partition=2)
        with pytest.raises(InvalidRecordError):
            await producer.send("t", "text")
    assert producer.history == []


async def test_deliveries_wait_for_the_test() -> None:
    async with MockProducer(auto_complete=False) as producer:
        first, second, third = [await producer.send("t", b"v") for _ in range(3)]
        assert (producer.pending, first.done()) == (3, False)
        assert producer.complete_next()
        assert isinstance(first, Delivery)
        assert (await first).offset == 0
        assert producer.error_next(_REFUSED)
        with pytest.raises(DeliveryTimeoutError, match="too late"):
            await second
        await producer.flush()
        assert (await third).offset == 1
        assert not producer.complete_next()
        assert not producer.error_next(_REFUSED)
    assert len(producer.history) == 3


async def test_scripted_failures() -> None:
    producer = MockProducer()
    producer.fail("start", _REFUSED)
    with pytest.raises(DeliveryTimeoutError):
        await producer.start()
    async with producer:
        producer.fail("send", BufferFullError("full"), times=2)
        for call in (producer.send_and_wait, producer.send_many):
            with pytest.raises(BufferFullError):
                await call("t", [b"1"])  # type: ignore[operator]
        producer.fail("delivery", _REFUSED)
        delivery = await producer.send("t", b"2")
        with pytest.raises(DeliveryTimeoutError):
            await delivery
        producer.fail("delivery", _REFUSED)
        with pytest.raises(BulkDeliveryError, match="1 of 2 records"):
            await (await producer.send_many("t", [b"3", b"4"]))
        producer.fail("flush", _REFUSED)
        with pytest.raises(DeliveryTimeoutError):
            await producer.flush()
        producer.health = Health(("no broker answers",))
        assert not await producer.healthy()
        assert await producer.send_and_wait("t", b"5") == RecordMetadata(
            "t", 0, 1, producer.history[-1].timestamp_ms, 0, 0
        )
    assert [record.value for record in producer.history] == [b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        (("sned", _REFUSED), ValueError, "call must be one of start, send, .*, not 'sned'"),
        (("send", BufferFullError), TypeError, "an instance of KafkaError, .*, not <class"),
        (("send", OSError("down")), TypeError, "an instance of KafkaError"),
        (("send", _REFUSED, 0), ValueError, "times must be at least 1, not 0"),
        (("send", _REFUSED, "2"), TypeError, "times must be an int, not '2'"),
    ],
)
def test_a_failure_that_could_not_happen_is_refused(
    arguments: tuple[Any, ...], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        MockProducer().fail(*arguments)


def test_a_delivery_fails_with_an_error_of_kafka_only() -> None:
    with pytest.raises(TypeError, match="an instance of KafkaError"):
        MockProducer(auto_complete=False).error_next(OSError("down"))  # type: ignore[arg-type]


async def test_on_delivery_is_called() -> None:
    seen: list[int] = []
    async with MockProducer(on_delivery=lambda d: seen.append(d.result().offset)) as producer:
        await producer.send_many("t", [b"1", b"2"])
    assert seen == [0, 1]


async def test_serializers_that_are_async() -> None:
    async def serialize(value: int) -> bytes:
        return b"%d" % value

    async with MockProducer(value_serializer=serialize) as producer:
        await producer.send_and_wait("t", 7)
        with pytest.raises(NotImplementedError, match="async"):
            producer.send_nowait("t", 8)
    assert [(r.value, r.value_bytes) for r in producer.history] == [(7, b"7")]


# --- transactions -----------------------------------------------------------------------------


async def test_the_history_has_committed_records_only() -> None:
    async with MockProducer(transactional_id="tx") as producer:
        with pytest.raises(ProducerStateError, match="begin_transaction comes first"):
            await producer.send("t", b"0")
        async with producer.transaction():
            await producer.send("t", b"1")
            await producer.send_offsets_to_transaction({("in", 0): 5}, "group")
            assert producer.in_transaction
            assert (producer.history, [r.value for r in producer.uncommitted]) == ([], [b"1"])
        await producer.begin_transaction()
        await producer.send("t", b"2")
        await producer.abort_transaction()
        assert (producer.commits, producer.aborts, producer.in_transaction) == (1, 1, False)
        committed = await producer.committed("group", [("in", 0), ("in", 1)])
        assert committed[TopicPartition("in", 0)].offset == 5  # type: ignore[union-attr]
        assert committed[TopicPartition("in", 1)] is None
    assert [record.value for record in producer.history] == [b"1"]
    (sent,) = producer.committed_offsets
    assert (sent.group.group_id, sent.offsets[TopicPartition("in", 0)].offset) == ("group", 5)


async def test_a_failed_delivery_leaves_only_the_abort() -> None:
    async with MockProducer(transactional_id="tx", auto_complete=False) as producer:
        await producer.begin_transaction()
        failed, unsent = await producer.send("t", b"1"), await producer.send("t", b"2")
        producer.error_next(_REFUSED)
        with pytest.raises(TransactionAbortableError, match="too late"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        with pytest.raises(DeliveryTimeoutError):
            await failed
        with pytest.raises(TransactionAbortedError):
            await unsent
        producer.fail("commit_transaction", _REFUSED)
        with pytest.raises(DeliveryTimeoutError):
            async with producer.transaction():
                await producer.send("t", b"3")
        async with producer.transaction():
            await producer.send("t", b"4")
    assert [record.value for record in producer.history] == [b"4"]
    assert producer.aborts == 2


async def test_a_fenced_producer_cannot_go_on() -> None:
    producer = MockProducer(transactional_id="tx")
    async with producer:
        await producer.begin_transaction()
        producer.fence()
        for call in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(ProducerFencedError):
                await call()
        with pytest.raises(ProducerFencedError):
            await producer.send("t", b"1")
    with pytest.raises(ProducerClosedError):
        await producer.begin_transaction()


async def test_a_stop_aborts_an_open_transaction_and_keeps_a_prepared_one() -> None:
    producer = MockProducer(transactional_id="tx")
    await producer.start()
    await producer.begin_transaction()
    await producer.stop()
    assert producer.aborts == 1
    other = MockProducer(transactional_id="tx")
    await other.start()
    await other.begin_transaction()
    await other.send("t", b"1")
    prepared = await other.prepare_transaction()
    assert prepared is not None
    assert prepared.transactional_id == "tx"
    await other.stop()
    assert (other.aborts, len(other.uncommitted)) == (0, 1)
