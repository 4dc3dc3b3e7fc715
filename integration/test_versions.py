"""Older brokers: what they do not speak is not asked of them, and all promises hold."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from integration.transaction_stories import PARTITIONS, everything, prepared_and_ended, time_out
from kafkaclient import Producer
from kafkaclient.cluster.router import Router
from kafkaclient.cluster.view import Broker, ClusterView
from kafkaclient.config import ProducerConfig
from kafkaclient.errors import BrokerConnectionError, SaslAuthenticationError
from kafkaclient.net.dialer import TcpDialer
from kafkaclient.reader import Reader
from kafkaclient.testing import ClusterSecurity, FakeCluster, SecureListener
from kafkaclient.testing.cluster import LocalCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.metadata import MetadataCall
from kafkaclient.wire.produce import MAX_VERSION, MIN_VERSION
from tests.group.range_protocol import RangeProtocol, member

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.timeout(300), pytest.mark.local_cluster]

PRODUCE = {"3.9.2": 11, "4.0.2": 12, "4.3.1": 13, "4.4.0": 13}
"""The newest version of Produce, by broker: leader hints; transactions v2; 4.1 has topic ids."""
API_VERSIONS = {"3.9.2": 4, "4.0.2": 4, "4.3.1": 4, "4.4.0": 5}
"""The version of ApiVersions on connections to known brokers: 5 proves the broker (KIP-1242)."""

SECURITY = ClusterSecurity(
    users={"alice": "alice-secret"},
    listeners=(
        SecureListener("MUTUAL", "SSL", client_certificate=True),
        SecureListener("SASL_SSL", "SASL_SSL"),
    ),
)
CONFIG = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}


@pytest.fixture(
    scope="module",
    params=[
        "3.9.2",
        *(pytest.param(version, marks=pytest.mark.full) for version in ("4.0.2", "4.3.1", "4.4.0")),
    ],
)
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """One broker of that version, which the fixtures of ``conftest.py`` use as well."""
    cluster = LocalCluster(1, version=request.param, security=SECURITY, config=CONFIG)
    asyncio.run(cluster.start())
    try:
        yield cluster
    finally:
        asyncio.run(cluster.stop())


async def test_reading(kafka_cluster, topic, create_topic, read_topic):
    """By topic id, in the newest version that the broker speaks."""
    await create_topic(topic, 3)
    async with Producer(kafka_cluster.bootstrap, compression_type="lz4") as producer:
        for n in range(900):
            await producer.send(topic, b"%d" % n, partition=n % 3)
    async with Reader(kafka_cluster.bootstrap, isolation_level="read_committed") as reader:
        ends = await reader.offsets(topic, at="latest")
        reading = reader.read({tp: (0, end) for tp, end in ends.items()})
        ours = [(r.partition, r.offset, r.value) async for batch in reading for r in batch]
    assert sorted(ours) == sorted((r.partition, r.offset, r.value) for r in await read_topic(topic))
    assert len(ours) == 900


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_of_every_kind(kafka_cluster, topic, create_topic, read_topic, codec):
    """Keyed, explicit and unkeyed, idempotent, in the newest version that the broker speaks."""
    await create_topic(topic, 3)
    options = {"compression_type": codec, "linger_ms": 2}
    async with Producer(kafka_cluster.bootstrap, **options) as producer:
        sent = []
        for n in range(900):
            how = ({"key": b"k%d" % (n % 9)}, {"partition": n % 3}, {})[n % 3]
            sent.append(await producer.send(topic, b"%d " % n * 20, headers=[("n", b"1")], **how))
        places = await asyncio.gather(*sent)
        connection = inspect(producer).router.produce_connection(0)
        newest = connection.api_versions.pick(ApiKey.PRODUCE, MIN_VERSION, MAX_VERSION)
    assert newest == PRODUCE[kafka_cluster.version]
    assert connection.api_versions_version == API_VERSIONS[kafka_cluster.version]
    read = await read_topic(topic)
    assert {(r.partition, r.offset): r.value for r in read} == {
        (p.partition, p.offset): b"%d " % n * 20 for n, p in enumerate(places)
    }
    by_key = defaultdict(list)
    for record in read:
        by_key[record.key or record.partition].append(int(record.value.split()[0]))
    assert all(by_key[b"k%d" % n] == sorted(by_key[b"k%d" % n]) for n in range(0, 9, 3))


async def test_lost_answers_and_a_restart(kafka_cluster, topic, create_topic, read_topic):
    """Each record once and in order, on whatever the broker knows of the producer."""
    await create_topic(topic, 2)
    async with Producer(kafka_cluster.proxied_bootstrap, linger_ms=0) as producer:
        sent = []
        for n in range(600):
            if n in (100, 200):
                await kafka_cluster.proxy(0).cut_after()
            if n == 300:
                await kafka_cluster.terminate(0)
            if n == 310:
                await kafka_cluster.start_broker(0)
            sent.append(await producer.send(topic, b"%d" % n, partition=n % 2))
            await asyncio.sleep(0.002)
        await asyncio.gather(*sent)
    records = sorted(await read_topic(topic), key=lambda r: r.partition)  # whose order stays
    read = [(r.partition, int(r.value)) for r in records]
    assert read == [(n % 2, n) for n in (*range(0, 600, 2), *range(1, 600, 2))]


async def test_a_topic_created_anew_goes_by_its_name(
    kafka_cluster, topic, create_topic, read_topic
):
    """Before 4.1 Produce has no topic ids; the new topic is known from metadata all the same."""
    await create_topic(topic, 2)
    async with Producer(
        kafka_cluster.bootstrap, linger_ms=0, allow_auto_create_topics=False
    ) as producer:
        await asyncio.gather(*[await producer.send(topic, b"old", partition=n % 2) for n in (0, 1)])
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka_cluster.bootstrap)
        await admin.start()
        await admin.delete_topics([topic])
        await admin.close()
        await asyncio.sleep(0.5)
        waiting = [await producer.send(topic, b"%d" % n, partition=n % 2) for n in range(20)]
        await create_topic(topic, 2)
        places = await asyncio.gather(*waiting)
    assert [p.offset for p in places] == [n // 2 for n in range(20)]
    assert len(await read_topic(topic)) == 20


@pytest.mark.parametrize("security_protocol", ["PLAINTEXT", "SASL_SSL"])
async def test_a_connection_proves_its_cluster_and_its_broker(kafka_cluster, security_protocol):
    """By ApiVersions from Kafka 4.4 on, with SASL after the login; otherwise by Metadata."""
    options = {"bootstrap_servers": kafka_cluster.bootstrap}
    if security_protocol == "SASL_SSL":
        options = {
            "bootstrap_servers": kafka_cluster.secured_bootstrap("SASL_SSL"),
            "security_protocol": security_protocol,
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": "alice",
            "sasl_password": "alice-secret",
            "ssl_truststore_location": kafka_cluster.certificates / "ca.pem",
        }
    config = ProducerConfig.build(None, options)
    ((host, port),) = config.bootstrap_servers
    by_handshake = API_VERSIONS[kafka_cluster.version] == 5
    for cluster_id, node_id, right in [
        (None, 0, True),
        ("another", 0, False),
        (None, 7, not by_handshake),
    ]:
        router = Router(config, clock=asyncio.get_running_loop().time, rng=Random(1))
        result = await router.metadata(MetadataCall(), timeout_s=10, failures=0)
        router.identity.cluster_id = cluster_id or result.cluster_id
        broker = Broker(node_id, host, port)
        router.update_brokers(ClusterView(brokers=MappingProxyType({node_id: broker})))
        try:
            if right:
                await router.call(MetadataCall(()), node_id)
            else:
                with pytest.raises(BrokerConnectionError, match="No records are sent there"):
                    await router.call(MetadataCall(()), node_id)
        finally:
            await router.close()


class MovingNames:
    """The fake cluster's names lead to it, or to a real broker."""

    def __init__(self, fake: FakeCluster, real: tuple[str, int]) -> None:
        self.fake, self.real, self.moved = fake, real, False
        self.tcp = TcpDialer()

    async def dial(self, host, port, factory):
        if not host.startswith("fake-"):
            return await self.tcp.dial(host, port, factory)
        if self.moved:
            return await self.tcp.dial(*self.real, factory)
        return await self.fake.dial(host, port, factory)


