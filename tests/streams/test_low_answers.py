"""One low answer of one broker resets no application, and restores no store to a low end; records
that a broker refuses go to ``on_error``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import Producer
from kafkaclient.reader import Reader
from kafkaclient.streams import StreamsApp
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkaclient.testing.fake import Request


def low_end(topic: str, offset: int) -> Callable[[Request], Any]:
    """One answer of a broker that does not know yet that it is not the leader any more."""

    def answer(request: Request) -> Any:
        asked = request.message.topics
        if [each.name for each in asked] != [topic] or asked[0].partitions[0].timestamp != -1:
            return None
        found = {
            "partition_index": 0,
            "error_code": 0,
            "timestamp": -1,
            "offset": offset,
            "leader_epoch": 0,
        }
        return {"topics": [{"name": topic, "partitions": [found]}]}

    return answer


async def counted(fake: FakeCluster, path: Path, last: int) -> list[tuple[int, int]]:
    """Run until this offset is processed: (offset, count) of each record."""
    app = StreamsApp(
        fake.bootstrap,
        application_id="a",
        state_dir=path,
        commit_interval_ms=1,
        consumer_options={"max_partition_fetch_bytes": 100},
    )
    found: list[tuple[int, int]] = []

    @app.processor("in", store="s")
    async def count(record: Any, store: Any, emit: Any) -> None:
        number = int(store.get(b"n") or 0) + 1
        store[b"n"] = b"%d" % number
        found.append((record.offset, number))
        await asyncio.sleep(0.005)

    running = asyncio.create_task(app.run())
    async with asyncio.timeout(20):
        while not running.done() and (last, last + 1) not in found:
            await asyncio.sleep(0.01)
    app.stop()
    await running
    return found


@pytest.mark.parametrize("topic", ["in", "a-s-changelog"])
@pytest.mark.parametrize("has_state", [True, False])
async def test_one_low_answer_changes_nothing(tmp_path: Path, topic: str, has_state: bool) -> None:
    async with FakeCluster(brokers=1).serve() as fake, Producer(fake.bootstrap) as producer:
        fake.create_topic("in", 1)
        for _ in range(10):
            await producer.send_and_wait("in", b"x")
        assert (await counted(fake, tmp_path / "1", 9))[-1] == (9, 10)
        fake.control(ApiKey.LIST_OFFSETS, low_end(topic, 4))
        await producer.send_and_wait("in", b"y")
        again = tmp_path / ("1" if has_state else "2")
        assert await counted(fake, again, 10) == [(10, 11)]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("code", [32, 87])
async def test_a_record_that_a_broker_refuses_is_skipped(
    tmp_path: Path, guarantee: Any, code: int
) -> None:
    async with FakeCluster(brokers=1).serve() as fake, Producer(fake.bootstrap) as producer:
        fake.create_topic("in", 1)
        fake.create_topic("out", 1)
        for value in (b"a", b"bad", b"c"):
            await producer.send_and_wait("in", value)
        fake.fail_produce("out", 0, code, record_errors=[(1, "not this one")])
        app = StreamsApp(
            fake.bootstrap,
            application_id="a",
            state_dir=tmp_path,
            processing_guarantee=guarantee,
            producer_options={"linger_ms": 100},
        )

        @app.processor("in", on_error="skip")
        async def copy(record: Any, emit: Any) -> None:
            await emit("out", record.value)

        running = asyncio.create_task(app.run())
        tp = TopicPartition("out", 0)
        values: list[bytes | None] = []
        async with (
            asyncio.timeout(20),
            Reader(fake.bootstrap, isolation_level="read_committed") as reader,
        ):
            async for batch in reader.read({tp: 0}):
                values += [value for _, value in batch.pairs()]
                if b"c" in values:
                    break
        app.stop()
        await running
        assert set(values) == {b"a", b"c"}
        if guarantee == "exactly_once_v2":
            assert values == [b"a", b"c"]
