"""Quotas, forked children and servers that are no brokers, beside real brokers."""

from __future__ import annotations

import asyncio
import os

import pytest

from kafkaclient import Producer
from kafkaclient.errors import KafkaError, ProducerStateError
from kafkaclient.testing.inspect import inspect

pytestmark = pytest.mark.timeout(180)


async def test_a_quota_slows_down_and_fails_nothing(kafka_cluster, topic, create_topic, read_topic):
    """KIP-219: the broker's wish for silence is heeded; records are accepted all the same."""
    await create_topic(topic, 1)
    client = f"throttled-{os.getpid()}"
    result = await kafka_cluster.run_tool(
        "org.apache.kafka.tools.ConfigCommand",
        *("--bootstrap-server", kafka_cluster.bootstrap, "--alter"),
        *("--entity-type", "clients", "--entity-name", client),
        *("--add-config", "producer_byte_rate=8000"),
    )
    assert result.returncode == 0, result.stderr
    burst = [b"%03d " % n * 250 for n in range(100)]  # over ten seconds it is more than allowed
    async with Producer(kafka_cluster.bootstrap, client_id=client) as producer:
        began = asyncio.get_running_loop().time()
        await (await producer.send_many(topic, burst))
        last = producer.send_nowait(topic, b"last")
        await producer.flush(60)
        metrics = producer.metrics().producer
        silence = metrics["produce-throttle-time-max"] / 1000
        assert silence > 0.5
        # Not from the end of the burst on, of which this process may hear late.
        assert asyncio.get_running_loop().time() - began >= 0.9 * silence
        assert last.exception() is None
        assert metrics["record-error-total"] == metrics["record-retry-total"] == 0
    assert [record.value for record in await read_topic(topic)] == [*burst, b"last"]


async def test_a_forked_child_leaves_its_parents_connections_alone(
    kafka_cluster, topic, create_topic, read_topic
):
    await create_topic(topic, 3)
    async with Producer(kafka_cluster.bootstrap, linger_ms=0) as producer:
        for partition in range(3):
            await producer.send_and_wait(topic, b"before", partition=partition)
        lost = producer.metrics().producer["connection-close-total"]
        child = os.fork()
        if child == 0:
            os._exit(_misuse(producer, topic))
        _, status = os.waitpid(child, 0)  # noqa: ASYNC222 - it takes no time
        assert os.waitstatus_to_exitcode(status) == 0
        for partition in range(3):
            await producer.send_and_wait(topic, b"after", partition=partition)
        assert producer.metrics().producer["connection-close-total"] == lost
    assert sorted(r.value for r in await read_topic(topic)) == [b"after"] * 3 + [b"before"] * 3


def _misuse(producer: Producer, topic: str) -> int:
    """In the child: send, write to the parent's connections, close them; 0 if all was in vain."""
    try:
        producer.send_nowait(topic, b"child", partition=0)
    except ProducerStateError:
        for link in inspect(producer).router._links.values():
            if link.connection is not None:
                link.connection._transport.write(b"\0\0\0\x04child")
                link.connection.abort()
        return 0
    return 1


async def test_bootstrap_servers_that_are_no_brokers(kafka_cluster, topic, create_topic):
    """One speaks HTTP, one hangs up, one says nothing; with the fourth all is well. Without it the
    start ends in time."""
    await create_topic(topic, 1)

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        writer.close()

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    servers = [
        await asyncio.start_server(behave, "127.0.0.1", 0)
        for behave in (speak, hang_up, say_nothing)
    ]
    strangers = [f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
    try:
        bootstrap = ",".join([*strangers, kafka_cluster.bootstrap])
        async with Producer(bootstrap) as producer:
            await producer.send_and_wait(topic, b"v")
        for bad in ([strangers[0]], strangers):
            producer = Producer(bad, max_block_ms=3000)
            async with asyncio.timeout(30):  # without the option it would be a minute
                with pytest.raises(KafkaError, match=r"127\.0\.0\.1"):
                    await producer.start()
    finally:
        for server in servers:
            server.close()
