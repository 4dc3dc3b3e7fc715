"""Applications in memory: against a pure Python model, and their errors."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import (
    ConfigError,
    DeliveryTimeoutError,
    DeserializationError,
    KafkaError,
    PartitionOutOfRangeError,
    ProcessingError,
    StateStoreError,
    StreamsError,
)
from kafkaclient.streams import (
    DeadLetter,
    RepartitionTopic,
    Serde,
    Store,
    StreamsApp,
    Topic,
    TopologyTest,
)
from kafkaclient.wire.murmur2 import partition_for_key
from tests.streams.fakes import GiveUp

if TYPE_CHECKING:
    from kafkaclient.streams import Emit, KeyValueStore, Record


def app() -> StreamsApp:
    return StreamsApp("localhost:1", application_id="words")


def word_count() -> StreamsApp:
    made = app()

    @made.processor("lines", value=str)
    async def split(record: Record[bytes | None, str], emit: Emit) -> None:
        for word in record.value.split():
            await emit("words", word, key=word)

    @made.processor("words", key=str, value=str, store=Store("counts", key=str, value=int))
    async def count(record: Record[str, str], store: KeyValueStore[str, int], emit: Emit) -> None:
        store[record.key] = store.get(record.key, 0) + 1
        await emit(Topic("totals", key=str, value=int), store[record.key], record.key)

    return made


words = st.lists(st.text("abcdé", min_size=1, max_size=2), max_size=5)


@given(lines=st.lists(words, max_size=8), partitions=st.integers(1, 4))
def test_words_are_counted(lines: list[list[str]], partitions: int) -> None:
    totals = Topic("totals", key=str, value=int)
    with TopologyTest(word_count(), partitions=partitions) as test:
        for line in lines:
            test.send("lines", " ".join(line))
        expected = Counter(word for line in lines for word in line)
        for partition in range(partitions):
            found = dict(test.store("counts", partition).items())
            assert found == {
                word: count
                for word, count in expected.items()
                if partition_for_key(word.encode(), partitions) == partition
            }
        seen: Counter[str] = Counter()
        for record in test.records(totals):
            seen[record.key] += 1
            assert record.value == seen[record.key]
        assert seen == expected


steps = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]), st.sampled_from("kl"), st.integers(-2, 3) | st.just("bad")
    ),
    max_size=12,
)


@given(steps=steps, handler=st.sampled_from(["skip", "dead"]))
def test_shared_stores_and_failing_records(steps: list[tuple[str, str, Any]], handler: str) -> None:
    """Two inputs, two stores that two processors share, records that fail after their changes."""
    made = app()
    sums, last = Store("sums", key=str, value=int), Store("last", key=str, value=str)
    on_error: Any = "skip" if handler == "skip" else DeadLetter("dead")

    @made.processor("a", "b", key=str, value=int, stores=[sums, last], on_error=on_error)
    async def add(record, sums, last, emit) -> None:
        sums[record.key] = sums.get(record.key, 0) + record.value
        last[record.key] = record.topic
        await emit("told", sums[record.key], record.key)
        if record.value < 0:
            raise ValueError("negative")

    @made.processor(RepartitionTopic("told", key=str, value=int), store=sums)
    async def tell(record, store, emit) -> None:
        if record.value == 3:
            del store[record.key]

    expected: dict[str, int] = {}
    topics: dict[str, str] = {}
    failed = 0
    with TopologyTest(made) as test:
        for topic, key, value in steps:
            written: Any = Topic(topic, key=str)
            data = str(value).encode()
            test.send(written, data, key)
            if value == "bad" or value < 0:
                failed += 1
                continue
            expected[key] = expected.get(key, 0) + value
            topics[key] = topic
            if expected[key] == 3:
                del expected[key]
        assert dict(test.store("sums").items()) == expected
        assert dict(test.store("last").items()) == topics
        assert len(test.records(Topic("dead"))) == (failed if handler == "dead" else 0)


class Step(NamedTuple):
    """A processor of a random application: it reads ``inputs``, adds ``added`` to each value, adds
    the value to its stores, and emits it to the topics of ``outputs``."""

    inputs: list[int]
    added: int
    stores: list[str]
    outputs: list[int]


@st.composite
def applications(draw: st.DrawFn) -> list[Step]:
    """Topic n is read by one processor, which emits to topics with larger numbers only."""
    made, first = [], 0
    for _ in range(draw(st.integers(1, 4))):
        inputs = list(range(first, first + draw(st.integers(1, 2))))
        first = inputs[-1] + 1
        outputs = st.lists(st.integers(first, 9), max_size=2)
        stores = st.lists(st.sampled_from("xyz"), max_size=2, unique=True)
        made.append(Step(inputs, draw(st.integers(0, 3)), draw(stores), draw(outputs)))
    return made


def application_of(steps: list[Step]) -> StreamsApp:
    made = app()
    for step in steps:

        def declared(step: Step = step) -> Any:
            async def process(record: Any, *rest: Any) -> None:
                *stores, emit = rest
                value = record.value + step.added
                for store in stores:
                    store[record.key] = store.get(record.key, 0) + value
                for output in step.outputs:
                    await emit(Topic(f"t{output}", key=str, value=int), value, record.key)

            return process

        made.processor(
            *(RepartitionTopic(f"t{number}", key=str, value=int) for number in step.inputs),
            stores=[Store(name, key=str, value=int) for name in step.stores],
        )(declared())
    return made


@given(
    steps=applications(),
    sent=st.lists(st.tuples(st.integers(0, 1), st.sampled_from("kl"), st.integers(0, 5))),
)
def test_random_applications(steps: list[Step], sent: list[tuple[int, str, int]]) -> None:
    readers = {number: step for step in steps for number in step.inputs}
    seen: list[Counter[tuple[str, int]]] = [Counter() for _ in range(10)]
    stores: dict[str, Counter[str]] = {name: Counter() for step in steps for name in step.stores}

    def write(topic: int, key: str, value: int) -> None:
        seen[topic][key, value] += 1
        if topic in readers:
            step = readers[topic]
            for name in step.stores:
                stores[name][key] += value + step.added
            for output in step.outputs:
                write(output, key, value + step.added)

    with TopologyTest(application_of(steps)) as test:
        for topic, key, value in sent:
            number = min(topic, steps[0].inputs[-1])
            test.send(f"t{number}", value, key)
            write(number, key, value)
        for number, expected in enumerate(seen):
            records = test.records(Topic(f"t{number}", key=str, value=int))
            assert Counter((each.key, each.value) for each in records) == expected
        for name, counts in stores.items():
            assert Counter(dict(test.store(name).items())) == counts


def test_headers_and_event_time_are_forwarded() -> None:
    made = app()

    @made.processor("in")
    async def copy(record, emit) -> None:
        await emit("out", record.value)
        await emit("out", record.value, headers=(), timestamp_ms=7)

    with TopologyTest(made) as test:
        test.send("in", b"x", timestamp_ms=5, headers=[("a", b"1")])
        found = [(each.timestamp_ms, each.headers) for each in test.records("out")]
    assert found == [(5, (("a", b"1"),)), (7, ())]


def test_time_is_virtual() -> None:
    made = app()

    @made.processor("in")
    async def slow(record, emit) -> None:
        await asyncio.sleep(3600)
        await emit("out", b"late")

    with TopologyTest(made, start_ms=1_000) as test:
        test.send("in", timestamp_ms=-0)
        assert test.now_ms == 3_601_000
        test.advance(1.5)
        assert test.now_ms == 3_602_500
        assert len(test.records("out")) == 1


def test_a_failing_record_raises_as_in_the_application() -> None:
    made = app()

    @made.processor("in", value=int, store=Store("s", key=str, value=int))
    async def process(record, store, emit) -> None:
        store["n"] = record.value
        await emit("out", b"x")
        if record.value > 1:
            store["n"] = "text"

    with TopologyTest(made) as test:
        test.send("in", 1)
        message = r"in-0, offset 1, cannot be processed: TypeError: .* type str is given for int"
        with pytest.raises(ProcessingError, match=message):
            test.send("in", 2)
        assert test.store("s")["n"] == 1
        assert len(test.records("out")) == 1
        with pytest.raises(TypeError, match="type str is given for int"):
            test.send("in", "3")
        with pytest.raises(DeserializationError, match=r"offset 2, cannot be decoded: ValueError"):
            test.send(Topic("in"), b"x")
        with pytest.raises(DeserializationError, match="null, and declared as int, without None"):
            test.send(Topic("in"), None)


def test_emit_after_the_processor_has_returned_writes_nothing() -> None:
    made, leaked = app(), []

    @made.processor("in")
    async def leaking(record, emit) -> None:
        async def later() -> None:
            await asyncio.sleep(1)
            with pytest.raises(StreamsError, match=r"'out'.* called after the processor has"):
                await emit("out", b"x")
            leaked.append(record.offset)

        leaked.append(asyncio.create_task(later()))

    with TopologyTest(made) as test:
        test.send("in")
        test.advance(2)
        assert test.records("out") == []
    assert leaked[1:] == [0]


@pytest.mark.parametrize("handler", ["fail", "skip", DeadLetter("dead")])
def test_a_repartition_topic_that_nobody_reads(handler: Any) -> None:
    """It would become a topic of its plain name, outside of the application."""
    made = app()

    @made.processor("in", on_error=handler)
    async def process(record, emit) -> None:
        await emit(RepartitionTopic("wrods"), b"x")

    @made.processor(RepartitionTopic("words"))
    async def read(record, emit) -> None: ...

    with (
        TopologyTest(made) as test,
        pytest.raises(ProcessingError, match=r"ConfigError: .*'wrods'.* no processor .* are words"),
    ):
        test.send("in", b"x")


def test_serializers_that_return_no_bytes() -> None:
    made = app()
    wrong: Any = Serde(lambda value: value, bytes.decode)

    @made.processor("in")
    async def process(record, emit) -> None:
        await emit(Topic("out", value=wrong), 5)

    with TopologyTest(made) as test, pytest.raises(ProcessingError, match="returned int, not byt"):
        test.send("in", b"x")


def test_stores_can_be_prepared() -> None:
    with TopologyTest(word_count(), partitions=2) as test:
        at = partition_for_key(b"be", 2)
        test.store("counts", at)["be"] = 40
        test.send("lines", "be be")
        assert test.store("counts", at)["be"] == 42


def test_wrong_use_is_named() -> None:
    with TopologyTest(word_count(), partitions={"lines": 2}) as test:
        with pytest.raises(PartitionOutOfRangeError, match=r"'lines' has 2 .*; 2 is not"):
            test.send("lines", "a", partition=2)
        with pytest.raises(StreamsError, match=r"reads topic 'line': .* lines, words"):
            test.send("line", "a")
        with pytest.raises(StreamsError, match="no store 'count': counts"):
            test.store("count")
        with pytest.raises(StreamsError, match="has no partition 5: its inputs have 2"):
            test.store("counts", 5)
    with pytest.raises(StreamsError, match="no processor"):
        TopologyTest(app())
    made = app()

    @made.processor("a", "b", store="s")
    async def process(record, store, emit) -> None: ...

    with pytest.raises(StreamsError, match="a has 2, b has 3"):
        TopologyTest(made, partitions={"a": 2, "b": 3})


@pytest.mark.parametrize(
    ("partitions", "message"),
    [
        (0, "give a number above 0"),
        (-1, "give a number above 0"),
        ("2", "give a number above 0"),
        (True, "give a number above 0"),
        ({"lines": 0}, "give a number above 0"),
        ({"line": 2}, "does not have the input 'lines'"),
        ({"lines": 2, "words": 2}, r"has 'words', which .* RepartitionTopic\('words', part"),
    ],
)
def test_wrong_numbers_of_partitions_are_named(partitions: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TopologyTest(word_count(), partitions=partitions)


def test_records_of_a_topic_that_nobody_knows() -> None:
    made = app()

    @made.processor("in", on_error=DeadLetter("dead"))
    async def process(record, emit) -> None:
        if record.value == b"x":
            await emit("out", b"x")
        else:
            await emit(f"computed-{record.offset}", b"x")

    with TopologyTest(made, partitions={"in": 1, "out": 2}) as test:
        assert test.records("out") == test.records("in") == test.records("dead") == []
        with pytest.raises(StreamsError, match="'computed-0' or has its name, and nothing"):
            test.records("computed-0")
        assert test.records(Topic("computed-0")) == []
        test.send("in", b"y")
        assert len(test.records("computed-0")) == 1


def test_a_closed_test() -> None:
    with TopologyTest(word_count()) as test:
        test.send("lines", "to")
    assert len(test.records("words")) == 1
    with pytest.raises(StreamsError, match="TopologyTest is closed"):
        test.send("lines", "be")
    with pytest.raises(StreamsError, match="TopologyTest is closed"):
        test.advance(1)


def test_asynchronous_functions_serialize() -> None:
    made = app()

    async def serialize(value: int) -> bytes:
        await asyncio.sleep(1)
        return b"%d" % value

    numbers = Topic("numbers", value=Serde(serialize, int))

    @made.processor(numbers)
    async def process(record, emit) -> None:
        await emit(Topic("out", value=Serde(serialize)), record.value + 1)

    with TopologyTest(made) as test:
        test.send(numbers, 5)
        assert [record.value for record in test.records("out")] == [b"6"]
    with pytest.raises(ConfigError, match="a store needs a Serde with two functions"):
        Store("s", value=Serde(serialize, int))


async def test_a_test_is_no_coroutine() -> None:
    with pytest.raises(StreamsError, match="plain test function"):
        TopologyTest(word_count())


def test_a_large_change_fails_its_record() -> None:
    made = app()

    @made.processor("in", store="s", on_error="fail")
    async def process(record, store, emit) -> None:
        store[b"k"] = bytes(2_000_000)

    message = r"in-0, offset 0, .*store 's': the value of key b'k' has 2000000 bytes"
    with TopologyTest(made) as test, pytest.raises(ProcessingError, match=message):
        test.send("in", b"x")
    with pytest.raises(ConfigError):
        app().processor("in", store=b"s")(process)


async def cancel_self() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_later(1, task.cancel)
    await asyncio.sleep(10)


@pytest.mark.parametrize("handler", ["fail", "skip"])
@pytest.mark.parametrize(
    "bad", [GiveUp(), DeliveryTimeoutError("my own producer's"), StateStoreError("mine"), None]
)
def test_errors_end_a_record_as_on_brokers(bad: BaseException | None, handler: Any) -> None:
    made = app()

    @made.processor("in", store="s", on_error=handler)
    async def process(record, store, emit) -> None:
        store[record.value] = b""
        await emit("out", record.value)
        if record.value == b"bad":
            if bad is not None:
                raise bad
            await cancel_self()

    with TopologyTest(made) as test:
        if bad is None:
            with pytest.raises(StreamsError, match=r"in-0, offset 0\. A processor must not"):
                test.send("in", b"bad")
        elif isinstance(bad, GiveUp) or handler == "fail":
            with pytest.raises(GiveUp if isinstance(bad, GiveUp) else ProcessingError):
                test.send("in", b"bad")
        else:
            test.send("in", b"bad")
        test.send("in", b"good")
        is_dropped = handler == "skip" and isinstance(bad, KafkaError)
        assert made.metrics().instance["dropped-records-total"] == int(is_dropped)
        assert [record.value for record in test.records("out")] == [b"good"]
        assert list(test.store("s")) == [b"good"]


@pytest.mark.parametrize("handler", ["fail", "skip", DeadLetter("dead")])
def test_bytes_that_no_type_decodes_reach_the_error_handler(handler: Any) -> None:
    made = app()

    @made.processor("in", key=str, value=int, on_error=handler)
    async def process(record, emit) -> None:
        await emit("out", record.key.encode())

    with TopologyTest(made) as test:
        with pytest.raises(TypeError):
            test.send("in", b"four", "k")
        test.send_bytes("in", b"4", b"good", headers=[("h", b"1")], timestamp_ms=5)
        if handler == "fail":
            for pair in ((b"four", b"k"), (b"4", None)):
                with pytest.raises(DeserializationError, match="in-0, offset"):
                    test.send_bytes("in", *pair)
            return
        test.send_bytes("in", b"four", b"k")
        test.send_bytes("in", b"4")
        assert [record.value for record in test.records("out")] == [b"good"]
        if handler != "skip":
            assert [record.value for record in test.records("dead")] == [b"four", b"4"]
        assert made.metrics().instance["dropped-records-total"] == 2
        with pytest.raises(StreamsError, match="no processor reads topic 'other'"):
            test.send_bytes("other", b"")
