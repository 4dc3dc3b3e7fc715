"""examples/outbox over a real PostgreSQL and real brokers."""

from __future__ import annotations

import asyncio
import gc
import json
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
from kafkaclient.errors import AuthorizationError, BufferFullError
from tests.code_blocks import runs

FOLDER = Path(__file__).parents[1] / "examples" / "outbox"

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


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A delivery that takes longer than ``POLL_S`` is left to the next call."""
    monkeypatch.setattr(relay, "POLL_S", 60.0)


async def start_relay(dsn, bootstrap):
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(FOLDER / "relay.py"), dsn, bootstrap, stderr=PIPE
    )
    while line := await process.stderr.readline():
        if b"sending" in line:
            return process
    pytest.fail("the relay did not start")


async def until_sent(connection):
    async with asyncio.timeout(60):
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
                await relay.send_waiting(connection, producer, set(), {})
        assert await relay.send_waiting(connection, producer, set(), {}) == 1
        assert await relay.send_waiting(connection, producer, set(), {}) == 0
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
        assert await relay.send_waiting(connection, producer, set(), {}) == 3
        assert await relay.send_waiting(connection, producer, set(), {}) == 0
    rows = await connection.fetch("select refused, sent_at from outbox order by id")
    assert "no topic!" in rows[0]["refused"]
    assert "max.request.size" in rows[1]["refused"]
    assert rows[2]["refused"] is None
    assert rows[2]["sent_at"] is not None
    assert [record.value for record in await read_topic(topic)] == [b"3"]


async def test_rows_of_a_missing_topic_hold_up_no_other(
    database, kafka_cluster, topic, create_topic, read_topic, monkeypatch
):
    """More of them than a pass reads. They are sent when the topic is there."""
    monkeypatch.setattr(relay, "MOST", 3)
    await create_topic(topic, 1)
    _, connection = database
    query = "insert into outbox (topic, value) values ($1, $2)"
    missing, failed = f"{topic}-missing", set()
    for name, value in ((missing, b"1"), (missing, b"2"), (missing, b"3"), (topic, b"4")):
        await connection.execute(query, name, value)
    options = {"max_block_ms": 3000, "allow_auto_create_topics": False}
    async with Producer(kafka_cluster.bootstrap, **options) as producer:
        assert await relay.send_waiting(connection, producer, failed, {}) == 0
        assert failed == {missing}
        assert await relay.send_waiting(connection, producer, failed, {}) == 1
        await create_topic(missing, 1)
        sent = 0
        while not sent:  # brokers learn of the topic one after the other
            sent = await relay.send_waiting(connection, producer, set(), {})
        assert sent == 3
    assert [record.value for record in await read_topic(topic)] == [b"4"]
    assert [record.value for record in await read_topic(missing)] == [b"1", b"2", b"3"]


async def test_a_row_that_the_broker_refuses_is_not_sent_again(
    database, kafka_cluster, topic, create_topic, read_topic
):
    """A compacted topic takes no record without a key."""
    await create_topic(topic, 1, config={"cleanup.policy": "compact"})
    _, connection = database
    query = "insert into outbox (topic, key, value) values ($1, $2, $3)"
    for key, value in ((b"k", b"1"), (None, b"2"), (b"k", b"3")):
        await connection.execute(query, topic, key, value)
    failed = set()
    async with Producer(kafka_cluster.bootstrap) as producer:
        assert await relay.send_waiting(connection, producer, failed, {}) == 3
    assert not failed
    rows = await connection.fetch("select refused from outbox order by id")
    assert [bool(row["refused"]) for row in rows] == [False, True, False]
    assert [record.value for record in await read_topic(topic)] == [b"1", b"3"]


async def test_a_topic_whose_deliveries_fail_is_left_out(database):
    """Without this, as many such rows as a pass reads would hold up all others."""
    _, connection = database
    query = "insert into outbox (topic, value) values ($1, $2)"
    for name in ("denied", "open"):
        await connection.execute(query, name, b"v")

    class Denied:
        async def send(self, topic, value, key, headers):
            future = asyncio.get_running_loop().create_future()
            if topic == "denied":
                future.set_exception(AuthorizationError("Write"))
            else:
                future.set_result(None)
            return future

    failed = set()
    assert await relay.send_waiting(connection, Denied(), failed, {}) == 1
    assert failed == {"denied"}


async def test_deliveries_that_are_retried_hold_up_no_other_topic(database, monkeypatch):
    """The topic was deleted after the send, for example. Its later rows wait, and those of other
    topics are sent and marked."""
    monkeypatch.setattr(relay, "POLL_S", 0.1)
    _, connection = database
    query = "insert into outbox (topic, value) values ($1, $2)"
    for row in (("deleted", b"1"), ("open", b"2")):
        await connection.execute(query, *row)
    deliveries, failed, pending = {}, set(), {}

    class Retrying:
        async def send(self, topic, value, key, headers):
            deliveries[value] = asyncio.get_running_loop().create_future()
            if topic == "open":
                deliveries[value].set_result(None)
            return deliveries[value]

    async def send():
        async with asyncio.timeout(30):
            return await relay.send_waiting(connection, Retrying(), failed, pending)

    async def waiting():
        rows = await connection.fetch("select value from outbox where sent_at is null order by id")
        return [row["value"] for row in rows]

    assert await send() == 1
    assert await waiting() == [b"1"]
    for row in (("deleted", b"3"), ("open", b"4")):
        await connection.execute(query, *row)
    assert await send() == 1
    assert await waiting() == [b"1", b"3"]
    assert not failed
    deliveries[b"1"].set_result(None)  # the topic is there again
    assert await send() == 1
    deliveries[b"3"] = None
    sending = asyncio.create_task(send())
    while deliveries[b"3"] is None:
        await asyncio.sleep(0.001)
    deliveries[b"3"].set_result(None)
    assert await sending == 1
    assert await waiting() == []
    assert not pending


async def test_the_rows_behind_a_failed_send_keep_their_order(database):
    """The call raises, as with a full buffer; the next call would not."""
    _, connection = database
    query = "insert into outbox (topic, key, value) values ($1, $2, $3)"
    for row in (("a", b"k", b"1"), ("a", b"k", b"2"), ("b", b"k", b"3"), ("a", b"k", b"4")):
        await connection.execute(query, *row)
    sent = []

    class Full:
        async def send(self, topic, value, key, headers):
            if value == b"2" and not failed:
                raise BufferFullError("buffer.memory")
            sent.append(value)
            return asyncio.ensure_future(asyncio.sleep(0))

    failed = set()
    assert await relay.send_waiting(connection, Full(), failed, {}) == 2
    assert sorted(sent) == [b"1", b"3"]
    assert failed == {"a"}
    assert await relay.send_waiting(connection, Full(), failed, {}) == 0
    failed.clear()
    failed.add("c")  # so that Full() sends
    assert await relay.send_waiting(connection, Full(), failed, {}) == 2
    assert sent[2:] == [b"2", b"4"]


async def test_a_relay_ends_with_its_connection(database, monkeypatch):
    """While it waits for a delivery: another relay may have the lock by then."""
    dsn, connection = database
    await shop.place_order(connection, "t", "ann", 7)
    sent, stopped = asyncio.Event(), []

    class Silent:
        async def start(self):
            pass

        async def send(self, *_, **__):
            sent.set()
            return asyncio.get_running_loop().create_future()

        async def stop(self, timeout):
            stopped.append(timeout)

    monkeypatch.setattr(relay, "Producer", lambda *_, **__: Silent())
    async with asyncio.timeout(30):
        running = asyncio.create_task(relay.run(dsn, "nowhere:9092"))
        await sent.wait()
        await connection.execute(
            "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted"
        )
        with pytest.raises(ConnectionError, match="connection to the database has ended"):
            await running
    assert stopped == [0]


async def test_a_relay_that_ends_in_a_delivery_logs_no_error_of_asyncio(database, caplog):
    _, connection = database
    gc.collect()  # what other tests have left in this process
    caplog.clear()
    await shop.place_order(connection, "t", "ann", 7)
    sent = asyncio.Event()

    class Silent:
        async def send(self, *_, **__):
            sent.set()
            return asyncio.get_running_loop().create_future()

    sending = asyncio.create_task(relay.send_waiting(connection, Silent(), set(), {}))
    await sent.wait()
    for _ in range(10):  # until it waits for the delivery
        await asyncio.sleep(0)
    sending.cancel()
    await asyncio.wait([sending])
    assert sending.cancelled()
    del sending  # with its frames
    await asyncio.sleep(0)
    gc.collect()  # an exception that was not retrieved is logged when its future is freed
    assert not caplog.records


async def test_a_change_that_is_rolled_back_sends_nothing(database, kafka_cluster, topic):
    _, connection = database
    change = connection.transaction()
    await change.start()
    await shop.place_order(connection, topic, "ann", 7)
    await change.rollback()
    async with Producer(kafka_cluster.bootstrap) as producer:
        assert await relay.send_waiting(connection, producer, set(), {}) == 0
    assert await connection.fetchval("select count(*) from orders") == 0


@runs("docs/how-to/outbox.md", "sql", together=True, name="blocks")
async def test_the_statements_of_the_page(database, blocks):
    _, connection = database
    recognize, clear = (block.text() for block in blocks)
    await connection.execute("create table processed (outbox_id bigint primary key)")
    assert await connection.execute(recognize, 7) == "INSERT 0 1"
    assert await connection.execute(recognize, 7) == "INSERT 0 0"
    await shop.place_order(connection, "t", "ann", 7)
    await shop.place_order(connection, "t", "ann", 8)
    await connection.execute("update outbox set sent_at = now() - interval '8 days' where id = 1")
    assert await connection.execute(clear) == "DELETE 1"
