"""Clients whose names lead to another cluster, or to another broker of their cluster: each row of
the first table in kafkaclient/cluster/identity.py, on two fake clusters with DNS between them."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.errors import (
    BrokerError,
    KafkaError,
    TransactionAbortableError,
    UnknownTopicError,
)
from kafkaclient.reader import Reader
from kafkaclient.testing import FakeCluster
from kafkaclient.testing.clock import run_virtual, virtual_time
from kafkaclient.testing.fake import CLOSE, ErrorCode, Sasl
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from kafkaclient.cluster.view import ClusterView

_DENIED = 29  # TOPIC_AUTHORIZATION_FAILED

KAFKA_4_4, KAFKA_4_0, KAFKA_2_1 = "kafka-4", "kafka-4.0", "kafka-2.1"


class Dns:
    """Clusters X and Y, whose brokers have the same names. ``leads`` has, by name, the cluster and
    the name of its broker; other names lead to the broker of that name in cluster ``now``."""

    def __init__(self, profile: str = KAFKA_4_4, brokers: int = 2) -> None:
        self.x = FakeCluster(brokers, profile=profile, auto_create_topics=False)
        self.y = FakeCluster(brokers, profile=profile, auto_create_topics=False)
        inspect(self.x).cluster_id, inspect(self.y).cluster_id = "X", "Y"
        self.y.create_topic("only in Y, so that topic ids differ", 1)
        for cluster in (self.x, self.y):
            cluster.create_topic("t", 2)
        self.now = self.x
        self.leads: dict[str, tuple[FakeCluster, str]] = {}
        self.dials: list[str] = []

    async def dial(self, host: str, port: int, factory: Any) -> Any:
        self.dials.append(host)
        cluster, name = self.leads.get(host, (self.now, host))
        return await cluster.dial(name, port, factory)

    def switch(self, cluster: FakeCluster) -> None:
        """All names lead to that cluster now, and the connections to the other one break."""
        self.now.drop_connections()
        self.now = cluster

    @property
    def other(self) -> FakeCluster:
        return self.y if self.now is self.x else self.x

    def happen(self, event: str) -> None:
        if event == "switch":
            self.switch(self.other)
        elif event == "switch names only":
            self.now = self.other
        elif event == "swap":
            self.leads = {"fake-0": (self.now, "fake-1"), "fake-1": (self.now, "fake-0")}
        elif event == "foreign":
            self.leads = {"fake-1": (self.other, "fake-1")}
        elif event == "right":
            self.leads = {}
        elif event == "drop":
            self.now.drop_connections()
        elif event == "129":
            self.now.control(ApiKey.METADATA, ErrorCode.REBOOTSTRAP_REQUIRED)

    def producer(self, servers: str = "fake-0:9092,fake-1:9092", **options: Any) -> Producer:
        options = {"linger_ms": 0, "metadata_max_age_ms": 10_000} | options
        return Producer(servers, dialer=self, rng=Random(1), **options)


def _values(cluster: FakeCluster) -> list[bytes | None]:
    return sorted(r.value or b"" for n in (0, 1) for r in cluster.log("t", n))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _cluster_of(client: Any) -> str | None:
    cluster_id: str | None = inspect(client).metadata.view.cluster_id
    return cluster_id


# --- a foreign broker at a known address ----------------------------------------------------------


@pytest.mark.parametrize("profile", [KAFKA_4_4, KAFKA_4_0, KAFKA_2_1])
@virtual_time
async def test_a_foreign_broker_at_a_known_address_gets_no_record(
    profile: str, caplog: pytest.LogCaptureFixture
) -> None:
    dns = Dns(profile)
    async with dns.producer() as producer:
        for n in (0, 1):
            await producer.send_and_wait("t", b"before", partition=n)
        dns.leads["fake-1"] = dns.y, "fake-1"
        dns.x.drop_connections()
        late = await producer.send("t", b"late", partition=1)
        await asyncio.sleep(10)
        dns.x.move_leader("t", 1, 0)
        await late
        for n in range(40):
            await producer.send_and_wait("t", b"%d" % n, partition=n % 2)
            await asyncio.sleep(1)
            if n % 10 == 5:
                dns.x.drop_connections()
        assert _cluster_of(producer) == "X"
    assert _values(dns.y) == []
    told = [r for r in caplog.records if "No records are sent there" in r.message]
    assert len([r for r in told if r.levelname == "ERROR"]) == 1, "it is told once"


@virtual_time
async def test_before_kafka_4_4_each_connection_costs_one_request_more() -> None:
    """The first connections of a producer: the proof comes before the first Produce."""
    for profile, proofs in [(KAFKA_4_4, 0), (KAFKA_4_0, 1)]:
        dns = Dns(profile, brokers=1)
        async with dns.producer("fake-0:9092") as producer:
            await producer.send_and_wait("t", b"1", partition=0)
            (produce,) = dns.x.requests_of(ApiKey.PRODUCE)
            on_it = [r for r in dns.x.requests if r.connection == produce.connection]
            assert [r.api_key for r in on_it[:2]].count(ApiKey.METADATA) == proofs
            assert [r.api_key for r in on_it].count(ApiKey.METADATA) == proofs


@virtual_time
async def test_with_sasl_a_connection_proves_itself_after_the_login() -> None:
    """Kafka 4.4 checks the cluster's id only then."""
    dns = Dns()
    for cluster in (dns.x, dns.y):
        inspect(cluster).sasl = Sasl()
    options = {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p"}
    async with dns.producer(security_protocol="SASL_PLAINTEXT", **options) as producer:
        await producer.send_and_wait("t", b"1", partition=1)
        dns.leads["fake-1"] = dns.y, "fake-1"
        dns.x.drop_connections()
        late = await producer.send("t", b"2", partition=1)
        await asyncio.sleep(5)
        dns.leads["fake-1"] = dns.x, "fake-0"
        await asyncio.sleep(5)
        assert not late.done()
        dns.leads.clear()
        await late
    assert not dns.y.requests_of(ApiKey.PRODUCE)
    assert all(r.broker == 1 for r in dns.x.requests_of(ApiKey.PRODUCE))


@virtual_time
async def test_a_broker_that_was_upgraded_proves_itself_in_either_way() -> None:
    dns = Dns(KAFKA_4_0, brokers=2)
    async with dns.producer() as producer:
        await producer.send_and_wait("t", b"1", partition=0)
        inspect(dns.x).versions[ApiKey.API_VERSIONS] = (0, 5)
        dns.x.drop_connections()
        await producer.send_and_wait("t", b"2", partition=0)
        inspect(dns.x).versions[ApiKey.API_VERSIONS] = (0, 4)  # the other brokers are not
        dns.x.drop_connections()
        for n in range(4):
            await producer.send_and_wait("t", b"%d" % n, partition=n % 2)


# --- the wrong broker of the right cluster --------------------------------------------------------


@pytest.mark.parametrize("profile", [KAFKA_4_4, KAFKA_4_0])
@virtual_time
async def test_brokers_that_swapped_addresses(
    profile: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The names are behind for a while. The connections are made again when they are right."""
    dns = Dns(profile, brokers=3)
    dns.leads = {"fake-0": (dns.x, "fake-1"), "fake-1": (dns.x, "fake-0")}
    async with dns.producer("fake-2:9092") as producer:
        deliveries = [await producer.send("t", b"%d" % n, partition=n) for n in (0, 1)]
        await asyncio.sleep(8)
        health = await producer.healthy()
        assert "no leader of the topics in use answers: broker" in str(health)
        assert not any(delivery.done() for delivery in deliveries)
        dns.leads.clear()
        began = _now()
        await asyncio.gather(*deliveries)
        assert _now() - began < 4
        await producer.send_and_wait("t", b"2", partition=0)
        assert await producer.healthy()
    told = [r for r in caplog.records if "connection" in r.message or "No records" in r.message]
    told = [r for r in told if r.levelname in ("WARNING", "ERROR")]
    assert sorted(vars(record)["broker"] for record in told) == [0, 1], "each is told once"


# --- REBOOTSTRAP_REQUIRED -------------------------------------------------------------------------


@pytest.mark.parametrize("servers", ["fake-0:9092,new:9092", "new:9092,fake-0:9092"])
@virtual_time
async def test_a_rebootstrap_asks_the_next_server(servers: str) -> None:
    dns = Dns()
    dns.leads["new"] = dns.y, "fake-0"
    dns.y.set_address(0, "new")
    dns.y.set_address(1, "new-1")
    dns.leads["new-1"] = dns.y, "new-1"
    dns.y.control(ApiKey.METADATA, ErrorCode.REBOOTSTRAP_REQUIRED)  # the first answer of either
    dns.leads["new"] = dns.y, "new"
    async with dns.producer(servers) as producer:
        await producer.send_and_wait("t", b"1", partition=0)
        dns.x.control(ApiKey.METADATA, ErrorCode.REBOOTSTRAP_REQUIRED, keep=True)
        dns.x.control(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, keep=True)
        began = _now()
        await producer.send_and_wait("t", b"2", partition=0)
        assert _now() - began < 3
        assert _cluster_of(producer) == "Y"


@virtual_time
async def test_a_rebootstrap_looks_the_name_up_until_it_leads_on() -> None:
    """The name leads to the new cluster 30 s after the old one has asked."""
    dns = Dns(brokers=1)
    async with dns.producer("fake-0:9092") as producer:
        await producer.send_and_wait("t", b"1", partition=0)
        dns.x.control(ApiKey.METADATA, ErrorCode.REBOOTSTRAP_REQUIRED, keep=True)
        dns.x.control(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, keep=True)
        delivery = await producer.send("t", b"2", partition=0)
        await asyncio.sleep(30)
        dns.now = dns.y
        began = _now()
        await delivery
        assert _now() - began < 2
    assert _values(dns.y) == [b"2"]


@pytest.mark.parametrize("profile", [KAFKA_4_4, KAFKA_4_0])
@virtual_time
async def test_a_rebootstrap_leaves_no_open_connection_behind(profile: str) -> None:
    """Every name leads to the new cluster, and the connections to the old one still work."""
    dns = Dns(profile)
    async with dns.producer() as producer:
        for n in (0, 1):
            await producer.send_and_wait("t", b"before", partition=n)
        dns.now = dns.y
        dns.x.control(ApiKey.METADATA, ErrorCode.REBOOTSTRAP_REQUIRED, keep=True)
        await asyncio.sleep(15)
        for n in (0, 1):
            await producer.send_and_wait("t", b"after", partition=n)
    assert _values(dns.x) == [b"before"] * 2
    assert _values(dns.y) == [b"after"] * 2


@pytest.mark.parametrize("kind", [Reader, Admin])
@virtual_time
async def test_all_clients_bootstrap_again(kind: Any) -> None:
    dns = Dns()
    dns.y.set_address(0, "new")
    dns.y.set_address(1, "new-1")
    dns.leads = {"new": (dns.y, "new"), "new-1": (dns.y, "new-1")}
    async with kind("fake-0:9092,new:9092", dialer=dns) as client:

        async def ask() -> Any:
            if isinstance(client, Reader):
                return await client.offsets("t", at="latest")
            return await client.describe_cluster()

        await ask()
        for key in (ApiKey.METADATA, ApiKey.DESCRIBE_QUORUM):
            dns.x.control(key, ErrorCode.REBOOTSTRAP_REQUIRED, keep=True)
        dns.x.control(ApiKey.LIST_OFFSETS, ErrorCode.NOT_LEADER_OR_FOLLOWER, keep=True)
        began = _now()
        await ask()
        assert _now() - began < 3
    assert dns.y.requests_of(ApiKey.METADATA)


_USELESS: dict[str, Any] = {
    "no brokers": {"brokers": [], "cluster_id": "X", "controller_id": -1, "topics": []},
    "an unknown error": -1,
    "REBOOTSTRAP_REQUIRED": 129,
    "an error that passes": 15,
    "no Kafka": b"\0\0\0\1",
    "closed": CLOSE,
}


@pytest.mark.parametrize("kind", [Producer, Admin])
@pytest.mark.parametrize("useless", _USELESS)
@virtual_time
async def test_a_start_asks_every_bootstrap_server(kind: Any, useless: str) -> None:
    fake = FakeCluster(3)
    for broker in (0, 1):
        fake.control(ApiKey.METADATA, _USELESS[useless], broker=broker, keep=True)
    async with kind("fake-0:9092,fake-1:9092,fake-2:9092", dialer=fake):
        assert _now() < 2


@virtual_time
async def test_a_start_ends_when_every_bootstrap_server_has_the_same_problem() -> None:
    fake = FakeCluster(3)
    fake.control(ApiKey.METADATA, -1, keep=True)
    with pytest.raises(BrokerError, match="UNKNOWN_SERVER_ERROR"):
        await Producer(fake.bootstrap, dialer=fake).start()
    assert all(fake.requests_of(ApiKey.METADATA, broker) for broker in range(3))


# --- another cluster ------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [KAFKA_4_4, KAFKA_4_0, KAFKA_2_1, "event-hubs"])
@virtual_time
async def test_a_move_and_back(profile: str) -> None:
    """Topic ids and leader epochs of one cluster mean nothing in the other one."""
    dns = Dns(profile)
    for _ in range(3):
        for leader in (1, 0):
            dns.x.move_leader("t", 0, leader)
    dns.y.move_leader("t", 0, 1)
    async with dns.producer() as producer:
        for cluster in (dns.x, dns.y, dns.x, dns.y):
            if cluster is not dns.now:
                dns.switch(cluster)
            for n in (0, 1):
                began = _now()
                await producer.send_and_wait("t", b"%d" % n, partition=n)
                assert _now() - began < 4
    assert _values(dns.x) == _values(dns.y) == [b"0", b"0", b"1", b"1"]


@pytest.mark.parametrize("same_ids", [False, True])
@virtual_time
async def test_another_cluster_gives_another_producer_id(same_ids: bool) -> None:
    """The old id may be another producer's there: the log would drop the records of one as
    duplicates of the other's."""
    dns = Dns(brokers=1)
    if same_ids:
        for cluster in (dns.x, dns.y):
            cluster.create_topic("u", 1)
        topic_id = inspect(dns.y).topics["u"].topic_id = inspect(dns.x).topics["u"].topic_id
        inspect(dns.y).topic_names[topic_id] = "u"
    topic = "u" if same_ids else "t"
    theirs = Producer("fake-0:9092", dialer=dns.y, linger_ms=0)
    async with dns.producer("fake-0:9092") as mine, theirs:
        await mine.send_and_wait(topic, b"in X", partition=0)
        await theirs.send_and_wait(topic, b"theirs", partition=0)
        ids = [inspect(each).accumulator.identity.producer_id for each in (mine, theirs)]
        assert ids[0] == ids[1], "as in two clusters that are as old"
        dns.switch(dns.y)
        expected = [b"theirs"]
        for n in range(5):
            for name, producer in (("mine", mine), ("theirs", theirs)):
                value = f"{name} {n}".encode()
                await producer.send_and_wait(topic, value, partition=0)
                expected.append(value)
    assert [r.value for r in dns.y.log(topic, 0)] == expected


@virtual_time
async def test_records_without_an_outcome_go_to_the_new_cluster() -> None:
    """In order, and once each. One that may have been written to the old cluster says so if it
    fails."""
    dns = Dns(brokers=1)
    async with dns.producer("fake-0:9092", delivery_timeout_ms=30_000) as producer:
        await producer.send_and_wait("t", b"0", partition=0)
        dns.x.stall_broker(0)
        late = [await producer.send("t", b"%d" % n, partition=0) for n in range(1, 6)]
        await asyncio.sleep(0.1)
        dns.switch(dns.y)
        await asyncio.gather(*late)
        assert [r.value for r in dns.y.log("t", 0)] == [b"1", b"2", b"3", b"4", b"5"]
        dns.y.control(ApiKey.PRODUCE, _DENIED)
        with pytest.raises(KafkaError) as refused:
            await producer.send_and_wait("t", b"6", partition=0)
        assert not refused.value.maybe_written
        dns.y.stall_broker(0)
        lost = await producer.send("t", b"7", partition=0)
        await asyncio.sleep(0.1)
        dns.x.resume_broker(0)
        dns.x.control(ApiKey.PRODUCE, _DENIED, keep=True)
        dns.switch(dns.x)
        with pytest.raises(KafkaError) as failed:
            await lost
        assert failed.value.maybe_written, "cluster Y may have it"


@pytest.mark.parametrize("v2", [True, False])
@virtual_time
async def test_an_open_transaction_ends_with_the_move(v2: bool) -> None:
    dns = Dns(KAFKA_4_4 if v2 else "kafka-3", brokers=1)
    for cluster in (dns.x, dns.y):
        inspect(cluster).transactions_v2 = v2
    async with dns.producer("fake-0:9092", transactional_id="tx") as producer:
        async with producer.transaction():
            await producer.send("t", b"in X", partition=0)
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"open in X", partition=0)
        dns.switch(dns.y)
        await asyncio.sleep(15)
        with pytest.raises(TransactionAbortableError, match="moved from cluster 'X' to cluster"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"in Y", partition=0)
        dns.switch(dns.x)
        await asyncio.sleep(15)
        async with producer.transaction():
            await producer.send("t", b"in X again", partition=0)
    assert [r.value for r in dns.y.committed_log("t", 0)] == [b"in Y"]
    assert [r.value for r in dns.x.committed_log("t", 0)] == [b"in X", b"in X again"]


@virtual_time
async def test_a_commit_under_way_has_no_outcome_after_a_move() -> None:
    dns = Dns(brokers=1)
    producer = dns.producer("fake-0:9092", transactional_id="tx")
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait("t", b"1", partition=0)
    dns.x.control(ApiKey.END_TXN, CLOSE, keep=True)
    commit = asyncio.create_task(producer.commit_transaction())
    await asyncio.sleep(0.05)
    dns.switch(dns.y)
    with pytest.raises(KafkaError, match="committed there or not"):
        await commit
    with pytest.raises(KafkaError, match="moved from cluster"):
        await producer.begin_transaction()
    await producer.stop()
    assert not dns.y.requests_of(ApiKey.END_TXN)


@virtual_time
async def test_a_read_does_not_go_on_in_another_cluster() -> None:
    dns = Dns(KAFKA_2_1, brokers=1)
    for cluster, value in ((dns.x, b"x"), (dns.y, b"y")):
        async with Producer("fake-0:9092", dialer=cluster) as producer:
            for _ in range(3):
                await producer.send_and_wait("t", value, partition=0)
    async with Reader("fake-0:9092", dialer=dns) as reader:
        reading = reader.read({TopicPartition("t", 0): 0})
        assert {r.value for r in await anext(reading)} == {b"x"}
        dns.switch(dns.y)
        with pytest.raises(UnknownTopicError, match="moved from cluster 'X' to 'Y'"):
            await anext(reading)


@virtual_time
async def test_a_cluster_that_is_only_restarting_is_not_left() -> None:
    """One bootstrap server is another cluster's. No known broker is reached for a moment only."""
    dns = Dns()
    dns.leads["old-name"] = dns.y, "fake-0"
    async with dns.producer("fake-0:9092,old-name:9092") as producer:
        await producer.send_and_wait("t", b"1", partition=0)
        for _ in range(5):
            dns.x.drop_connections()
            await producer.send_and_wait("t", b"2", partition=1)
        assert _cluster_of(producer) == "X"
    assert _values(dns.y) == []


# --- topics that nothing waits for ----------------------------------------------------------------


@virtual_time
async def test_a_deleted_topic_does_not_come_back_by_itself() -> None:
    fake = FakeCluster(1)
    for name in ("deleted", "used"):
        fake.create_topic(name, 1)
    options: dict[str, Any] = {"linger_ms": 0, "metadata_max_age_ms": 5_000}
    async with Producer(fake.bootstrap, dialer=fake, **options) as producer:
        for name in ("deleted", "used"):
            await producer.send_and_wait(name, b"1")
        fake.delete_topic("deleted")
        for _ in range(20):
            await producer.send_and_wait("used", b"2")
            await producer.refresh_metadata()
            await asyncio.sleep(4)
        assert "deleted" not in inspect(fake).topics
        producer.send_nowait("deleted", b"3")
        await producer.flush()
        assert [r.value for r in fake.log("deleted", 0)] == [b"3"]


# --- histories ------------------------------------------------------------------------------------

_event = st.sampled_from(
    ["switch", "switch names only", "swap", "foreign", "right", "drop", "129", "wait", "wait"]
)


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([KAFKA_4_4, KAFKA_4_0, KAFKA_2_1]),
    st.lists(st.tuples(_event, st.sampled_from([0.1, 1.0, 7.0])), min_size=2, max_size=8),
)
@example(KAFKA_2_1, [("swap", 0.1), ("switch", 0.1), ("129", 0.1)])  # a proof without cluster id
def test_nothing_is_written_to_a_cluster_that_was_left(
    profile: str, events: list[tuple[str, float]]
) -> None:
    """Names that lead anywhere, for any time; after that every record is written soon."""
    run_virtual(_live_through(profile, events))