async def test_names_that_lead_here_from_another_cluster(
    kafka_cluster, topic, create_topic, read_topic
):
    """The connection is refused, by the handshake or by Metadata, and the client moves: records
    without an outcome come along, under a producer id of this cluster."""
    await create_topic(topic, 1)
    other = Producer(kafka_cluster.bootstrap, linger_ms=0)
    fake = FakeCluster(1)
    fake.create_topic(topic, 1)
    names = MovingNames(fake, kafka_cluster.address(0))
    mine = Producer(fake.bootstrap, dialer=names, linger_ms=0)
    async with other, mine:
        await mine.send_and_wait(topic, b"not here", partition=0)
        await other.send_and_wait(topic, b"theirs", partition=0)
        fake.stall_broker(0)
        waiting = [await mine.send(topic, b"%d" % n, partition=0) for n in range(5)]
        await asyncio.sleep(0.1)
        names.moved = True
        fake.drop_connections()
        await asyncio.gather(*waiting)
        await other.send_and_wait(topic, b"theirs too", partition=0)
        ids = {inspect(each).accumulator.identity.producer_id for each in (mine, other)}
    assert len(ids) == 2
    read = [r.value for r in await read_topic(topic)]
    assert read == [b"theirs", *(b"%d" % n for n in range(5)), b"theirs too"]


