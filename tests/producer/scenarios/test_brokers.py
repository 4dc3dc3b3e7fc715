"""Brokers that come, go, move, slow down and speak in dialects.

Ids such as ``C1`` are rows of docs/project/hard-situations.md.
"""

from __future__ import annotations

import asyncio
import socket
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import (
    AuthorizationError,
    BrokerError,
    DeliveryTimeoutError,
    MetadataTimeoutError,
)
from kafkaclient.net.dialer import TcpDialer
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import CLOSE_ANSWER, DROP, ErrorCode, FakeCluster
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from tests.producer.support import Outcomes, OverTcp, StartProducer, Values

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def arrivals(fake: FakeCluster, partition: int) -> list[float]:
    """When Produce requests with a batch for this partition reached a broker."""
    return [
        request.at
        for request in fake.requests_of(ApiKey.PRODUCE)
        if any(p == partition for _, p, _ in request.batches)
    ]


# --- C1: backoff ------------------------------------------------------------------------------


@virtual_time
async def test_backoff_is_the_partitions_own_and_exponential(producing: StartProducer) -> None:
    """C1: one partition refused for 10 s does not slow its neighbour on the same broker."""
    fake = one_topic(2, brokers=1)
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        await asyncio.sleep(1)
        fake.fail_produce("t", 0, NOT_LEADER, times=12)
        start = now()
        refused = await producer.send("t", b"v", partition=0)
        while not refused.done():
            asked = now()
            await producer.send_and_wait("t", b"neighbour", partition=1)
            assert now() == asked  # the fake answers in no time
            await asyncio.sleep(0.1)
        gaps = [b - a for a, b in pairwise(t for t in arrivals(fake, 0) if t >= start)]
        assert len(gaps) == 12
        for gap, pause in zip(gaps, [0.1, 0.2, 0.4, 0.8, *[1.0] * 8], strict=True):
            assert 0.8 * pause - 0.001 <= gap <= min(1.2 * pause, 1.0) + 0.001


@virtual_time
async def test_a_leader_hint_is_followed_at_once(producing: StartProducer) -> None:
    """C1: KIP-951: no Metadata request, no backoff."""
    fake = one_topic()
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        await producer.send_and_wait("t", b"connects", partition=1)
        asked = len(fake.requests_of(ApiKey.METADATA))
        started = now()
        fake.move_leader("t", 0, 1)
        await producer.send_and_wait("t", b"v", partition=0)
        assert now() == started
        assert len(fake.requests_of(ApiKey.METADATA)) == asked
        assert [r.broker for r in fake.requests_of(ApiKey.PRODUCE)] == [0, 1, 0, 1]


@virtual_time
async def test_without_hints_metadata_tells_the_new_leader(producing: StartProducer) -> None:
    """C1: brokers before Produce v10: one Metadata request, then at once to the new leader."""
    fake = FakeCluster(profile="kafka-3")
    fake.create_topic("t", 3)
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        await asyncio.sleep(5)
        fake.move_leader("t", 0, 1)
        started = now()
        await producer.send_and_wait("t", b"v", partition=0)
        assert now() == pytest.approx(started, abs=0.001)


@virtual_time
async def test_a_leader_that_died_while_idle_is_found_out(producing: StartProducer) -> None:
    """C1, C6: nothing was in flight, so only the failing connection tells that leaders moved."""
    fake = one_topic(replication_factor=2)
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        await asyncio.sleep(5)
        fake.stop_broker(0)
        await asyncio.sleep(5)
        started = now()
        await producer.send_and_wait("t", b"v", partition=0)
        assert now() - started < 1.5
        assert fake.leader("t", 0) == 1


@virtual_time
async def test_a_leader_that_died_before_it_was_ever_used_is_found_out(
    producing: StartProducer,
) -> None:
    """C1, C6: the same for a broker that no connection was made to yet."""
    fake = one_topic(replication_factor=2)
    async with producing(fake, linger_ms=0) as producer:
        await producer.partitions_for("t")
        fake.stop_broker(0)
        started = now()
        await producer.send_and_wait("t", b"v", partition=0)
        assert now() - started < 1.5


@virtual_time
async def test_a_leader_that_metadata_does_not_list_is_asked_for_again(
    producing: StartProducer,
) -> None:
    """C6: a broker that just went, or is not quite back, may be named as a leader."""
    fake = one_topic()
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        fake.stop_broker(2)
        fake.move_leader("t", 0, 2)
        delivery = await producer.send("t", b"v", partition=0)
        await asyncio.sleep(10)
        fake.start_broker(2)
        started = now()
        await delivery
        assert now() - started < 2.5


