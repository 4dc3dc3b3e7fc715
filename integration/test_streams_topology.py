"""Applications with several processors, types and repartition topics, on real brokers."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from integration.streams_support import GUARANTEES, application, records, running, until
from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.errors import OffsetOutOfRangeError, StreamsError, UnknownTopicError
from kafkaclient.streams import RepartitionTopic, Store, StreamsApp, Topic
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

    from kafkaclient.streams import Emit, KeyValueStore, Record

pytestmark = pytest.mark.timeout(180)

PARTITIONS = 3
LINES = 300
WORDS = ["to", "be", "or", "not", "that", "is", "the", "question"]


def word_count(
    bootstrap: str, topic: str, path: Path, guarantee: str, **options: Any
) -> StreamsApp:
    app = application(
        bootstrap,
        topic,
        path,
        processing_guarantee=guarantee,
        session_timeout_ms=6_000,
        repartition_purge_interval_ms=500,
        **options,
    )
    counts = Topic(f"{topic}-counts", key=str, value=int)

    @app.processor(topic, value=str)
    async def split(record: Record[bytes | None, str], emit: Emit) -> None:
        for word in record.value.split():
            await emit("words", word, key=word)

    @app.processor("words", key=str, value=str, store=Store("counts", key=str, value=int))
    async def count(record: Record[str, str], store: KeyValueStore[str, int], emit: Emit) -> None:
        store[record.key] = store.get(record.key, 0) + 1
        await emit(counts, store[record.key], record.key)

    return app


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_words_are_counted_by_two_instances(
    kafka_cluster, topic, create_topic, tmp_path, guarantee, caplog
) -> None:
    """The repartition topic is made, and purged. Each word counts once."""
    caplog.set_level(logging.INFO, "kafkaclient.streams.runtime.topics")
    bootstrap = kafka_cluster.bootstrap
    await create_topic(topic, PARTITIONS)
    await create_topic(f"{topic}-counts", PARTITIONS)
    sent: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        first, second = (word_count(bootstrap, topic, tmp_path / n, guarantee) for n in "ab")
        works = await stack.enter_async_context(running(first))
        producer = await stack.enter_async_context(Producer(bootstrap))
        admin = await stack.enter_async_context(Admin(bootstrap))
        for number in range(LINES):
            words = [WORDS[(number + step) % len(WORDS)] for step in range(4)]
            sent.update(words)
            await producer.send(topic, " ".join(words).encode())
            if number == LINES // 3:
                await stack.enter_async_context(running(second))
            await asyncio.sleep(0.01)
        await producer.flush()

        async def counted() -> bool:
            last = {}
            for record in await records(bootstrap, f"{topic}-counts", PARTITIONS):
                last[record.key.decode()] = int(record.value)
            return last == sent

        await until(counted, works)
        internal = f"app-{topic}-words-repartition"
        assert f"the application makes the repartition topic {internal}" in caplog.text
        described = await admin.describe_topic(internal)
        assert len(described.partitions) == PARTITIONS

        async def purged() -> bool:
            return sum(1 for _ in await records(bootstrap, internal, PARTITIONS)) == 0

        await until(purged, works)
        wanted = {f"{sub}_{number}" for sub in (0, 1) for number in range(PARTITIONS)}

        async def all_have_owners() -> bool:
            return {str(found.task) for app in (first, second) for found in app.tasks()} >= wanted

        await until(all_have_owners, works)
    found = await records(bootstrap, f"{topic}-counts", PARTITIONS)
    by_key: dict[str, list[int]] = {}
    for record in found:
        by_key.setdefault(record.key.decode(), []).append(int(record.value))
    assert by_key == {word: list(range(1, count + 1)) for word, count in sent.items()}


async def test_inputs_and_stores_are_shared(kafka_cluster, topic, create_topic, tmp_path) -> None:
    """Two processors share a store; one has two inputs and two stores. A restart without the
    directory restores both stores."""
    bootstrap, other, out = kafka_cluster.bootstrap, f"{topic}-b", f"{topic}-out"
    for name in (topic, other, out):
        await create_topic(name, 2)
    balance = Store("balance", key=str, value=int)

    def made(path: Path) -> StreamsApp:
        app = application(bootstrap, topic, path)

        @app.processor(topic, other, key=str, value=int, stores=[balance, Store("seen")])
        async def add(record, balance, seen, emit) -> None:
            balance[record.key] = balance.get(record.key, 0) + record.value
            seen[b"n"] = b"%d" % (int(seen.get(b"n") or 0) + 1)
            await emit("asked", 1, record.key)

        @app.processor(RepartitionTopic("asked", key=str, value=int), store=balance)
        async def tell(record, store, emit) -> None:
            await emit(out, b"%d" % store[record.key], record.key.encode())

        return app

    async def told() -> list[int]:
        return [int(record.value) for record in await records(bootstrap, out, 2)]

    async with Producer(bootstrap) as producer:
        for path, expected in (("a", {30}), ("b", {30, 60})):
            async with running(made(tmp_path / path)) as works:
                for number in range(10):
                    await producer.send((topic, other)[number % 2], b"3", b"k")
                await producer.flush()

                async def done(expected: set[int] = expected) -> bool:
                    return expected <= set(await told())

                await until(done, works)


async def test_repartition_topics_begin_at_their_first_offset(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    """With ``latest``, records would be lost that one task emits before the next one begins."""
    bootstrap = kafka_cluster.bootstrap
    await create_topic(topic, 1)
    await create_topic(f"{topic}-counts", 1)
    await create_topic(f"app-{topic}-words-repartition", 1)
    app = word_count(bootstrap, topic, tmp_path, "at_least_once", auto_offset_reset="latest")
    async with Producer(bootstrap) as producer:
        await (await producer.send(topic, b"not this"))
        for _ in range(3):
            await (await producer.send(f"app-{topic}-words-repartition", b"be", b"be"))
        async with running(app) as works:

            async def counted() -> bool:
                return [r.value for r in await records(bootstrap, f"{topic}-counts", 1)] == [
                    b"1",
                    b"2",
                    b"3",
                ]

            await until(counted, works)


async def test_an_input_by_name_may_be_ambiguous_or_missing(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    """No topic is made for a name that only the reader's code has."""
    bootstrap = kafka_cluster.bootstrap
    for name in (topic, "ambiguous-input", f"app-{topic}-ambiguous-input-repartition"):
        await create_topic(name, 1)
    ambiguous = application(bootstrap, topic, tmp_path)

    @ambiguous.processor(topic)
    async def split(record, emit) -> None:
        await emit("ambiguous-input", record.value)

    @ambiguous.processor("ambiguous-input")
    async def read(record, emit) -> None:
        """Never called."""

    with pytest.raises(StreamsError, match=f"ambiguous-input exists, and so does app-{topic}"):
        await ambiguous.run()
    late = application(bootstrap, topic, tmp_path)

    @late.processor(topic, "late-input")
    async def compare(record, emit) -> None:
        assert record.topic != "late-input"

    with pytest.raises(StreamsError, match="topic late-input does not exist"):
        await late.run()


