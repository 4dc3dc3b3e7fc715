"""examples/outbox over a real PostgreSQL and real brokers."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from pathlib import Path

import asyncpg
import pytest

from examples.outbox import relay, shop
from integration.postgres import postgres
from kafkaclient import Producer

FOLDER = Path(__file__).parents[1] / "examples" / "outbox"
PAGE = (Path(__file__).parents[1] / "docs" / "outbox.md").read_text("utf-8")

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def server():
    with postgres() as dsn:
        yield dsn


@pytest.fixture
async def database(server):
    """A connection to a database with the tables, and its address."""
    connection = await asyncpg.connect(server)
    await connection.execute("drop schema public cascade; create schema public")
    await connection.execute((FOLDER / "schema.sql").read_text())
    yield server, connection
    await connection.close()


async def start_relay(dsn, bootstrap):
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(FOLDER / "relay.py"), dsn, bootstrap, stderr=PIPE
    )
    while line := await process.stderr.readline():
        if b"sending" in line:
            return process
    pytest.fail("the relay did not start")


async def until_sent(connection):
    async with asyncio.timeout(30):
        while await connection.fetchval("select count(*) from outbox where sent_at is null"):
            await asyncio.sleep(0.02)


def outbox_id(record):
    ((name, value),) = record.headers
    assert name == "outbox-id"
    return int(value)


async def test_a_relay_that_is_killed_loses_nothing(
    database, kafka_cluster, topic, create_topic, read_topic
):
    """A killed relay may send records twice, which their headers tell. They come in the order of
    the ids."""
    await create_topic(topic, 3)
    dsn, connection = database
    placing = asyncio.create_task(shop.run(dsn, topic, 600))
    for _ in range(3):
        process = await start_relay(dsn, kafka_cluster.bootstrap)
        await asyncio.sleep(0.15)
        process.kill()
        await process.communicate()
    process = await start_relay(dsn, kafka_cluster.bootstrap)
    await placing
    await until_sent(connection)
    process.send_signal(signal.SIGTERM)
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()

    seen: dict[int, bytes] = {}
    by_key: dict[bytes, list[int]] = {}
    for record in sorted(await read_topic(topic), key=lambda r: (r.partition, r.offset)):
        number = outbox_id(record)
        assert seen.setdefault(number, record.value) == record.value
        if number not in by_key.setdefault(record.key, []):
            by_key[record.key].append(number)
    assert sorted(json.loads(value)["item"] for value in seen.values()) == list(range(600))
    for numbers in by_key.values():
        assert numbers == sorted(numbers)


async def test_a_crash_between_delivery_and_mark_sends_twice(
    database, kafka_cluster, topic, create_topic, read_topic, monkeypatch
):
    await create_topic(topic, 1)
    _, connection = database
    await shop.place_order(connection, topic, "ann", 7)

    async def crash(*_):
        raise ConnectionError("the relay ends here")

    async with Producer(kafka_cluster.bootstrap) as producer:
        with monkeypatch.context() as patch:
            patch.setattr(relay, "mark", crash)
            with pytest.raises(ConnectionError):
                await relay.send_waiting(connection, producer)
        assert await relay.send_waiting(connection, producer) == 1
        assert await relay.send_waiting(connection, producer) == 0
    records = await read_topic(topic)
    assert Counter(map(outbox_id, records)) == {1: 2}
    assert len({record.value for record in records}) == 1


async def test_a_row_that_cannot_be_sent_holds_up_no_other(
    database, kafka_cluster, topic, create_topic, read_topic
):
    await create_topic(topic, 1)
    _, connection = database
    query = "insert into outbox (topic, value) values ($1, $2)"
    for name, value in (("no topic!", b"1"), (topic, bytes(2_000_000)), (topic, b"3")):
        await connection.execute(query, name, value)
    async with Producer(kafka_cluster.bootstrap) as producer:
        assert await relay.send_waiting(connection, producer) == 3
        assert await relay.send_waiting(connection, producer) == 0
    rows = await connection.fetch("select refused, sent_at from outbox order by id")
    assert "no topic!" in rows[0]["refused"]
    assert "max.request.size" in rows[1]["refused"]
    assert rows[2]["refused"] is None
    assert rows[2]["sent_at"] is not None
    assert [record.value for record in await read_topic(topic)] == [b"3"]


async def test_a_change_that_is_rolled_back_sends_nothing(database, kafka_cluster, topic):
    _, connection = database
    change = connection.transaction()
    await change.start()
    await shop.place_order(connection, topic, "ann", 7)
    await change.rollback()
    async with Producer(kafka_cluster.bootstrap) as producer:
        assert await relay.send_waiting(connection, producer) == 0
    assert await connection.fetchval("select count(*) from orders") == 0


async def test_the_statements_of_the_page(database):
    _, connection = database
    recognize, clear = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    await connection.execute("create table processed (outbox_id bigint primary key)")
    assert await connection.execute(recognize, 7) == "INSERT 0 1"
    assert await connection.execute(recognize, 7) == "INSERT 0 0"
    await shop.place_order(connection, "t", "ann", 7)
    await shop.place_order(connection, "t", "ann", 8)
    await connection.execute("update outbox set sent_at = now() - interval '8 days' where id = 1")
    assert await connection.execute(clear) == "DELETE 1"