# --- C2: black holes --------------------------------------------------------------------------


@virtual_time
async def test_a_black_holed_broker_delays_only_itself(producing: StartProducer) -> None:
    """C2: its connection attempt ends after socket.connection.setup.timeout.ms."""
    fake = one_topic()
    async with producing(fake, linger_ms=0) as producer:
        await producer.partitions_for("t")
        fake.stall_broker(0, swallow_dials=True)
        started = now()
        lost = await producer.send("t", b"a", partition=0)
        await asyncio.gather(
            producer.send_and_wait("t", b"b", partition=1),
            producer.send_and_wait("t", b"c", partition=2),
        )
        assert now() == started
        await asyncio.sleep(7.9)
        assert inspect(producer).router.connection_error(0) is None
        await asyncio.sleep(4.2)
        assert "could not be connected within" in str(inspect(producer).router.connection_error(0))
        fake.resume_broker(0)
        await lost


# --- C4: idle connections ---------------------------------------------------------------------


@virtual_time
async def test_an_idle_connection_closed_by_the_broker_costs_nothing(
    producing: StartProducer,
) -> None:
    """C4: one reconnect, no backoff."""
    fake = one_topic()
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        await asyncio.sleep(60)
        fake.drop_connections(0)
        await asyncio.sleep(1)
        started = now()
        await producer.send_and_wait("t", b"v", partition=0)
        assert now() == started


@virtual_time
async def test_a_request_that_crosses_the_idle_close_is_sent_again_at_once(
    producing: StartProducer,
) -> None:
    """C4: written before the loop knew that the socket was closed."""
    fake = one_topic()
    fake.round_trip_s = 0.002
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        await asyncio.sleep(60)
        delivery = await producer.send("t", b"v", partition=0)
        await asyncio.sleep(0.0005)
        fake.drop_connections(0)
        started = now()
        await delivery
        assert now() - started < 0.010
        assert len(fake.log("t", 0)) == 2


@virtual_time
async def test_our_own_idle_close_costs_nothing(producing: StartProducer) -> None:
    """C4: connections.max.idle.ms passes; the next record reconnects."""
    fake = one_topic()
    async with producing(fake, linger_ms=0, connections_max_idle_ms=30_000) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        await asyncio.sleep(100)
        assert sum(map(fake.connections, range(3))) == 0
        started = now()
        await producer.send_and_wait("t", b"v", partition=0)
        assert now() == started


# --- C5, C6: moves and restarts ---------------------------------------------------------------


@virtual_time
async def test_a_rolling_restart_is_boring(producing: StartProducer, outcomes: Outcomes) -> None:
    """C6: each broker down for 10 s under load: nothing lost, duplicated or reordered."""
    fake = one_topic(6, replication_factor=3, min_insync_replicas=2)
    fake.round_trip_s = 0.001
    async with producing(fake) as producer:
        deliveries = []

        async def load() -> None:
            for n in range(600):
                deliveries.append(await producer.send("t", b"%d" % n, key=b"%d" % (n % 50)))
                await asyncio.sleep(0.1)

        loading = asyncio.create_task(load())
        for node in range(3):
            await asyncio.sleep(5)
            fake.stop_broker(node)
            await asyncio.sleep(10)
            fake.start_broker(node)
        await loading
        await producer.flush()
        assert not [r for r in await outcomes(deliveries) if isinstance(r, Exception)]
        by_key: dict[Any, list[int]] = {}
        for partition in range(6):
            for record in fake.log("t", partition):
                by_key.setdefault(record.key, []).append(int(record.value or b""))
        assert sorted(n for ns in by_key.values() for n in ns) == list(range(600))
        assert all(ns == sorted(ns) for ns in by_key.values())


@virtual_time
async def test_a_broker_that_changes_its_address_is_followed(producing: StartProducer) -> None:
    """C5: the connection ends, metadata tells the new address."""
    fake = one_topic()
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        await asyncio.sleep(5)
        fake.set_address(0, "elsewhere", 19092)
        started = now()
        await producer.send_and_wait("t", b"v", partition=0)
        assert now() - started < 1.5


