"""Metrics that clients push to real brokers (KIP-714), which have a receiver: a Java class that is
compiled here, as brokers bring none."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID
from zipfile import ZipFile

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, NumberDataPoint

from kafkaclient import Consumer, KafkaMetric, Producer
from kafkaclient.metrics_push import reporter
from kafkaclient.testing import LocalCluster
from kafkaclient.testing import cluster as cluster_module
from kafkaclient.testing.jars import JarCache, parse_lock
from kafkaclient.testing.jvm import find_java
from kafkaclient.wire.compression import CompressionType

if TYPE_CHECKING:
    from collections.abc import Iterator

JAVA = Path(__file__).parent / "java"
PRODUCER = "org.apache.kafka.producer."

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]


class Push(NamedTuple):
    """A push, as the receiver got it: decompressed."""

    client_id: str
    instance_id: UUID
    is_last: bool
    labels: dict[str, str]
    metrics: dict[str, list[Metric]]
    """By name; Java's clients send each point as a metric."""


def read_push(path: Path) -> Push:
    _, client_id, instance_id, kind = path.name.split("+")
    parts = MetricsData.FromString(path.read_bytes()).resource_metrics
    labels = {a.key: a.value.string_value for part in parts for a in part.resource.attributes}
    metrics = defaultdict(list)
    for metric in (m for part in parts for scope in part.scope_metrics for m in scope.metrics):
        metrics[metric.name].append(metric)
    return Push(client_id, UUID(instance_id), kind == "last", labels, metrics)


