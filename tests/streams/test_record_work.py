"""One record in a processor. Its emitted records and its dead letter may be rejected."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import (
    AuthorizationError,
    DeliveryTimeoutError,
    MetadataTimeoutError,
    ProcessingError,
    ProducerFencedError,
    StateStoreError,
    StreamsError,
    UnknownTopicError,
)
from kafkaclient.streams import DeadLetter, Serde, Topic
from kafkaclient.streams.runtime.record_work import Outputs, RecordWork
from kafkaclient.streams.runtime.task_store import RocksStore
from kafkaclient.testing.clock import virtual_time
from kafkaclient.types import TopicPartition
from tests.streams.fakes import FakeOutput, GiveUp, Record, bytes_store, record, topology_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kafkaclient.streams.runtime.outputs import OutgoingRecord
    from kafkaclient.streams.topology import Process

DEAD = DeadLetter("dead")


class World:
    def __init__(self, path: Path) -> None:
        self.rocks = RocksStore(path)
        self.store = bytes_store(self.rocks)
        self.output = FakeOutput()
        self.emitted: list[OutgoingRecord] = []
        self.dropped: list[int] = []

    async def process(self, process: Process, handler: Any, message: Any) -> None:
        topology = topology_of(process, processing_exception_handler=handler)
        (made,) = topology.processors
        work = RecordWork(
            TopicPartition("words", 0),
            made.topics[0],
            made,
            {"counts": self.store},
            self.output,  # type: ignore[arg-type]
            Outputs(topology),
            self.dropped.append,
        )
        self.emitted += await work.process(message)

    @property
    def values(self) -> list[tuple[Any, ...]]:
        return [each[:2] for each in self.emitted]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.rocks.close()


@pytest.mark.parametrize(
    "refused",
    [
        {"value": 123},
        {"key": 5},
        {"value": bytes(2_000_000)},
        {"topic": "no name"},
        {"timestamp_ms": -5},
    ],
)
@pytest.mark.parametrize("handler", ["skip", DEAD])
async def test_an_invalid_emitted_record_fails_its_record(
    world: World, refused: dict[str, Any], handler: Any
) -> None:
    async def process(record: Any, store: Any, emit: Any) -> None:
        store[b"k"] = b"v"
        await emit("out", b"before")
        await emit(**{"topic": "out", **refused})

    await world.process(process, handler, record(7, b"a", b"poison"))
    assert world.values == ([("dead", b"poison")] if handler is DEAD else [])
    assert world.store.changes == {}


async def test_a_nonexistent_partition_fails_its_record(world: World) -> None:
    async def process(record: Any, store: Any, emit: Any) -> None:
        store[b"k"] = b"v"
        await emit("out", b"", partition=7)

    await world.process(process, DEAD, record(7, b"a", b"poison"))
    assert world.values == [("dead", b"poison")]
    assert world.store.changes == {}

    with pytest.raises(ProcessingError, match=r"words-0, offset 7, .*no partition 7"):
        await world.process(process, "fail", record(7, b"a"))


@pytest.mark.parametrize("handler", ["fail", "skip", DEAD])
async def test_a_missing_output_topic_is_not_skipped(world: World, handler: Any) -> None:
    async def process(record: Any, store: Any, emit: Any) -> None:
        await emit("nowhere", b"")

    missing = MetadataTimeoutError("topic 'nowhere'")
    missing.__cause__ = UnknownTopicError("UNKNOWN_TOPIC_OR_PARTITION")
    world.output.problem = missing
    with pytest.raises(ProcessingError, match=r"words-0, offset 7, .*'nowhere'"):
        await world.process(process, handler, record(7, b"a"))


async def test_nothing_is_emitted_after_the_processor_has_returned(world: World) -> None:
    leaked = []

    async def process(record: Any, store: Any, emit: Any) -> None:
        leaked.append(emit)

    await world.process(process, "fail", record(7, b"a"))
    with pytest.raises(StreamsError, match=r"is called after the processor has returned"):
        await leaked[0]("out", b"late")
    assert world.emitted == []


@pytest.mark.parametrize("handler", ["fail", "skip"])
async def test_a_mutable_buffer_is_copied(world: World, handler: Any) -> None:
    async def process(record: Any, store: Any, emit: Any) -> None:
        buffer = bytearray(b"1")
        await emit("out", buffer)
        buffer[:] = b"2"
        await emit("out", buffer)

    await world.process(process, handler, record(7, b"a"))
    assert world.values == [("out", b"1"), ("out", b"2")]


class OddError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("half \ud800"), b"half \\ud800"),
        (OddError(), b"<its __str__ raised RuntimeError>"),
    ],
    ids=["half a character", "no words"],  # an id must be text that can be encoded
)
async def test_any_error_text_fits_into_a_dead_letter(
    world: World, error: Exception, message: bytes
) -> None:
    async def process(record: Any, store: Any, emit: Any) -> None:
        raise error

    await world.process(process, DEAD, record(7, b"a"))
    headers = world.emitted[0].headers
    assert dict(headers)["__streams.errors.message"] == message


async def test_a_dead_letter_without_timestamp_gets_the_current_time(world: World) -> None:
    async def process(record: Any, store: Any, emit: Any) -> None:
        raise ValueError("no")

    await world.process(process, DEAD, Record(7, b"a", b"", timestamp=-1))
    assert world.emitted[0][4] is None


async def test_a_dead_letter_that_is_too_large_names_its_record(world: World) -> None:
    async def process(record: Any, store: Any, emit: Any) -> None:
        raise ValueError("no")

    message = r"words-0, offset 7, .*ValueError: no.* to dead either.*max\.request\.size"
    with pytest.raises(StreamsError, match=message):
        await world.process(process, DEAD, record(7, b"a", bytes(1_048_400)))


@pytest.mark.parametrize("error", [GiveUp(), GeneratorExit()])
@pytest.mark.parametrize("handler", ["fail", "skip"])
async def test_what_is_no_exception_leaves_nothing_of_its_record(
    world: World, error: BaseException, handler: Any
) -> None:
    async def process(record: Any, store: Any, emit: Any) -> None:
        store[b"k"] = b"v"
        await emit("out", b"half")
        raise error

    with pytest.raises(type(error)) as raised:
        await world.process(process, handler, record(7, b"a"))
    assert raised.value is error
    assert (world.store.changes, world.emitted) == ({}, [])


async def cancels_what_it_awaits() -> None:
    inner = asyncio.create_task(asyncio.sleep(1))
    await asyncio.sleep(0)
    inner.cancel()
    await inner


async def raises_cancelled() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("cancel", [cancels_what_it_awaits, raises_cancelled])
@pytest.mark.parametrize("handler", ["fail", "skip", DEAD])
async def test_a_cancellation_of_what_a_processor_awaits_fails_its_record(
    world: World, cancel: Any, handler: Any
) -> None:
    async def process(record: Any, store: Any, emit: Any) -> None:
        store[b"k"] = b"v"
        await emit("out", b"half")
        await cancel()

    if handler == "fail":
        with pytest.raises(ProcessingError, match="words-0, offset 7") as raised:
            await world.process(process, handler, record(7, b"a"))
        assert isinstance(raised.value.__cause__, asyncio.CancelledError)
    else:
        await world.process(process, handler, record(7, b"a", b"poison"))
    assert world.values == ([("dead", b"poison")] if handler is DEAD else [])
    assert world.store.changes == {}


@virtual_time
async def test_timeouts_and_task_groups_cancel_nothing_else(world: World) -> None:
    """They cancel the asyncio task for a moment, and take it back."""

    async def times_out(record: Any, store: Any, emit: Any) -> None:
        async with asyncio.timeout(0.1):
            await asyncio.sleep(1)

    async def fails_in_a_group(record: Any, store: Any, emit: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(1))
            group.create_task(raises_value_error())
            await asyncio.sleep(1)

    async def raises_value_error() -> None:
        raise ValueError

    async def recovers(record: Any, store: Any, emit: Any) -> None:
        with suppress(TimeoutError):
            await times_out(record, store, emit)
        with suppress(ExceptionGroup):
            await fails_in_a_group(record, store, emit)
        await emit("out", b"1")

    for offset, process in enumerate((times_out, fails_in_a_group, recovers)):
        await world.process(process, DEAD, record(offset, b"a", b"poison"))
    assert world.values == [("dead", b"poison"), ("dead", b"poison"), ("out", b"1")]


OWN_ERRORS = [
    DeliveryTimeoutError("mine"),
    ProducerFencedError("mine"),
    MetadataTimeoutError(""),
    StateStoreError("another application's"),
    AuthorizationError("mine"),
]


@pytest.mark.parametrize("error", OWN_ERRORS)
async def test_kafka_errors_of_a_processors_own_clients_are_its_records(
    world: World, error: Exception
) -> None:
    async def process(record: Any, store: Any, emit: Any) -> None:
        raise error

    await world.process(process, DEAD, record(7, b"a", b"poison"))
    assert world.values == [("dead", b"poison")]
    with pytest.raises(ProcessingError, match="offset 7, cannot be processed"):
        await world.process(process, "fail", record(7, b"a"))


async def test_a_retriable_error_of_the_output_is_not_the_records(world: World) -> None:
    async def process(record: Any, store: Any, emit: Any) -> None:
        store[b"k"] = b"v"
        await emit("out", b"")

    world.output.problem = DeliveryTimeoutError("the brokers do not answer")
    with pytest.raises(DeliveryTimeoutError):
        await world.process(process, "skip", record(7, b"a"))
    assert world.store.changes == {}


@pytest.mark.parametrize("handler", ["fail", "skip", DEAD])
async def test_a_denied_output_is_not_the_records(world: World, handler: Any) -> None:
    """It is the same error at the start as later, when a commit meets it."""

    async def process(record: Any, store: Any, emit: Any) -> None:
        await emit("out", b"")

    world.output.problem = AuthorizationError("Write is denied")
    with pytest.raises(AuthorizationError, match="Write is denied"):
        await world.process(process, handler, record(7, b"a"))


async def test_a_disk_error_is_not_the_records(world: World, tmp_path: Path) -> None:
    async def process(record: Any, store: Any, emit: Any) -> None:
        store.get(b"k")

    world.rocks.close()
    with pytest.raises(StateStoreError, match="cannot be read"):
        await world.process(process, "skip", record(7, b"a"))
    world.rocks = RocksStore(tmp_path)


async def test_a_retriable_error_of_an_emits_serde_is_not_the_records(world: World) -> None:
    class Registry:
        async def serialize(self, value: Any, context: Any) -> bytes:
            raise DeliveryTimeoutError("the registry does not answer")

    out = Topic[Any, Any]("out", value=Serde(Registry(), None))

    async def process(record: Any, store: Any, emit: Any) -> None:
        await emit(out, 5)

    with pytest.raises(DeliveryTimeoutError):
        await world.process(process, "skip", record(7, b"a"))
