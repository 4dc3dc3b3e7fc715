"""Produce against the fake: every version, errors per partition, hints, acks, delays."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import ErrorCode, FakeCluster, delay
from kafkaclient.testing.fake.apis import APIS
from kafkaclient.wire import produce
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.compression import CompressionType
from kafkaclient.wire.metadata import MetadataCall

if TYPE_CHECKING:
    from collections.abc import Callable

OLDEST, NEWEST = APIS[ApiKey.PRODUCE].versions


@pytest.fixture
def fake() -> FakeCluster:
    fake = FakeCluster()
    fake.create_topic("t", 3)
    return fake


@pytest.mark.parametrize("version", range(OLDEST, NEWEST + 1))
@pytest.mark.parametrize("acks", [-1, 1])
@virtual_time
async def test_every_version(
    fake: FakeCluster, dial: Any, batch: Callable[..., bytes], version: int, acks: int
) -> None:
    client = await dial(fake)
    await client.produce_one("t", 0, batch(b"a", b"b"), acks=acks, version=version)
    result = await client.produce_one("t", 0, batch(b"c"), acks=acks, version=version)
    assert (result.error_code, result.base_offset) == (0, 2)
    assert [record.value for record in fake.log("t", 0)] == [b"a", b"b", b"c"]
    assert [header.record_count for header in fake.batches("t", 0)] == [2, 1]
    assert fake.requests[0].batches == [("t", 0, batch(b"a", b"b"))]


@virtual_time
async def test_the_id_of_a_topic_that_is_no_more(
    fake: FakeCluster, dial: Any, batch: Callable[..., bytes]
) -> None:
    """KIP-516: the topic created anew under the name gets nothing that was meant for the old."""
    client = await dial(fake)
    former = fake.topic_id("t")
    fake.delete_topic("t")
    fake.create_topic("t", 3)
    assert fake.topic_id("t") != former
    client.transport.writelines(
        produce.encode_request(13, 7, "test", -1, 1000, [(former.bytes, [(0, batch(b"a"))])])
    )
    _, payload = await client.receive()
    (result,) = produce.decode_response(13, payload, {former.bytes: "t"}).partitions
    assert (result.topic, result.error_code) == ("t", ErrorCode.UNKNOWN_TOPIC_ID)
    assert fake.log("t", 0) == []
    assert fake.requests[0].batches == [("t", 0, batch(b"a"))]


@virtual_time
async def test_each_partition_of_a_request_is_judged_by_itself(
    fake: FakeCluster, dial: Any, batch: Callable[..., bytes]
) -> None:
    client = await dial(fake)
    good = batch()
    corrupt = good[:-1] + bytes([good[-1] ^ 0xFF])
    fake.create_topic("led", assignments=[[0], [0], [0]])
    fake.configure_topic("led", max_message_bytes=200)
    result = await client.produce(
        ("t", 0, good),
        ("led", 0, corrupt),
        ("led", 1, batch(b"x" * 200)),
        ("led", 2, good),
        ("led", 3, good),
        ("unknown", 0, good),
    )
    assert [p.error_code for p in result.partitions] == [
        ErrorCode.NONE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert "maximum configured value of 200" in result.partitions[2].error_message


@virtual_time
async def test_a_moved_partition_names_its_new_leader(
    fake: FakeCluster, dial: Any, batch: Callable[..., bytes]
) -> None:
    client = await dial(fake)
    fake.move_leader("t", 0, 2)
    assert fake.leader("t", 0) == 2
    result = await client.produce(("t", 0, batch()), version=10)
    (partition,) = result.partitions
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.leader_id, partition.leader_epoch) == (2, 1)
    assert [endpoint[:3] for endpoint in result.endpoints] == [(2, "fake-2", 9092)]
    older = await client.produce(("t", 0, batch()), version=9)
    assert older.partitions[0].leader_id == -1
    assert older.endpoints == ()
    assert (await (await dial(fake, 2)).produce_one("t", 0, batch())).error_code == 0
    fake.move_leader("t", 0, -1)
    leaderless = await client.produce(("t", 0, batch()))
    assert (leaderless.partitions[0].leader_id, leaderless.endpoints) == (-1, ())


@virtual_time
async def test_the_leader_moves_while_a_request_waits(
    fake: FakeCluster, dial: Any, batch: Callable[..., bytes]
) -> None:
    client = await dial(fake)
    fake.control(ApiKey.PRODUCE, delay(1))
    client.send_produce(("t", 0, batch()))
    await asyncio.sleep(0.5)
    fake.move_leader("t", 0, 1)
    await client.receive()
    assert fake.log("t", 0) == []


@virtual_time
async def test_idempotence_across_leaders(
    fake: FakeCluster, dial: Any, batch: Callable[..., bytes]
) -> None:
    client = await dial(fake)
    first = batch(b"a", b"b", producer_id=9, epoch=0, sequence=0)
    assert (await client.produce_one("t", 0, first)).base_offset == 0
    fake.move_leader("t", 0, 1)
    client = await dial(fake, 1)
    again = await client.produce_one("t", 0, first)
    assert (again.error_code, again.base_offset) == (0, 0)
    gap = await client.produce_one("t", 0, batch(producer_id=9, epoch=0, sequence=3))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [r.sequence for r in fake.log("t", 0)] == [0, 1]
    assert {(r.producer_id, r.producer_epoch) for r in fake.log("t", 0)} == {(9, 0)}


@virtual_time
async def test_acks(fake: FakeCluster, dial: Any, batch: Callable[..., bytes]) -> None:
    client = await dial(fake)
    assert (await client.produce_one("t", 0, batch(), acks=2)).error_code == 21
    client.send_produce(("t", 0, batch()), acks=0)
    await client.call(MetadataCall())  # the next answer belongs to the next request
    assert len(fake.log("t", 0)) == 1
    client.send_produce(("t", 1, batch()), acks=0)
    assert await client.lost is None


@virtual_time
async def test_too_few_in_sync_replicas(
    fake: FakeCluster, dial: Any, batch: Callable[..., bytes]
) -> None:
    fake.create_topic("safe", 1, replication_factor=3, min_insync_replicas=2)
    client = await dial(fake)
    fake.set_isr("safe", 0, [0])
    result = await client.produce_one("safe", 0, batch())
    assert result.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await client.produce_one("safe", 0, batch(), acks=1)).error_code == 0
    fake.set_isr("safe", 0, [0, 2])
    assert (await client.produce_one("safe", 0, batch())).base_offset == 1


@virtual_time
async def test_zstd_needs_version_7(
    fake: FakeCluster, dial: Any, batch: Callable[..., bytes]
) -> None:
    client = await dial(fake)
    data = batch(b"x" * 500, codec=CompressionType.ZSTD)
    refused = await client.produce_one("t", 0, data, version=6)
    assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (await client.produce_one("t", 0, data, version=7)).error_code == 0


@virtual_time
async def test_scripted_failures(fake: FakeCluster, dial: Any, batch: Callable[..., bytes]) -> None:
    client = await dial(fake)
    fake.fail_produce("t", 0, 7, times=2)
    fake.fail_produce("t", 0, 20, append=True)
    fake.fail_produce("t", 0, 87, message="bad", record_errors=[(1, "bad timestamp"), (2, None)])
    results = [await client.produce_one("t", 0, batch()) for _ in range(5)]
    assert [result.error_code for result in results] == [7, 7, 20, 87, 0]
    assert results[3].error_message == "bad"
    assert [tuple(e) for e in results[3].record_errors] == [(1, "bad timestamp"), (2, None)]
    assert results[4].base_offset == 1


@virtual_time
async def test_a_slow_broker_answers_one_after_the_other(
    fake: FakeCluster, dial: Any, batch: Callable[..., bytes]
) -> None:
    loop = asyncio.get_running_loop()
    fake.delay_produce(0, 0.02)
    slow, fast = await dial(fake, 0), await dial(fake, 1)
    for _ in range(3):
        slow.send_produce(("t", 0, batch()))
    left = []
    for _ in range(3):
        await slow.receive()
        left.append(loop.time())
    assert left == pytest.approx([0.02, 0.04, 0.06])
    await fast.produce(("t", 1, batch()))
    await slow.call(MetadataCall())
    fake.delay_produce(0, 0)
    await slow.produce(("t", 0, batch()))
    assert loop.time() == left[-1]


@virtual_time
async def test_throttle(fake: FakeCluster, dial: Any, batch: Callable[..., bytes]) -> None:
    client, other = await dial(fake, 0), await dial(fake, 1)
    fake.throttle(3000, 0)
    assert (await client.produce(("t", 0, batch()))).throttle_ms == 3000
    assert (await other.produce(("t", 1, batch()))).throttle_ms == 0
    fake.throttle(0)
    assert (await client.produce(("t", 0, batch()))).throttle_ms == 0


@virtual_time
async def test_an_error_for_the_whole_request(
    fake: FakeCluster, dial: Any, batch: Callable[..., bytes]
) -> None:
    client = await dial(fake)
    fake.control(ApiKey.PRODUCE, ErrorCode.INVALID_PRODUCER_EPOCH)
    result = await client.produce(("t", 0, batch()), ("t", 1, batch()))
    assert [p.error_code for p in result.partitions] == [47, 47]
    assert fake.log("t", 0) == []


@virtual_time
async def test_pipelined_large_requests_are_answered_in_order(
    fake: FakeCluster, dial: Any, batch: Callable[..., bytes]
) -> None:
    client = await dial(fake)
    sent = [client.send_produce(("t", 0, batch(bytes(300_000)))) for _ in range(5)]
    assert [(await client.receive())[0] for _ in sent] == sent
    assert len(fake.log("t", 0)) == 5
