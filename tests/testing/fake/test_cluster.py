"""The fake cluster as a client meets it: addresses, metadata, faults, interceptors."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import (
    CLOSE,
    CLOSE_ANSWER,
    DROP,
    DROP_ANSWER,
    ErrorCode,
    FakeCluster,
    delay,
    delay_answer,
)
from kafkaclient.testing.fake.apis import APIS
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.api_versions import ApiVersionsCall
from kafkaclient.wire.codec import encode_response
from kafkaclient.wire.fetch import LATEST_TIMESTAMP, ListOffsetsCall
from kafkaclient.wire.metadata import MetadataCall
from kafkaclient.wire.producer_ids import InitProducerIdCall
from kafkaclient.wire.telemetry import GetTelemetrySubscriptionsCall, PushTelemetryCall
from kafkaclient.wire.topics import CreateTopicsCall, NewTopic

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.testing.fake import Request


# --- ApiVersions ------------------------------------------------------------------------------


@virtual_time
async def test_every_offered_version_of_every_call_works(dial: Any) -> None:
    fake = FakeCluster()
    fake.create_topic("t", 1)
    fake.subscribe_metrics()
    client = await dial(fake)
    offered = await client.call(ApiVersionsCall(), 3)
    ranges = {key: api.versions for key, api in APIS.items()}
    assert offered.ranges == ranges | {ApiKey.PRODUCE: (0, 13)}  # as brokers do
    calls = [
        ApiVersionsCall(),
        MetadataCall(("t",)),
        InitProducerIdCall(),
        ListOffsetsCall({"t": (0,)}),
        CreateTopicsCall((NewTopic("t", 1, 1),)),
        GetTelemetrySubscriptionsCall(),
        PushTelemetryCall(UUID(int=1), 1, False, 0, b""),
    ]
    for call in calls:
        oldest, newest = offered.ranges[call.api_key]
        for version in range(max(oldest, call.min_version), min(newest, call.max_version) + 1):
            await client.call(call, version)


@virtual_time
async def test_api_versions_downgrade(dial: Any) -> None:
    client = await dial(FakeCluster(profile="kafka-2.1"))
    client.transport.write(ApiVersionsCall().encode(3, 1, "test"))
    answered, payload = await client.receive()
    answer = ApiVersionsCall().decode(0, payload)
    assert (answered, answer.error_code) == (1, ErrorCode.UNSUPPORTED_VERSION)
    client.next_id()
    assert (await client.call(ApiVersionsCall(), 0)).ranges[ApiKey.PRODUCE] == (0, 7)

    newer = FakeCluster()
    newer.set_versions(ApiKey.API_VERSIONS, 0, 3)
    client = await dial(newer)
    client.transport.write(ApiVersionsCall().encode(4, 1, "test"))
    answer = ApiVersionsCall().decode(0, (await client.receive())[1])
    assert answer.ranges == {ApiKey.API_VERSIONS: (0, 3)}


@virtual_time
async def test_event_hubs_closes_on_a_version_it_does_not_know(dial: Any) -> None:
    fake = FakeCluster(profile="event-hubs")
    with pytest.raises(ConnectionError):
        await (await dial(fake)).call(ApiVersionsCall(), 4)
    assert (await (await dial(fake)).call(ApiVersionsCall(), 3)).error_code == 0


@virtual_time
async def test_a_version_not_offered_closes_the_connection(dial: Any) -> None:
    fake = FakeCluster()
    fake.set_versions(ApiKey.METADATA, 0, 8)
    with pytest.raises(ConnectionError):
        await (await dial(fake)).call(MetadataCall(), 9)


# --- Metadata, topics -------------------------------------------------------------------------


@virtual_time
async def test_metadata(dial: Any) -> None:
    fake = FakeCluster(racks=["a", "b", None])
    fake.create_topic("t", 4, replication_factor=2)
    metadata = await (await dial(fake, 1)).call(MetadataCall(("t",)))
    assert [(b.node_id, b.host, b.port, b.rack) for b in metadata.brokers] == [
        (0, "fake-0", 9092, "a"),
        (1, "fake-1", 9092, "b"),
        (2, "fake-2", 9092, None),
    ]
    assert fake.bootstrap == "fake-0:9092,fake-1:9092,fake-2:9092"
    (topic,) = metadata.topics
    assert [(p.partition, p.leader, p.replicas, p.isr) for p in topic.partitions] == [
        (0, 0, (0, 1), (0, 1)),
        (1, 1, (1, 2), (1, 2)),
        (2, 2, (2, 0), (2, 0)),
        (3, 0, (0, 1), (0, 1)),
    ]
    assert (metadata.controller_id, metadata.cluster_id) == (0, "fake-cluster")


@virtual_time
async def test_a_topic_is_created_on_demand_and_seen_by_the_next_request(dial: Any) -> None:
    fake = FakeCluster(partitions=2)
    client = await dial(fake)
    (asked,) = (await client.call(MetadataCall(("new",), allow_auto_topic_creation=False))).topics
    assert asked.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await client.call(MetadataCall(None))).topics == ()
    (created,) = (await client.call(MetadataCall(("new",)))).topics
    assert created.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (known,) = (await client.call(MetadataCall(("new",)))).topics
    assert (known.error_code, len(known.partitions)) == (0, 2)
    (invalid,) = (await client.call(MetadataCall(("no spaces",)))).topics
    assert invalid.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@virtual_time
async def test_auto_creation_can_be_off(dial: Any) -> None:
    client = await dial(FakeCluster(auto_create_topics=False))
    for _ in range(2):
        (topic,) = (await client.call(MetadataCall(("new",)))).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@virtual_time
async def test_topics_grow_and_are_reborn_with_another_id(dial: Any) -> None:
    fake = FakeCluster()
    client = await dial(fake)

    async def topic() -> Any:
        return (await client.call(MetadataCall(("t",)))).topics[0]

    fake.create_topic("t", 1)
    first = await topic()
    fake.add_partitions("t", 3)
    grown = await topic()
    assert [p.leader for p in grown.partitions] == [0, 1, 2]
    assert grown.topic_id == first.topic_id
    fake.delete_topic("t")
    fake.create_topic("t", 1)
    assert (await topic()).topic_id not in {None, first.topic_id}
    with pytest.raises(ValueError, match="unknown topic 'x'"):
        fake.leader("x", 0)


@virtual_time
async def test_create_topics_and_list_offsets(dial: Any, batch: Callable[..., bytes]) -> None:
    fake = FakeCluster()
    client = await dial(fake)
    created = await client.call(
        CreateTopicsCall(
            (
                NewTopic("t", 2, 3, configs={"min.insync.replicas": "2"}),
                NewTopic("u", assignments={0: (2, 1)}),
                NewTopic("t"),
                NewTopic("too wide", 1, 1),
                NewTopic("v", 1, 4),
            )
        )
    )
    assert [topic.error_code for topic in created.topics] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REPLICATION_FACTOR,
    ]
    assert fake.leader("u", 0) == 2
    await client.produce(("t", 0, batch(b"a", b"b")))
    found = (await client.call(ListOffsetsCall({"t": (0, 1, 9)}, LATEST_TIMESTAMP))).partitions
    assert [(p.error_code, p.offset) for p in found] == [
        (ErrorCode.NONE, 2),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


# --- brokers come, go, hang and move ----------------------------------------------------------


@virtual_time
async def test_dials(dial: Any) -> None:
    fake = FakeCluster()
    with pytest.raises(socket.gaierror):
        await fake.dial("elsewhere", 9092, asyncio.Protocol)
    with pytest.raises(ConnectionRefusedError):
        await fake.dial("fake-0", 1, asyncio.Protocol)
    fake.stop_broker(0)
    with pytest.raises(ConnectionRefusedError):
        await dial(fake)
    fake.start_broker(0)
    await dial(fake)
    assert (fake.connections(0), fake.connections(1)) == (1, 0)


@virtual_time
async def test_a_stopped_broker_loses_connections_and_leadership(dial: Any) -> None:
    fake = FakeCluster()
    fake.create_topic("t", 3, replication_factor=2)
    fake.create_topic("alone", 1)
    victim, other = await dial(fake, 0), await dial(fake, 1)
    fake.stop_broker(0)
    assert isinstance(await victim.lost, ConnectionResetError)
    metadata = await other.call(MetadataCall(("t", "alone")))
    assert [broker.node_id for broker in metadata.brokers] == [1, 2]
    t, alone = metadata.topics
    assert [(p.leader, p.leader_epoch, p.isr) for p in t.partitions] == [
        (1, 1, (1,)),
        (1, 0, (1, 2)),
        (2, 0, (2,)),
    ]
    (partition,) = alone.partitions
    assert partition.leader == -1
    fake.start_broker(0)
    assert fake.leader("alone", 0) == 0
    assert fake.leader("t", 0) == 1
    assert fake.leader_epoch("alone", 0) == 2


@virtual_time
async def test_the_cluster_may_not_have_noticed_yet(dial: Any) -> None:
    fake = FakeCluster()
    fake.create_topic("t", 1, replication_factor=2)
    fake.stop_broker(0, elect=False)
    metadata = await (await dial(fake, 1)).call(MetadataCall(("t",)))
    assert len(metadata.brokers) == 3
    assert metadata.topics[0].partitions[0].leader == 0
    with pytest.raises(ConnectionRefusedError):
        await dial(fake, 0)


@virtual_time
async def test_a_stalled_broker_answers_when_resumed(dial: Any) -> None:
    fake = FakeCluster()
    client = await dial(fake)
    fake.stall_broker(0)
    late = await dial(fake)
    first, second = (asyncio.ensure_future(c.call(MetadataCall())) for c in (client, late))
    await asyncio.sleep(100)
    assert not first.done()
    assert not second.done()
    assert fake.requests == []
    fake.resume_broker(0)
    await asyncio.gather(first, second)


@virtual_time
async def test_a_stall_also_stops_the_delays_of_the_broker(dial: Any) -> None:
    loop = asyncio.get_running_loop()
    fake = FakeCluster()
    client = await dial(fake)
    fake.control(ApiKey.METADATA, delay_answer(5))
    call = asyncio.ensure_future(client.call(MetadataCall()))
    await asyncio.sleep(1)
    fake.stall_broker(0)
    await asyncio.sleep(9)
    assert not call.done()
    fake.resume_broker(0)
    await call
    assert loop.time() == 10.0


@virtual_time
async def test_a_black_hole_swallows_dials(dial: Any) -> None:
    fake = FakeCluster()
    fake.stall_broker(0, swallow_dials=True)
    waiting = asyncio.ensure_future(dial(fake))
    given_up = asyncio.ensure_future(dial(fake))
    await dial(fake, 1)
    await asyncio.sleep(10)
    assert not waiting.done()
    given_up.cancel()
    fake.resume_broker(0)
    await (await waiting).call(MetadataCall())
    assert fake.connections(0) == 1


@virtual_time
async def test_brokers_change_their_address(dial: Any) -> None:
    fake = FakeCluster()
    client = await dial(fake, 2)
    fake.set_address(2, "moved", 19092)
    assert isinstance(await client.lost, ConnectionResetError)
    with pytest.raises(socket.gaierror):
        await dial(fake, 2)
    await fake.dial("moved", 19092, asyncio.Protocol)
    metadata = await (await dial(fake, 0)).call(MetadataCall())
    assert metadata.brokers[2][:3] == (2, "moved", 19092)
    assert fake.bootstrap.endswith("moved:19092")


@virtual_time
async def test_round_trips_take_time_and_the_journal_says_when(dial: Any) -> None:
    loop = asyncio.get_running_loop()
    fake = FakeCluster()
    fake.round_trip_s = 0.05
    client = await dial(fake)
    assert loop.time() == 0.05
    client.transport.write(MetadataCall().encode(13, 1, "test"))
    client.transport.write(MetadataCall().encode(13, 2, "test"))
    await client.receive()
    await client.receive()
    assert loop.time() == pytest.approx(0.1)
    assert [(r.at, r.broker, r.connection, r.client_id) for r in fake.requests] == [
        (pytest.approx(0.075), 0, 1, "test")
    ] * 2
    assert len(fake.requests_of(ApiKey.METADATA, broker=0)) == 2
    assert fake.requests_of(ApiKey.METADATA, broker=1) == []


@virtual_time
async def test_bytes_one_by_one(dial: Any) -> None:
    fake = FakeCluster(clock=lambda: 42.0)
    fake.chunk_size = 1
    await (await dial(fake)).call(MetadataCall())
    assert fake.requests[0].at == 42.0


@virtual_time
async def test_bytes_that_are_no_request_close_the_connection(dial: Any) -> None:
    for hostile in (b"\xff" * 8, b"\0\0\0\x02ab", b"\0\0\0\x0c\0\x03\0\x09" + b"\xff" * 8):
        client = await dial(FakeCluster())
        client.transport.write(hostile)
        assert await client.lost is None


# --- InitProducerId ---------------------------------------------------------------------------


@virtual_time
async def test_producer_ids(dial: Any) -> None:
    client = await dial(FakeCluster())
    first = await client.call(InitProducerIdCall())
    again = await client.call(
        InitProducerIdCall(producer_id=first.producer_id, producer_epoch=first.producer_epoch)
    )
    assert (first.producer_epoch, again.producer_epoch) == (0, 0)
    assert first.producer_id != again.producer_id
    tx = [await client.call(InitProducerIdCall("tx")) for _ in range(2)]
    assert [t.producer_epoch for t in tx] == [0, 1]
    assert tx[0].producer_id == tx[1].producer_id
    fenced = InitProducerIdCall("tx", producer_id=tx[0].producer_id, producer_epoch=0)
    assert (await client.call(fenced, 4)).error_code == ErrorCode.PRODUCER_FENCED
    assert (await client.call(fenced, 3)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


# --- controls ---------------------------------------------------------------------------------


@virtual_time
async def test_a_control_answers_once_unless_kept(dial: Any) -> None:
    fake = FakeCluster()
    client = await dial(fake)
    once = fake.control(ApiKey.INIT_PRODUCER_ID, 14)
    kept = fake.control(ApiKey.INIT_PRODUCER_ID, lambda _: 15, keep=True)
    codes = [(await client.call(InitProducerIdCall())).error_code for _ in range(3)]
    assert codes == [14, 15, 15]
    kept.remove()
    assert (await client.call(InitProducerIdCall())).error_code == 0
    assert (once.hits, kept.hits) == (1, 2)


@virtual_time
async def test_a_control_that_passes_is_not_spent(dial: Any) -> None:
    fake = FakeCluster()
    client, other = await dial(fake, 0), await dial(fake, 1)
    seen: list[int] = []

    def third(request: Request) -> int | None:
        seen.append(request.broker)
        return 16 if len(seen) == 3 else None

    fake.control(ApiKey.INIT_PRODUCER_ID, third, broker=1)
    codes = [(await c.call(InitProducerIdCall())).error_code for c in (other, client, other, other)]
    assert codes == [0, 0, 0, 16]
    assert seen == [1, 1, 1]


@virtual_time
async def test_answers_by_fields_and_by_bytes(dial: Any) -> None:
    fake = FakeCluster()
    client = await dial(fake)
    fake.control(ApiKey.INIT_PRODUCER_ID, {"producer_id": 5, "producer_epoch": 6})
    identity = await client.call(InitProducerIdCall())
    assert (identity.producer_id, identity.producer_epoch) == (5, 6)
    fake.control(
        ApiKey.INIT_PRODUCER_ID,
        lambda r: encode_response(r.api_key, r.version, 77, producer_id=9),
    )
    client.transport.write(InitProducerIdCall().encode(5, 2, "test"))
    assert (await client.receive())[0] == 77


@virtual_time
async def test_drop_blocks_what_comes_behind(dial: Any) -> None:
    fake = FakeCluster()
    client = await dial(fake)
    fake.control(ApiKey.INIT_PRODUCER_ID, DROP)
    client.transport.write(InitProducerIdCall().encode(5, 1, "test"))
    client.transport.write(MetadataCall().encode(13, 2, "test"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.receive(), 1000)
    assert [request.api_key for request in fake.requests] == [22, 3]
    await (await dial(fake)).call(MetadataCall())


@pytest.mark.parametrize(
    ("order", "written"), [(CLOSE, 0), (CLOSE_ANSWER, 1), (DROP, 0), (DROP_ANSWER, 1)]
)
@virtual_time
async def test_effect_and_answer_are_lost_separately(
    dial: Any, batch: Callable[..., bytes], order: Any, written: int
) -> None:
    fake = FakeCluster()
    fake.create_topic("t", 1)
    client = await dial(fake)
    fake.control(ApiKey.PRODUCE, order)
    with pytest.raises((ConnectionError, TimeoutError)):
        await asyncio.wait_for(client.produce(("t", 0, batch())), 60)
    assert len(fake.log("t", 0)) == written


@virtual_time
async def test_delays_are_serial_and_before_or_after_the_effect(
    dial: Any, batch: Callable[..., bytes]
) -> None:
    loop = asyncio.get_running_loop()
    fake = FakeCluster()
    fake.create_topic("t", 1)
    client = await dial(fake)
    fake.control(ApiKey.PRODUCE, delay(1))
    fake.control(ApiKey.PRODUCE, delay_answer(1, 7))
    client.send_produce(("t", 0, batch()))
    client.send_produce(("t", 0, batch()))
    client.send_produce(("t", 0, batch()))
    await asyncio.sleep(0.5)
    assert fake.log("t", 0) == []
    await client.receive()
    assert loop.time() == 1.0
    await client.receive()
    await client.receive()
    assert loop.time() == 2.0
    # A control that gives an error instead has no effect, before or after the delay.
    assert len(fake.log("t", 0)) == 2


@virtual_time
async def test_a_stopped_broker_forgets_what_it_was_about_to_do(
    dial: Any, batch: Callable[..., bytes]
) -> None:
    fake = FakeCluster()
    fake.create_topic("t", 1)
    client = await dial(fake)
    fake.control(ApiKey.PRODUCE, delay(5))
    client.send_produce(("t", 0, batch()))
    await asyncio.sleep(1)
    assert "stopped" not in repr(fake)
    fake.stop_broker(0)
    assert "0 stopped" in repr(fake)
    fake.start_broker(0)
    await asyncio.sleep(100)
    assert fake.log("t", 0) == []


def test_a_record_is_added() -> None:
    fake = FakeCluster()
    assert fake.add_record("orders", b"7", b"ann", partition=1, timestamp_ms=5) == 0
    assert fake.add_record("orders", None, partition=1, headers={"a": b"b"}) == 1
    first, second = fake.log("orders", 1)
    assert (first.key, first.value, first.timestamp) == (b"ann", b"7", 5)
    assert (second.value, list(second.headers)) == (None, [("a", b"b")])
    with pytest.raises(ValueError, match="no 6"):
        fake.add_record("orders", b"7", partition=6)