@virtual_time
async def test_a_cluster_that_changes_all_its_addresses_is_found_again(
    producing: StartProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C5: nothing of what was known can be reached; the bootstrap server's name leads to the new
    ones (KIP-899)."""
    fake = one_topic()
    dial = fake.dial

    async def resolved(host: str, port: int, factory: Any) -> Any:
        name = inspect(fake).brokers[0].host if host == "kafka.example" else host
        return await dial(name, port, factory)

    monkeypatch.setattr(fake, "dial", resolved)
    monkeypatch.setattr(type(fake), "bootstrap", property(lambda _: "kafka.example:9092"))
    async with producing(fake, linger_ms=0) as producer:
        for partition in range(3):
            await producer.send_and_wait("t", b"first", partition=partition)
        for node in range(3):
            fake.set_address(node, f"10.9.8.{node}")
        started = now()
        for partition in range(3):
            await producer.send_and_wait("t", b"v", partition=partition)
        assert now() - started < 3
        brokers = inspect(producer).metadata.view.brokers.values()
        assert {broker.host for broker in brokers} == {f"10.9.8.{n}" for n in range(3)}


# --- C3: half-open connections ------------------------------------------------------------------


async def test_live_connections_notice_a_dead_peer(over_tcp: type[OverTcp]) -> None:
    """C3: whatever buffers the user asks for, keepalive and the user timeout stay."""
    fake = one_topic()
    options = {"send_buffer_bytes": 131_072, "receive_buffer_bytes": 65_536}
    tcp = TcpDialer(*options.values())
    async with (
        over_tcp(fake, tcp) as dialer,
        Producer(fake.bootstrap, dialer=dialer, **options) as producer,
    ):
        for partition in range(3):
            await producer.send_and_wait("t", b"v", partition=partition)
        links = inspect(producer).router._links.values()
        socks = [
            link.connection._transport.get_extra_info("socket")
            for link in links
            if link.connection is not None
        ]
        assert len(socks) >= 3
        for sock in socks:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= 65_536
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= 131_072
            for name, value in (
                ("TCP_USER_TIMEOUT", 30_000),
                ("TCP_KEEPIDLE", 30),
                ("TCP_KEEPINTVL", 10),
                ("TCP_KEEPCNT", 3),
            ):
                option = getattr(socket, name, None)
                assert option is None or sock.getsockopt(socket.IPPROTO_TCP, option) == value


@virtual_time
async def test_a_black_holed_connection_is_closed_and_made_again(
    producing: StartProducer, values: Values
) -> None:
    """C3: it takes bytes and gives none; closed after request.timeout.ms, and the batch is sent
    once more on a new one."""
    fake = one_topic()
    async with producing(fake, linger_ms=0, request_timeout_ms=4000) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        [hole] = {request.connection for request in fake.requests_of(ApiKey.PRODUCE, 0)}
        swallow = fake.control(
            ApiKey.PRODUCE, lambda r: DROP if r.connection == hole else None, keep=True
        )
        started = now()
        await producer.send_and_wait("t", b"v", partition=0)
        assert now() - started == pytest.approx(4.0, abs=0.2)
        assert swallow.hits == 1
    assert values(fake, "t", 0) == [b"first", b"v"]


# --- C7: quotas -------------------------------------------------------------------------------


@virtual_time
async def test_a_throttled_broker_is_left_in_peace(
    producing: StartProducer, outcomes: Outcomes
) -> None:
    """C7: KIP-219: no request for 3 s, records are accepted, unkeyed ones go elsewhere."""
    fake = one_topic()
    options = {"linger_ms": 0, "batch_size": 200, "availability_timeout_ms": 100}
    async with producing(fake, **options) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        fake.throttle(3000, node_id=0)
        await producer.send_and_wait("t", b"throttled by this answer", partition=0)
        fake.throttle(0)
        silent_from = now()
        delivery = await producer.send("t", b"accepted", partition=0)
        unkeyed = []
        for _ in range(100):
            await asyncio.sleep(0.02)
            unkeyed.append(await producer.send("t", bytes(150)))
        await delivery
        assert arrivals(fake, 0)[2] == pytest.approx(silent_from + 3.0)
        partitions = [metadata.partition for metadata in await outcomes(unkeyed)]
        assert partitions[20:].count(0) == 0
        throttle = producer.metrics().producer["produce-throttle-time-max"]
        assert throttle == 3000


# --- C9: topics -------------------------------------------------------------------------------


@virtual_time
async def test_a_topic_that_appears_later_is_delivered_to(producing: StartProducer) -> None:
    """C9: unknown at first, created meanwhile."""
    fake = FakeCluster(auto_create_topics=False)
    async with producing(fake) as producer:
        waiting = asyncio.create_task(producer.send_and_wait("later", b"waits"))
        parked = producer.send_nowait("later", b"parked")
        await asyncio.sleep(2)
        fake.create_topic("later", 1)
        await waiting
        await parked
        assert now() < 4


@virtual_time
async def test_an_unknown_topic_fails_by_max_block(producing: StartProducer) -> None:
    """C9: bounded, and the error says what to do."""
    fake = FakeCluster(auto_create_topics=False)
    async with producing(fake, max_block_ms=5000) as producer:
        with pytest.raises(MetadataTimeoutError, match=r"create the topic"):
            await producer.send("missing", b"v")
        assert now() == pytest.approx(5.0, abs=0.01)


@pytest.mark.parametrize(("code", "kind"), [(17, BrokerError), (29, AuthorizationError)])
@virtual_time
async def test_a_hopeless_topic_fails_at_once(
    code: int, kind: type[BrokerError], producing: StartProducer
) -> None:
    """C9: an invalid name, a missing authorisation: waiting cannot mend it."""
    fake = one_topic()
    async with producing(fake) as producer:
        topic = {"error_code": code, "name": "secret", "partitions": []}
        brokers = [{"node_id": 0, "host": "fake-0", "port": 9092, "rack": None}]
        answer = {"brokers": brokers, "topics": [topic]}
        fake.control(ApiKey.METADATA, answer, keep=True)
        started = now()
        parked = producer.send_nowait("secret", b"v")
        with pytest.raises(kind) as caught:
            await producer.send("secret", b"v")
        assert caught.value.code == code
        assert isinstance((await asyncio.gather(parked, return_exceptions=True))[0], kind)
        assert now() - started < 0.1


@virtual_time
async def test_leaderless_partitions_are_avoided_or_buffered(producing: StartProducer) -> None:
    """C9: unkeyed records go where a leader is; a keyed one waits until there is one again."""
    fake = one_topic()
    fake.move_leader("t", 0, -1)
    async with producing(fake, linger_ms=0) as producer:
        for _ in range(20):
            assert (await producer.send_and_wait("t", b"unkeyed")).partition != 0
        waiting = await producer.send("t", b"explicit", partition=0)
        await asyncio.sleep(30)
        assert not waiting.done()
        fake.move_leader("t", 0, 2)
        started = now()
        await waiting
        assert now() - started <= 1.01


# --- C10: dialects ----------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["kafka-4", "kafka-4.0", "kafka-3", "kafka-2.1", "event-hubs"])
@virtual_time
async def test_dialects(profile: str, producing: StartProducer, values: Values) -> None:
    """C10: brokers of other ages and makes, down to those that reset on ApiVersions v4."""
    fake = FakeCluster(profile=profile)
    fake.create_topic("t", 1)
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"v", headers=[("h", b"1")])
        fake.control(ApiKey.PRODUCE, CLOSE_ANSWER)
        await producer.send_and_wait("t", b"w")
    assert values(fake, "t") == [b"v", b"w"]
    newest = {"kafka-4": 13, "kafka-4.0": 12, "kafka-3": 9, "kafka-2.1": 7, "event-hubs": 9}[
        profile
    ]
    assert {request.version for request in fake.requests_of(ApiKey.PRODUCE)} == {newest}


@virtual_time
async def test_a_topic_without_id_goes_by_name(producing: StartProducer, values: Values) -> None:
    """C10: in the middle of an upgrade an old broker tells of the topic, and a new one leads it."""
    fake = one_topic(1)
    fake.create_topic("u", 1)
    fake.set_versions(ApiKey.METADATA, 0, 9)
    async with producing(fake) as producer:
        await producer.send_and_wait("t", b"v")
        fake.set_versions(ApiKey.METADATA, 0, 13)
        fake.drop_connections()
        inspect(producer).metadata.request_refresh("any")
        await asyncio.sleep(1)
        await producer.send_and_wait("t", b"w")
    assert values(fake, "t") == [b"v", b"w"]
    assert [request.version for request in fake.requests_of(ApiKey.PRODUCE)] == [12, 13]
    assert {r.producer_epoch for r in fake.log("t", 0)} == {0}


@virtual_time
async def test_a_dead_broker_is_left_alone_once_nothing_waits_for_it(
    producing: StartProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4: the records have expired; it is not dialled for their sake for ever."""
    fake = one_topic(1, brokers=2, assignments=[[1]])
    dialled, dial = [], fake.dial

    async def counted(*args: Any) -> Any:
        dialled.append(now())
        return await dial(*args)

    monkeypatch.setattr(fake, "dial", counted)
    options = {"linger_ms": 0, "delivery_timeout_ms": 31_000, "request_timeout_ms": 30_000}
    async with producing(fake, **options) as producer:
        await producer.send_and_wait("t", b"v")
        fake.stop_broker(1, elect=False)
        with pytest.raises(DeliveryTimeoutError):
            await producer.send_and_wait("t", b"v")
        await asyncio.sleep(10)
        dialled.clear()
        await asyncio.sleep(600)
        assert len(dialled) < 5