async def test_a_batch_too_large_is_split(kafka_cluster, topic, create_topic, read_topic):
    await create_topic(topic, 1, config={"max.message.bytes": "5000"})
    async with Producer(kafka_cluster.bootstrap, linger_ms=20, batch_size=100_000) as producer:
        sent = [producer.send_nowait(topic, b"%05d" % n * 100, b"k") for n in range(40)]
        assert [p.offset for p in await asyncio.gather(*sent)] == list(range(40))
        assert producer.metrics().producer["batch-split-total"] > 0
    assert [r.value[:5] for r in await read_topic(topic)] == [b"%05d" % n for n in range(40)]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_encrypted_and_authenticated(kafka_cluster, topic, create_topic, mechanism):
    await create_topic(topic, 2)
    options = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "sasl_username": "alice",
        "ssl_truststore_location": kafka_cluster.certificates / "ca.pem",
    }
    listener = kafka_cluster.secured_bootstrap("SASL_SSL")
    async with Producer(listener, sasl_password="alice-secret", **options) as producer:
        places = [await producer.send_and_wait(topic, b"x" * 50_000, b"k") for _ in range(3)]
    assert [place.offset for place in places] == [0, 1, 2]
    with pytest.raises(SaslAuthenticationError, match=mechanism):
        await Producer(listener, sasl_password="wrong", **options).start()


async def test_mutual_tls(kafka_cluster, topic, create_topic):
    await create_topic(topic, 2)
    async with Producer(
        kafka_cluster.secured_bootstrap("MUTUAL"),
        security_protocol="SSL",
        ssl_truststore_location=kafka_cluster.certificates / "ca.pem",
        ssl_keystore_location=kafka_cluster.certificates / "client.pem",
    ) as producer:
        assert (await producer.send_and_wait(topic, b"x" * 50_000)).offset == 0


async def test_membership(kafka_cluster, topic, create_topic):
    """Static members, a cooperative handover, offsets."""
    await create_topic(topic, 4)
    bootstrap = kafka_cluster.bootstrap

    def joining(name: str):
        return member(bootstrap, RangeProtocol(topic, 4), group=topic, group_instance_id=name)

    async with joining("a") as a:
        await a.owns(0, 1, 2, 3)
        async with joining("b") as b:
            await b.until(lambda: len(a.protocol.owned) == len(b.protocol.owned) == 2)
            own, theirs = a.protocol.numbers(), b.protocol.numbers()
            await a.offsets.commit({TopicPartition(topic, own[0]): 5})
        async with joining("b") as again:
            await again.owns(*theirs)
            assert a.protocol.log == [("added", [0, 1, 2, 3]), ("revoked", theirs)]
            offsets = await again.offsets.committed([TopicPartition(topic, own[0])])
            assert list(offsets.values()) == [5]


async def test_transactions(kafka_cluster, topic, create_topic):
    """v1 on 3.9, whose Produce and EndTxn know nothing of v2; v2 since 4.0."""
    v2 = not kafka_cluster.version.startswith("3.")
    slow, prepared = f"{topic}-slow", f"{topic}-prepared"
    for name in (topic, slow, prepared):
        await create_topic(name, PARTITIONS)
    async with asyncio.TaskGroup() as group:
        group.create_task(everything(kafka_cluster, topic, f"tx-{topic}", v2=v2))
        group.create_task(time_out(kafka_cluster, slow, f"tx-{slow}", v2=v2))
        group.create_task(prepared_and_ended(kafka_cluster, prepared, f"tx-{prepared}"))