async def test_inputs_of_a_store_need_the_same_number_of_partitions(
    kafka_cluster, topic, create_topic, tmp_path
) -> None:
    await create_topic(topic, 2)
    await create_topic(f"{topic}-b", 3)
    app = application(kafka_cluster.bootstrap, topic, tmp_path)

    @app.processor(topic, f"{topic}-b", store="s")
    async def process(record, store, emit) -> None:
        """Never called."""

    with pytest.raises(StreamsError, match=f"store s .*{topic} has 2, {topic}-b has 3"):
        await app.run()


async def test_records_are_deleted(kafka_cluster, topic, create_topic) -> None:
    await create_topic(topic, 2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with (
        Producer(kafka_cluster.bootstrap) as producer,
        Admin(kafka_cluster.bootstrap) as admin,
    ):
        for partition in (0, 0, 0, 1, 1):
            await (await producer.send(topic, b"x", partition=partition))
        assert await admin.delete_records({first: 2, second: -1}) == {first: 2, second: 2}
        assert await admin.delete_records({first: 1}) == {first: 2}
        assert len(await records(kafka_cluster.bootstrap, topic, 2)) == 1
        with pytest.raises(OffsetOutOfRangeError, match=f"deleting records of {topic}-0"):
            await admin.delete_records({first: 9})
        with pytest.raises(UnknownTopicError, match=f"{topic}-7"):
            await admin.delete_records({TopicPartition(topic, 7): 1})