async def _live_through(profile: str, events: list[tuple[str, float]]) -> None:
    dns = Dns(profile)
    async with dns.producer(delivery_timeout_ms=60_000, request_timeout_ms=5_000) as producer:
        moves = [(_now(), "X")]

        def moved(old: ClusterView, new: ClusterView) -> None:
            if old.cluster_id != new.cluster_id:
                moves.append((_now(), new.cluster_id or ""))

        inspect(producer).metadata.subscribe(moved)
        sending = asyncio.create_task(_send_all_the_time(producer))
        for event, pause_s in events:
            dns.happen(event)
            await asyncio.sleep(pause_s)
        dns.happen("right")
        dns.other.drop_connections()
        await asyncio.sleep(15)
        sending.cancel()
        for n in (0, 1):
            began = _now()
            await producer.send_and_wait("t", b"last", partition=n)
            assert _now() - began < 5
        assert _cluster_of(producer) == ("X" if dns.now is dns.x else "Y")
    for name, cluster in (("X", dns.x), ("Y", dns.y)):
        for request in cluster.requests_of(ApiKey.PRODUCE):
            *_, current = [where for at, where in moves if at <= request.at]
            was_on_the_wire = any(at == request.at for at, _ in moves)
            assert current == name or was_on_the_wire


async def _send_all_the_time(producer: Producer) -> None:
    for number in range(10_000):
        delivery = await producer.send("t", b"%d" % number, partition=number % 2)
        with contextlib.suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(0.3):
                await delivery
        await asyncio.sleep(0.2)
