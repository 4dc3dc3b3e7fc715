"""Applications on real brokers whose records fail: by their processor, or by the broker."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from integration.streams_support import GUARANTEES, application, equals, records, running, until
from kafkaclient import Producer
from kafkaclient.errors import (
    DeserializationError,
    ProcessingError,
    StreamsError,
)
from kafkaclient.streams import DeadLetter, StreamsApp

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_failing_records_go_where_the_error_handler_says(
    kafka_cluster, topic, create_topic, tmp_path, guarantee
) -> None:
    bootstrap, dead, out = kafka_cluster.bootstrap, f"{topic}-dead", f"{topic}-out"
    for name in (topic, dead, out):
        await create_topic(name, 1)

    def made(**options: Any) -> StreamsApp:
        app = application(bootstrap, topic, tmp_path, processing_guarantee=guarantee)

        @app.processor(topic, store="s", value=int, **options)
        async def invert(record, store, emit) -> None:
            store[b"last"] = b"%d" % record.value
            await emit(out, b"before")
            await emit(out, b"%.2f" % (1 / record.value))

        return app

    async with Producer(bootstrap) as producer:
        for value in (b"4", b"four", b"0", b"2"):
            await producer.send_and_wait(topic, value, b"k", headers=[("h", b"1")])
    with pytest.raises(DeserializationError, match=f"at {topic}-0, offset 1, cannot be decoded"):
        await made().run()
    with pytest.raises(ProcessingError, match="offset 2, cannot be processed: ZeroDivision"):
        await made(deserialization_exception_handler="skip").run()
    app = made(on_error=DeadLetter(dead))

    async def last() -> list[bytes]:
        return [record.value for record in await records(bootstrap, out)][-1:]

    async with running(app) as task:
        await until(equals(last, [b"0.50"]), task)
    values = [record.value for record in await records(bootstrap, out)]
    if guarantee == "exactly_once_v2":
        assert values == [b"before", b"0.25", b"before", b"0.50"]
    lost = [(record.key, record.value) for record in await records(bootstrap, dead)]
    assert (b"k", b"0") in lost
    headers = dict((await records(bootstrap, dead))[-1].headers)
    assert headers["h"] == b"1"
    assert headers["__streams.errors.offset"] == b"2"
    assert headers["__streams.errors.exception"] == b"builtins.ZeroDivisionError"


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_what_a_broker_refuses_is_its_records_error(
    kafka_cluster, topic, create_topic, tmp_path, guarantee
) -> None:
    """Emitted records and store changes beyond max.message.bytes, which differ each time. Without a
    crash, no change is applied twice at least once either."""
    bootstrap, out, dead = kafka_cluster.bootstrap, f"{topic}-out", f"{topic}-dead"
    changelog = f"app-{topic}-s-changelog"
    limit = {"max.message.bytes": "2000"}
    await create_topic(topic, 1)
    await create_topic(dead, 1)
    await create_topic(out, 1, config=limit)
    await create_topic(changelog, 1, config=limit | {"cleanup.policy": "compact"})

    def made(handler: Any) -> StreamsApp:
        app = application(bootstrap, topic, tmp_path, processing_guarantee=guarantee)

        @app.processor(topic, store="s", on_error=handler)
        async def grow(record, store, emit) -> None:
            size = 5000 if record.value.startswith(b"big") else 10
            store[record.value] = os.urandom(5000 if record.value == b"big change" else 10)
            store[b"count"] = b"%d" % (int(store.get(b"count") or 0) + 1)
            await emit(out, record.value)
            if record.value != b"big change":
                await emit(out, os.urandom(size), b"content")

        return app

    values = [b"1", b"big 2", b"3", b"big change", b"5", b"big 6", b"7"]
    async with Producer(bootstrap) as producer:
        for value in values:
            await producer.send_and_wait(topic, value)
    # Of two refused in one commit, the first answer counts: another broker may have the changelog.
    refused = rf"offset (1, .* to {out}|3, .* to {changelog})-0: a batch of 50\d\d b"
    with pytest.raises(ProcessingError, match=refused):
        await made("fail").run()

    async def names(name: str) -> list[bytes]:
        return [each.value for each in await records(bootstrap, name) if each.key is None]

    app = made(DeadLetter(dead))

    async def is_done() -> bool:
        is_last = (await names(out))[-1:] == [b"7"]
        return is_last and app.metrics().instance["dropped-records-total"] >= 3

    async with running(app) as task:
        await until(is_done, task)
    assert app.metrics().instance["dropped-records-total"] == 3
    small = [b"1", b"3", b"5", b"7"]
    if guarantee == "exactly_once_v2":
        assert await names(out) == small
        assert await names(dead) == [b"big 2", b"big change", b"big 6"]
    assert set(small) <= set(await names(out))
    assert set(await names(dead)) == {b"big 2", b"big change", b"big 6"}
    stored = {each.key: each.value for each in await records(bootstrap, changelog)}
    assert stored.pop(b"count") == b"4"
    assert stored.keys() == set(small)


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_a_dead_letter_that_the_broker_refuses_ends_run(
    kafka_cluster, topic, create_topic, tmp_path, guarantee
) -> None:
    bootstrap, dead = kafka_cluster.bootstrap, f"{topic}-dead"
    await create_topic(topic, 1)
    await create_topic(dead, 1, config={"max.message.bytes": "2000"})
    app = application(bootstrap, topic, tmp_path, processing_guarantee=guarantee)

    @app.processor(topic, store="s", on_error=DeadLetter(dead))
    async def fail(record, store, emit) -> None:
        raise ValueError("no")

    async with Producer(bootstrap) as producer:
        await producer.send_and_wait(topic, os.urandom(5000))
    with pytest.raises(
        StreamsError, match=rf"the dead letter of the record at {topic}-0, offset 0, .*to {dead}-0"
    ):
        await app.run()


class GiveUp(BaseException):
    pass


async def give_up() -> None:
    raise GiveUp


async def exit_generator() -> None:
    raise GeneratorExit


async def cancel_in_time() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_later(0.2, task.cancel)
    await asyncio.sleep(30)


async def time_out() -> None:
    async with asyncio.timeout(0.2):
        await asyncio.sleep(30)


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_however_a_processor_ends_nothing_is_half_committed(
    kafka_cluster, topic, create_topic, tmp_path, guarantee
) -> None:
    bootstrap, out = kafka_cluster.bootstrap, f"{topic}-out"
    for name in (topic, out):
        await create_topic(name, 1)

    def made(bad: Callable[[], Awaitable[None]], handler: str = "fail") -> StreamsApp:
        app = application(bootstrap, topic, tmp_path, processing_guarantee=guarantee)

        @app.processor(topic, store="s", on_error=handler)
        async def count(record, store, emit) -> None:
            store[record.value] = b"%d" % (int(store.get(record.value) or 0) + 1)
            await emit(out, record.value + b"=" + store[record.value])
            if record.value == b"1":
                await bad()

        return app

    async with Producer(bootstrap) as producer:
        for value in (b"0", b"1", b"2"):
            await producer.send_and_wait(topic, value)
    with pytest.raises(GiveUp):
        await made(give_up, "skip").run()
    with pytest.raises(GeneratorExit):
        await made(exit_generator).run()
    for handler in ("fail", "skip"):
        with pytest.raises(StreamsError, match=f"{topic}-0, offset 1. A processor must not cancel"):
            await made(cancel_in_time, handler).run()
    with pytest.raises(ProcessingError, match="offset 1, cannot be processed: TimeoutError"):
        await made(time_out).run()

    async def written() -> list[bytes]:
        return [each.value for each in await records(bootstrap, out)]

    async def is_done() -> bool:
        return (await written())[-1:] == [b"2=1"]

    async with running(made(time_out, "skip")) as task:
        await until(is_done, task)
    found = await written()
    assert set(found) == {b"0=1", b"2=1"}
    assert len(found) == 2 or guarantee == "at_least_once"
    changes = await records(bootstrap, f"app-{topic}-s-changelog")
    assert b"1" not in {each.key for each in changes}