class Receiver:
    """Two brokers with the receiver."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    def pushes(self, client_id: str) -> list[Push]:
        found = self.cluster.directory.glob(f"**/client-metrics/*+{client_id}+*")
        return [read_push(path) for path in sorted(found, key=lambda path: path.stat().st_mtime_ns)]

    async def pushed(self, client_id: str, number: int) -> list[Push]:
        """The pushes of a client, when there are so many."""
        async with asyncio.timeout(60):
            while len(found := self.pushes(client_id)) < number:
                await asyncio.sleep(0.05)
        return found

    async def subscribe(self, name: str, interval_ms: int, *metrics: str) -> None:
        words = ["--bootstrap-server", self.cluster.bootstrap, "--alter", "--name", name]
        words += ["--metrics", ",".join(metrics), "--interval", str(interval_ms)]
        await self.run("ClientMetricsCommand", *words)

    async def run(self, tool: str, *words: str) -> None:
        result = await self.cluster.run_tool(f"org.apache.kafka.tools.{tool}", *words)
        assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def receiver_jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("receiver")
    lock = (JAVA / "streams-4.3.1.lock").read_text("utf-8")
    *jars, compiler = JarCache().ensure(parse_lock(lock))
    words = ["-jar", compiler, "-17", "-nowarn", "-proc:none", "-cp", ":".join(map(str, jars))]
    words += ["-d", folder, JAVA / "MetricsReceiver.java"]
    subprocess.run([find_java().path, *words], check=True)
    jar = folder / "receiver.jar"
    with ZipFile(jar, "w") as archive:
        for path in folder.glob("*.class"):
            archive.write(path, path.name)
    return jar


@pytest.fixture(scope="module")
def with_receiver(receiver_jar: Path) -> Iterator[None]:
    """Brokers that are started now have the receiver's jar in their class path. They have no
    archive of classes, which is for all clusters."""
    prepare = cluster_module.prepare_launch

    async def prepared(*args: Any, **options: Any) -> Any:
        launch = await prepare(*args, **options)
        jars = (*launch.jvm.jars, receiver_jar)
        return replace(launch, jvm=replace(launch.jvm, jars=jars, archive=None))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_module, "prepare_launch", prepared)
        yield


@pytest.fixture(scope="module")
def receiver(with_receiver: None) -> Iterator[Receiver]:
    cluster = LocalCluster(2, config={"metric.reporters": "MetricsReceiver"})
    asyncio.run(cluster.start())
    yield Receiver(cluster)
    asyncio.run(cluster.stop())


async def test_a_producer_pushes_to_a_broker(receiver: Receiver) -> None:
    cluster = receiver.cluster
    async with Producer(cluster.bootstrap, client_id="early") as producer:
        early = await producer.client_instance_id()
        assert early is not None, "a broker gives ids also without a subscription"
    await receiver.subscribe("all", 400, "*")
    waiting = KafkaMetric("orders-waiting", "shop-metrics", lambda: 3, {"queue": "north"})
    async with Producer(cluster.bootstrap, client_id="pushing", client_rack="r1") as producer:
        producer.register_metric_for_subscription(waiting)
        await producer.send_and_wait("pushed", b"x")
        instance_id = await producer.client_instance_id()
        assert instance_id not in (None, early)
        await receiver.pushed("pushing", 3)
        await producer.send_and_wait("pushed", b"x")
    *regular, last = receiver.pushes("pushing")
    assert {push.instance_id for push in (*regular, last)} == {instance_id}
    assert [push.is_last for push in regular] == [False] * len(regular)
    assert last.is_last
    assert last.labels == {"client_rack": "r1"}
    # Brokers ask for deltas.
    sums = [push.metrics[f"{PRODUCER}record.send.total"][0].sum for push in (*regular, last)]
    assert sum(each.data_points[0].as_double for each in sums) == 2
    (point,) = last.metrics["org.apache.kafka.shop.orders.waiting"][0].gauge.data_points
    assert point.as_double == 3
    assert not receiver.pushes("early")


async def test_a_consumer_pushes_to_a_broker(receiver: Receiver) -> None:
    cluster = receiver.cluster
    await receiver.subscribe("all", 400, "*")
    async with Producer(cluster.bootstrap, enable_metrics_push=False) as producer:
        await producer.send_and_wait("consumed", b"x", partition=0)
    options: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest"}
    options |= {"topics": ["consumed"], "client_id": "consuming"}
    async with Consumer(cluster.bootstrap, **options) as consumer:
        await consumer.getone()
        member_id = consumer.group_metadata.member_id
        *_, push = await receiver.pushed("consuming", 3)
        assert push.instance_id == await consumer.client_instance_id()
    assert push.labels == {"group_id": "g", "group_member_id": member_id}
    prefix = "org.apache.kafka.consumer."
    (assigned,) = push.metrics[f"{prefix}coordinator.assigned.partitions"][0].gauge.data_points
    assert assigned.as_double == 6
    lags = push.metrics[f"{prefix}fetch.manager.records.lag"][0].gauge.data_points
    found = [{a.key: a.value.string_value for a in each.attributes} for each in lags]
    assert {"topic": "consumed", "partition": "0"} in found
    assert receiver.pushes("consuming")[-1].is_last


@pytest.mark.parametrize("codec", CompressionType)
async def test_a_broker_decompresses_every_codec(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, codec: CompressionType
) -> None:
    """Left to itself, a client takes the one that brokers prefer."""
    await receiver.subscribe("all", 400, "*")
    monkeypatch.setattr(reporter, "_preferred", lambda _: codec)
    async with Producer(receiver.cluster.bootstrap, client_id=codec.name) as producer:
        await producer.client_instance_id()
    *_, last = receiver.pushes(codec.name)
    assert last.is_last
    assert f"{PRODUCER}record.send.total" in last.metrics


async def test_a_subscription_that_changes_and_a_broker_that_ends(receiver: Receiver) -> None:
    cluster, name = receiver.cluster, "changing"
    await receiver.subscribe("all", 400, "*")
    async with Producer(cluster.bootstrap, client_id=name) as producer:
        await receiver.pushed(name, 2)
        await receiver.subscribe("all", 300, f"{PRODUCER}record.")
        async with asyncio.timeout(60):
            while not _begin(receiver.pushes(name)[-1], f"{PRODUCER}record."):
                await asyncio.sleep(0.1)
        before = len(receiver.pushes(name))
        await cluster.kill(0)
        await receiver.pushed(name, before + 2)
        await cluster.start_broker(0)
        await cluster.kill(1)
        await receiver.pushed(name, before + 4)
        await cluster.start_broker(1)
        assert {push.instance_id for push in receiver.pushes(name)} == {
            await producer.client_instance_id()
        }


def _begin(push: Push, prefix: str) -> bool:
    return all(name.startswith(prefix) for name in push.metrics)


@pytest.mark.parametrize("how", ["kill", "pause"])
async def test_clients_of_dead_brokers_end_in_time(receiver: Receiver, how: str) -> None:
    """Several in one process; each has its own id."""
    cluster, names = receiver.cluster, [f"{how}-{number}" for number in range(3)]
    await receiver.subscribe("all", 400, "*")
    producers = [Producer(cluster.bootstrap, client_id=name) for name in names]
    consumer = Consumer(cluster.bootstrap, client_id=f"{how}-c")
    await asyncio.gather(*(each.start() for each in (*producers, consumer)))
    pushed = [await receiver.pushed(name, 2) for name in (*names, f"{how}-c")]
    assert len({found[0].instance_id for found in pushed}) == 4
    for broker in (1, 0):
        await getattr(cluster, how)(broker)
    try:
        began = time.monotonic()
        stopped = await asyncio.gather(consumer.stop(), *(each.stop() for each in producers))
        assert stopped == [None, 0, 0, 0]
        assert time.monotonic() - began < 4
        assert asyncio.all_tasks() == {asyncio.current_task()}
    finally:
        await cluster.heal()


async def test_names_and_kinds_are_those_of_javas_clients(receiver: Receiver) -> None:
    """Of what both have; nothing that only Java has is required by the KIP."""
    cluster = receiver.cluster
    await receiver.subscribe("all", 400, "*")
    server = ["--bootstrap-server", cluster.bootstrap, "--topic", "compared"]
    many = ["--num-records", "300", "--record-size", "10", "--throughput", "100"]
    await receiver.run("ProducerPerformance", *server, *many, "--command-property", "client.id=jp")
    few = ["--num-records", "300", "--timeout", "5000", "--command-property", "client.id=jc"]
    await receiver.run("ConsumerPerformance", *server, *few)
    options: dict[str, Any] = {"group_id": "ours", "auto_offset_reset": "earliest"}
    async with (
        Producer(cluster.bootstrap, client_id="op") as producer,
        Consumer(cluster.bootstrap, topics=["compared"], client_id="oc", **options) as consumer,
    ):
        await producer.send_and_wait("compared", b"x")
        await consumer.getone()
        await receiver.pushed("op", 2)
        await receiver.pushed("oc", 2)
    for theirs, own, least in (("jp", "op", 50), ("jc", "oc", 40)):
        java, ours = (kinds(receiver.pushes(name)) for name in (theirs, own))
        common = java.keys() & ours.keys()
        assert len(common) > least
        assert {name: ours[name] - java[name] for name in common if ours[name] - java[name]} == {}


def kinds(pushes: list[Push]) -> dict[str, set[tuple[Any, ...]]]:
    """Of each metric: gauge or sum, temporality, and the names of the attributes."""
    return {
        name: {
            (each.WhichOneof("data"), each.sum.aggregation_temporality, attributes(point))
            for push in pushes
            for each in push.metrics.get(name, ())
            for point in each.sum.data_points or each.gauge.data_points
        }
        for name in {name for push in pushes for name in push.metrics}
    }


def attributes(point: NumberDataPoint) -> frozenset[str]:
    return frozenset(attribute.key for attribute in point.attributes)


async def test_brokers_without_a_receiver_are_asked_nothing(kafka_cluster: Any) -> None:
    async with Producer(kafka_cluster.bootstrap) as producer:
        assert await producer.client_instance_id() is None
