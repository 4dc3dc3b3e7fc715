"""A fake cluster on TCP ports, used by this project's clients and by those of other projects."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import pytest
import uvloop
from aiokafka.admin import AIOKafkaAdminClient

from kafkaclient import Producer, SyncProducer
from kafkaclient.reader import Reader
from kafkaclient.testing import FakeCluster
from kafkaclient.testing.fake import ErrorCode
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

_PATIENCE_S = 20.0
_VALUES = [b"%d" % number for number in range(10)]


def _ports(fake: FakeCluster) -> list[int]:
    return [int(server.rpartition(":")[2]) for server in fake.bootstrap.split(",")]


def _is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


# --- aiokafka ---------------------------------------------------------------------------------


async def test_aiokafka_with_and_without_a_group() -> None:
    async with FakeCluster(partitions=2).serve() as fake:
        fake.create_topic("t")
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=fake.bootstrap, enable_idempotence=True, compression_type="gzip"
        ) as producer:
            for number, value in enumerate(_VALUES):
                await producer.send_and_wait("t", value, partition=number % 2)
        assert [fake.end_offset("t", p) for p in (0, 1)] == [5, 5]
        common: dict[str, Any] = {
            "bootstrap_servers": fake.bootstrap,
            "auto_offset_reset": "earliest",
        }
        async with aiokafka.AIOKafkaConsumer("t", **common) as alone:
            assert await _values(alone) == _VALUES
        common |= {"group_id": "g", "heartbeat_interval_ms": 50, "enable_auto_commit": False}
        async with aiokafka.AIOKafkaConsumer("t", **common) as first:
            assert await _values(first) == _VALUES
            await first.commit()
            async with aiokafka.AIOKafkaConsumer("t", **common) as second:
                await _until(lambda: len(first.assignment()) == len(second.assignment()) == 1)
                assert first.assignment() | second.assignment() == {("t", 0), ("t", 1)}
            await _until(lambda: len(first.assignment()) == 2)
        assert [fake.committed_offset("g", "t", p) for p in (0, 1)] == [5, 5]
        admin = AIOKafkaAdminClient(bootstrap_servers=fake.bootstrap)
        await admin.start()
        assert await admin.list_consumer_groups() == [("g", "consumer")]
        offsets = await admin.list_consumer_group_offsets("g")
        assert {tp: found.offset for tp, found in offsets.items()} == {("t", 0): 5, ("t", 1): 5}
        await admin.close()


async def _values(consumer: aiokafka.AIOKafkaConsumer) -> list[bytes]:
    async with asyncio.timeout(_PATIENCE_S):
        return sorted([(await consumer.getone()).value for _ in _VALUES])


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.02)


async def test_aiokafka_in_transactions() -> None:
    async with FakeCluster(1, partitions=1).serve() as fake:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=fake.bootstrap, transactional_id="tx"
        ) as producer:
            fake.create_topic("t")
            async with producer.transaction():
                await producer.send("t", b"1")
                await producer.send_offsets_to_transaction(
                    {aiokafka.TopicPartition("in", 0): 7}, "g"
                )
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"2")
            await producer.abort_transaction()
        assert [record.value for record in fake.committed_log("t", 0)] == [b"1"]
        assert fake.committed_offset("g", "in", 0) == 7


# --- confluent-kafka --------------------------------------------------------------------------


def _confluent(fake: FakeCluster, **options: Any) -> dict[str, Any]:
    quiet = {"log_level": 0}
    return {"bootstrap.servers": fake.bootstrap, **quiet, **options}


def test_confluent_kafka_with_and_without_a_group() -> None:
    with FakeCluster(partitions=2).serve() as fake:
        admin = confluent_kafka.admin.AdminClient(_confluent(fake))
        new = confluent_kafka.admin.NewTopic("t", 2, 1)
        admin.create_topics([new])["t"].result(_PATIENCE_S)
        producer = confluent_kafka.Producer(_confluent(fake, **{"enable.idempotence": True}))
        for number, value in enumerate(_VALUES):
            producer.produce("t", value, partition=number % 2)
        assert producer.flush(_PATIENCE_S) == 0
        assert [fake.end_offset("t", p) for p in (0, 1)] == [5, 5]

        options = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        alone = confluent_kafka.Consumer(_confluent(fake, **options))
        alone.assign([confluent_kafka.TopicPartition("t", p, 0) for p in (0, 1)])
        assert _polled(alone) == _VALUES
        alone.close()
        member = confluent_kafka.Consumer(_confluent(fake, **options))
        member.subscribe(["t"])
        assert _polled(member) == _VALUES
        member.commit(asynchronous=False)
        described = admin.describe_consumer_groups(["g"])["g"].result(_PATIENCE_S)
        assert (described.state.name, len(described.members)) == ("STABLE", 1)
        member.close()
        assert [fake.committed_offset("g", "t", p) for p in (0, 1)] == [5, 5]


def _polled(consumer: confluent_kafka.Consumer) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + _PATIENCE_S
    while len(found) < len(_VALUES) and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None:
            assert message.error() is None
            found.append(message.value())
    return sorted(found)


# --- this project's clients, and the life of the ports ----------------------------------------


async def test_a_producer_survives_a_stopped_broker_over_tcp() -> None:
    async with FakeCluster(2, partitions=1).serve() as fake:
        fake.create_topic("t", assignments=[[0, 1]])
        ports = _ports(fake)
        async with Producer(fake.bootstrap, retry_backoff_ms=10) as producer:
            await producer.send_and_wait("t", b"1")
            fake.stop_broker(0)
            assert (_is_open(ports[0]), _is_open(ports[1])) == (False, True)
            await producer.send_and_wait("t", b"2")
            fake.start_broker(0)
            assert _ports(fake) == ports
            assert _is_open(ports[0])
            fake.move_leader("t", 0, 0)
            await producer.send_and_wait("t", b"3")
    assert [record.value for record in fake.log("t", 0)] == [b"1", b"2", b"3"]
    assert not any(_is_open(port) for port in ports)
    assert fake.bootstrap == "fake-0:9092,fake-1:9092"
    async with Producer(fake.bootstrap, dialer=fake) as producer:  # in memory again
        await producer.send_and_wait("t", b"4")
    assert fake.end_offset("t", 0) == 4


async def test_a_stalled_broker_answers_when_it_is_resumed() -> None:
    async with FakeCluster(1, partitions=1).serve() as fake, Producer(fake.bootstrap) as producer:
        await producer.send_and_wait("t", b"1")
        fake.stall_broker(0)
        delivery = await producer.send("t", b"2")
        assert not await producer.healthy(timeout=0.05)
        assert not delivery.done()
        fake.resume_broker(0)
        await delivery


async def test_a_reader_gets_new_records_at_once() -> None:
    async with FakeCluster(1, partitions=1).serve() as fake:
        fake.create_topic("t")
        async with (
            Producer(fake.bootstrap) as producer,
            Reader(fake.bootstrap, fetch_max_wait_ms=25_000) as reader,
            reader.read({("t", 0): (0, None)}) as reading,
        ):
            waiting = asyncio.ensure_future(anext(aiter(reading)))
            await _until(lambda: bool(fake.requests_of(ApiKey.FETCH)))
            await producer.send_and_wait("t", b"1")
            async with asyncio.timeout(_PATIENCE_S):
                assert [record.value for record in await waiting] == [b"1"]


def test_the_methods_may_be_called_while_a_thread_serves() -> None:
    with FakeCluster(1, partitions=1).serve() as fake:
        fake.fail_produce("t", 0, ErrorCode.INVALID_RECORD)
        with SyncProducer(fake.bootstrap) as producer:
            with pytest.raises(Exception, match="INVALID_RECORD"):
                producer.send("t", b"1").result(_PATIENCE_S)
            assert producer.send("t", b"2").result(_PATIENCE_S).offset == 0
            fake.control(ApiKey.PRODUCE, lambda _: fake.throttle(0))  # called in the thread
            producer.send("t", b"3").result(_PATIENCE_S)
            fake.stop_broker(0)
            assert fake.connections(0) == 0
        with pytest.raises(ValueError, match="unknown broker 7"):
            fake.stop_broker(7)
    assert [record.value for record in fake.log("t", 0)] == [b"2", b"3"]


def test_a_failing_test_leaves_no_thread_and_no_port() -> None:
    fake = FakeCluster()
    ports: list[int] = []

    def fail(client: socket.socket) -> None:
        with fake.serve():
            ports.extend(_ports(fake))
            client.connect(("127.0.0.1", ports[0]))
            raise KeyError

    with socket.socket() as client:
        with pytest.raises(KeyError):
            fail(client)
        client.settimeout(_PATIENCE_S)
        assert _received(client) == b""  # the connection has ended
    assert not any(_is_open(port) for port in ports)
    assert "fake-kafka" not in [thread.name for thread in threading.enumerate()]


def test_uvloop_can_serve() -> None:
    async def serve() -> None:
        async with FakeCluster(2, partitions=1).serve() as fake:
            async with Producer(fake.bootstrap, retry_backoff_ms=10) as producer:
                await producer.send_and_wait("t", b"1")
                fake.stop_broker(0)
                fake.start_broker(0)
                await producer.send_and_wait("t", b"2")
            reader, writer = await asyncio.open_connection("127.0.0.1", _ports(fake)[0])
        assert await reader.read(1) == b""  # the end of the block has closed it
        writer.close()
        assert fake.end_offset("t", 0) == 2

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(serve(), _PATIENCE_S))


def _received(client: socket.socket) -> bytes:
    try:
        return client.recv(1)
    except ConnectionResetError:
        return b""


async def test_what_cannot_be_done_is_refused() -> None:
    fake = FakeCluster(1)
    with fake.serve():
        with pytest.raises(RuntimeError, match="without dialer="):
            await fake.dial("127.0.0.1", _ports(fake)[0], asyncio.Protocol)
        with pytest.raises(ValueError, match="served already"), fake.serve():
            pass
        with pytest.raises(ValueError, match="keeps its port"):
            fake.set_address(0, "elsewhere")


def test_the_ports_are_on_this_machine_only() -> None:
    with FakeCluster(1).serve() as fake:
        (port,) = _ports(fake)
        addresses = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None)}
        for address in addresses - {"127.0.0.1", "::1"}:
            if ":" in address or address.startswith("127."):
                continue
            with socket.socket() as client:
                client.settimeout(1)
                assert client.connect_ex((str(address), port)) != 0
        with socket.socket() as same:  # another address of this machine has the port free
            same.bind(("127.0.0.2", port))
