"""Readers under faults: leaders that move, brokers that die or stall, logs that change or are
damaged, bytes that are not what they should be."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

import crc32c
import pytest

from kafkaclient.errors import (
    AuthorizationError,
    BrokerError,
    FetchTimeoutError,
    KafkaError,
    LeaderChangedError,
    OffsetOutOfRangeError,
    ProtocolError,
    UnknownTopicError,
    UnreadableBatchError,
)
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import CLOSE, DROP, FakeCluster
from kafkaclient.testing.fake.apis import APIS
from kafkaclient.testing.fake.interceptors import delay, delay_answer
from kafkaclient.testing.inspect import inspect
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.compression import compress

if TYPE_CHECKING:
    from kafkaclient.testing.fake import Request

P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)


def now() -> float:
    return asyncio.get_running_loop().time()


# --- brokers --------------------------------------------------------------------------------------


@virtual_time
async def test_a_leader_that_moves_is_followed_at_once(fake, tools):
    """The refusal names the new leader (KIP-951), also one that no metadata has named yet."""
    tools.fill(fake, 0, 4)
    async with tools.reader(fake, max_partition_fetch_bytes=200) as reader:
        reading = reader.read({P0: (0, 12)})
        first = [r.value for r in await anext(reading)]
        fake.move_leader("t", 0, 2)
        asked = len(fake.requests_of(ApiKey.METADATA))
        rest = await tools.values(reading)
        assert first + rest == [b"%d" % n for n in range(12)]
        assert now() < 1
        assert len(fake.requests_of(ApiKey.METADATA)) <= asked + 1
    assert fake.requests_of(ApiKey.FETCH)[-1].broker == 2


@pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 75, 78, 100, 103, -1])
@virtual_time
async def test_errors_that_pass_are_waited_out(fake, tools, code):
    tools.fill(fake, 0, 2)
    tools.fill(fake, 3, 2)
    fake.fail_fetch("t", 0, code, 3)
    async with tools.reader(fake) as reader:
        batches = await tools.batches(reader.read({P0: (0, 6), ("t", 3): (0, 6)}))
    assert [batch.partition for batch in batches] == [3, 0]  # the one does not wait for the other
    assert 0.1 < now() < 3


@virtual_time
async def test_a_reader_s_right_is_named(fake, tools):
    """Metadata need Describe only, but a reader then needs Read."""

    def answer(request: Request) -> dict[str, Any]:
        told = APIS[ApiKey.METADATA].answer(inspect(fake), request)
        return {**told, "topics": [{"error_code": 29, "name": "t", "partitions": []}]}

    fake.control(ApiKey.METADATA, answer, keep=True)
    wanted = "may not Describe on the topic 't'; .*--operation Read --topic t allows it"
    async with tools.reader(fake) as reader:
        with pytest.raises(AuthorizationError, match=wanted):
            await tools.values(reader.read({P0: (0, 6)}))
        with pytest.raises(AuthorizationError, match=wanted):
            await reader.list_topics(["t"])


@pytest.mark.parametrize(("code", "kind"), [(29, AuthorizationError), (2, KafkaError)])
@virtual_time
async def test_errors_that_last(fake, tools, code, kind):
    """29 at once; a batch that the broker itself cannot read is waited for as long as any."""
    tools.fill(fake, 0, 2)
    fake.fail_fetch("t", 0, code, 1000)
    async with tools.reader(fake, max_block_ms=5000) as reader:
        with pytest.raises(kind, match="t-0") as caught:
            await tools.values(reader.read({P0: (0, 6)}))
    if code == 29:
        assert "may not Read on the topic 't'" in str(caught.value)
        assert now() < 1
    else:
        assert caught.value.__cause__.code == code


@virtual_time
async def test_a_partition_without_a_leader(fake, tools):
    tools.fill(fake, 0, 1)
    fake.move_leader("t", 0, -1)
    async with tools.reader(fake, max_block_ms=5000) as reader:
        with pytest.raises(FetchTimeoutError, match=r"t-0: nothing could be fetched at offset 1"):
            await tools.values(reader.read({P0: (1, 3)}))
        assert 5 <= now() < 7
        asyncio.get_running_loop().call_later(2, fake.move_leader, "t", 0, 1)
        reading = reader.read({P0: (1, 3)})
        assert await tools.values(reading) == [b"1", b"2"]
        fake.move_leader("t", 0, -1)
        with pytest.raises(LeaderChangedError):
            await reader.offsets([P0], at="latest")


@virtual_time
async def test_where_a_timed_out_read_would_go_on(fake, tools):
    tools.fill(fake, 0, 1)
    async with tools.reader(fake, max_block_ms=3000) as reader:
        reading = reader.read({P0: 0})
        await anext(reading)
        fake.move_leader("t", 0, -1)
        with pytest.raises(FetchTimeoutError) as caught:
            await anext(reading)
        error = caught.value
        assert (error.topic_partition, error.offset, error.retriable) == (P0, 3, True)
        assert reading.positions == {P0: 3}


@virtual_time
async def test_a_broker_that_is_killed(fake, tools):
    """Its partitions go on at their new leaders, without a record lost or given twice."""
    for partition in range(6):
        tools.fill(fake, partition, 40)
    async with tools.reader(fake, max_partition_fetch_bytes=500) as reader:
        reading = reader.read({("t", p): (0, 120) for p in range(6)})
        seen = {p: [] for p in range(6)}
        async for batch in reading:
            seen[batch.partition] += [r.offset for r in batch]
            if sum(map(len, seen.values())) > 100 and inspect(fake).brokers[0].running:
                fake.stop_broker(0)
        assert seen == {p: list(range(120)) for p in range(6)}
        assert now() < 5


@virtual_time
async def test_a_broker_that_stalls_is_not_waited_for(fake, tools):
    """As soon as another one leads, long before request.timeout.ms."""
    tools.fill(fake, 0, 2)
    async with tools.reader(fake) as reader:
        reading = reader.read({P0: (0, 9)})
        assert len(await anext(reading)) == 6
        fake.stall_broker(0)
        asyncio.get_running_loop().call_later(9, fake.move_leader, "t", 0, 1)
        asyncio.get_running_loop().call_later(9, tools.fill, fake, 0, 1)
        assert await tools.values(reading) == [b"6", b"7", b"8"]
        assert 9 < now() < 12


@pytest.mark.parametrize("order", [CLOSE, DROP])
@virtual_time
async def test_answers_that_never_come(fake, tools, order):
    tools.fill(fake, 0, 2)
    fake.control(ApiKey.FETCH, order)
    fake.control(ApiKey.LIST_OFFSETS, order)
    async with tools.reader(fake, request_timeout_ms=5000) as reader:
        assert await reader.offsets([P0], at="latest") == {P0: 6}
        assert len(await tools.values(reader.read({P0: (0, 6)}))) == 6
    assert now() < 12


def low_end(offset: int) -> Any:
    """An answer of a broker that does not know yet that it is not the leader any more."""

    def answer(request: Request) -> Any:
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": each.partition_index,
                            "error_code": 0,
                            "timestamp": -1,
                            "offset": offset,
                            "leader_epoch": 0,
                        }
                        for each in topic.partitions
                    ],
                }
                for topic in request.message.topics
            ]
        }

    return answer


@pytest.mark.parametrize("low_answers", [1, 2])
@virtual_time
async def test_a_low_end_is_not_believed_at_once(fake, tools, low_answers):
    tools.fill(fake, 0, 2)
    for _ in range(low_answers):
        fake.control(ApiKey.LIST_OFFSETS, low_end(2))
    async with tools.reader(fake) as reader:
        began = now()
        assert await reader.end_offsets({P0: 5}) == {P0: 6}
        assert now() - began < 2.5


@virtual_time
async def test_an_end_that_stays_low_is_believed(fake, tools):
    tools.fill(fake, 0, 2)
    async with tools.reader(fake) as reader:
        began = now()
        assert await reader.end_offsets({P0: 9}) == {P0: 6}
        assert 2 <= now() - began < 2.5


@virtual_time
async def test_offsets_are_not_taken_from_a_broker_of_another_leader_epoch(fake, tools):
    """The broker's leader epoch is newer than the metadata: the metadata is refreshed first."""
    tools.fill(fake, 0, 2)
    async with tools.reader(fake) as reader:
        assert await reader.offsets([P0], at="latest") == {P0: 6}
        leader = fake.requests_of(ApiKey.LIST_OFFSETS)[-1].broker
        fake.move_leader("t", 0, 1 if leader != 1 else 2)
        fake.move_leader("t", 0, leader)
        asked = len(fake.requests_of(ApiKey.LIST_OFFSETS))
        assert await reader.offsets([P0], at="latest") == {P0: 6}
        assert len(fake.requests_of(ApiKey.LIST_OFFSETS)) == asked + 2


@virtual_time
async def test_offsets_while_leaders_move(fake, tools):
    tools.fill(fake, 0, 2)
    fake.control(ApiKey.LIST_OFFSETS, 6)
    fake.control(ApiKey.LIST_OFFSETS, 29, broker=1)
    async with tools.reader(fake) as reader:
        assert await reader.offsets([P0], at="latest") == {P0: 6}
        with pytest.raises(AuthorizationError, match="t-1: ListOffsets at broker 1"):
            await reader.offsets("t", at="latest")


@virtual_time
async def test_a_quota_is_respected(fake, tools):
    """KIP-219: a throttled answer may leave the partitions out, and asks for silence."""
    tools.fill(fake, 0, 1)
    fake.control(ApiKey.FETCH, {"throttle_time_ms": 3000, "responses": []})
    async with tools.reader(fake) as reader:
        assert len(await tools.values(reader.read({P0: (0, 3)}))) == 3
        assert 3 <= now() < 3.5


@virtual_time
async def test_a_follower_in_the_same_rack(tools):
    """KIP-392; and back to the leader once the follower is gone."""
    fake = FakeCluster(racks=["a", "b", "c"])
    fake.create_topic("t", 1, 3)
    fake.prefer_followers()
    tools.fill(fake, 0, 2)
    async with tools.reader(fake, client_rack="c") as reader:
        reading = reader.read({P0: (0, 9)})
        assert len(await anext(reading)) == 6
        assert [r.broker for r in fake.requests_of(ApiKey.FETCH)][:2] == [0, 2]
        tools.fill(fake, 0, 1)
        fake.stop_broker(2)
        assert len(await tools.values(reading)) == 3
    async with tools.reader(fake, client_rack="nowhere") as reader:
        assert len(await tools.values(reader.read({P0: (0, 9)}))) == 9


@virtual_time
async def test_a_partition_that_is_gone_while_a_follower_is_read(tools):
    """The topic was created again with fewer partitions. Nothing is asked of the follower, so its
    other partitions are read on."""
    fake = FakeCluster(racks=["a", "b", "c"])
    fake.create_topic("t", 2, 3)
    fake.prefer_followers()
    tools.fill(fake, 1, 9)
    options = {"max_partition_fetch_bytes": 200, "max_block_ms": 5000}
    async with tools.reader(fake, client_rack="c", **options) as reader:
        reading = reader.read({P1: 0})
        await anext(reading)
        await asyncio.sleep(1)  # as much is fetched as has room
        fake.delete_topic("t")
        fake.create_topic("t", 1, 3)
        tools.fill(fake, 0, 1)
        reader._cluster.metadata.request_refresh("another topic has a new leader")
        await asyncio.sleep(1)
        with pytest.raises(FetchTimeoutError, match="no leader"):
            await tools.values(reading)
        assert len(await tools.values(reader.read({P0: (0, 3)}))) == 3


# --- logs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "gone"), [(2, True), (13, False)])
@virtual_time
async def test_an_offset_that_is_not_in_the_log(fake, tools, offset, gone):
    tools.fill(fake, 0, 4)
    fake.delete_records("t", 0, before=6)
    async with tools.reader(fake) as reader:
        with pytest.raises(OffsetOutOfRangeError, match="has the offsets from 6 to 11") as caught:
            await tools.values(reader.read({P0: (offset, 20)}))
        assert await reader.offsets([P0], at="earliest") == {P0: 6}
    error = caught.value
    assert (error.topic_partition, error.offset, error.available) == (P0, offset, (6, 12))
    assert (error.code, error.retriable) == (1, False)
    assert ("been deleted" in str(error)) is gone


@virtual_time
async def test_records_deleted_under_a_slow_reader(fake, tools):
    """What has been fetched is given first."""
    tools.fill(fake, 0, 20)
    async with tools.reader(fake, max_partition_fetch_bytes=200) as reader:
        reading = reader.read({P0: (0, 60)})
        seen = list(await anext(reading))
        await asyncio.sleep(1)
        fake.delete_records("t", 0, before=60)
        with pytest.raises(OffsetOutOfRangeError) as caught:
            await tools.records(reading, seen)
        assert len(seen) == caught.value.offset == reading.positions[P0] >= 6
        assert caught.value.available == (60, 60)


@virtual_time
async def test_a_topic_created_anew_before_anything_was_read(fake, tools):
    """Its name was asked for, and it is there: what is known from before is not held against it."""
    tools.fill(fake, 0, 1)
    async with tools.reader(fake) as reader:
        assert (await reader.offsets([P0], "latest"))[P0] == 3
        fake.delete_topic("t")
        fake.create_topic("t", 6, 3)
        tools.fill(fake, 0, 2)
        assert len(await tools.records(reader.read({P0: (0, 6)}))) == 6


@pytest.mark.parametrize("batches", [0, 1, 5])
@virtual_time
async def test_a_topic_created_anew_is_another_topic(fake, tools, batches):
    """Whether the new one has less records than were read, or more."""
    tools.fill(fake, 0, 2)
    async with tools.reader(fake) as reader:
        reading = reader.read({P0: 0})
        assert len(await anext(reading)) == 6
        fake.delete_topic("t")
        fake.create_topic("t", 6, 3)
        tools.fill(fake, 0, batches)
        with pytest.raises(UnknownTopicError, match="created again"):
            await anext(reading)


@virtual_time
async def test_a_first_answer_from_before_the_topic_was_created_anew(fake, tools):
    """The records of the old topic are not taken for those of the new one, which the client knows
    of when they arrive."""
    tools.fill(fake, 0, 2)
    fake.control(ApiKey.FETCH, delay_answer(2.0))
    async with tools.reader(fake, metadata_max_age_ms=100) as reader:
        reading = reader.read({P0: 0})
        first = asyncio.ensure_future(anext(reading))
        await asyncio.sleep(0.5)
        fake.delete_topic("t")
        fake.create_topic("t", 6, 3)
        tools.fill(fake, 0, 5)
        with pytest.raises(UnknownTopicError, match="created again"):
            await first
        assert now() >= 2.0  # the answer has arrived
        assert reading.positions[P0] == 0


@virtual_time
async def test_an_answer_of_an_earlier_topic_is_not_taken_for_the_one_that_is_read(fake, tools):
    """A group knows of the new topic before this client and one of the brokers do."""

    def of_the_old_topic(request: Request) -> Any:
        (topic,) = request.message.topics
        ends = {"high_watermark": 3, "last_stable_offset": 3}
        part = {"partition_index": 0, **ends, "records": tools.sealed([b"old"] * 3)}
        return delay(2.0, {"responses": [{"topic_id": topic.topic_id, "partitions": [part]}]})

    async with tools.reader(fake, metadata_max_age_ms=1000) as reader:
        reading = reader.read({})
        await reader.offsets([P0], "latest")
        old_id = reader._cluster.metadata.topic_id("t")
        fake.delete_topic("t")
        fake.create_topic("t", 6, 3)
        tools.fill(fake, 0, 2)
        fake.control(ApiKey.FETCH, of_the_old_topic)
        reading.add(P0, 0, topic_id=fake._state.topics["t"].topic_id)
        assert [r.value for r in await anext(reading)] == [b"%d" % n for n in range(6)]
        assert now() >= 2.0
    first, second = (r.message.topics[0].topic_id for r in fake.requests_of(ApiKey.FETCH)[:2])
    assert first == old_id != second


def damaged(batch: bytes, at: int, value: bytes, *, checksum: bool = True) -> bytes:
    changed = bytearray(batch)
    changed[at : at + len(value)] = value
    if checksum:
        struct.pack_into(">I", changed, 17, crc32c.crc32c(memoryview(changed)[21:]))
    return bytes(changed)


BOMB = compress(1, bytes(300 * 1024 * 1024))


@pytest.mark.parametrize(
    ("at", "value", "checksum", "message"),
    [
        (65, b"\xff", False, "its checksum is wrong"),
        (61, b"\x7f", True, "varint|record of"),
        (16, b"\x01", False, "format 1"),
        (16, b"\x00", False, "format 0"),
        (22, b"\x07", True, "codec 7"),
        (57, b"\x00\x00\x00\x7f", True, "127 records"),
        (23, b"\xff\xff\xff\xf0", True, "last delta -16"),
    ],
)
@virtual_time
async def test_a_damaged_batch(fake, tools, at, value, checksum, message):
    """All before it is given, then the error says where to go on."""
    tools.fill(fake, 0, 5)
    (_, good), (_, _) = inspect(fake).partition("t", 0).log.batches[2:4]
    fake.damage("t", 0, 2, damaged(good, at, value, checksum=checksum))
    seen = []
    async with tools.reader(fake) as reader:
        with pytest.raises(UnreadableBatchError, match=message) as caught:
            await tools.records(reader.read({P0: (1, 15)}), seen)
        error = caught.value
        assert [r.value for r in seen] == [b"1", b"2", b"3", b"4", b"5"]
        assert (error.topic_partition, error.offset) == (P0, 6)
        assert "t-0" in str(error)
        assert error.next_offset == (9 if at in (65, 61, 22, 57) else None)
        if error.next_offset is not None:
            values = await tools.values(reader.read({P0: (error.next_offset, 15)}))
            assert values == [b"%d" % n for n in range(9, 15)]


@virtual_time
async def test_checksums_can_be_left_alone(fake, tools):
    tools.fill(fake, 0, 1)
    ((_, good),) = inspect(fake).partition("t", 0).log.batches
    fake.damage("t", 0, 0, damaged(good, 17, b"\0\0\0\0", checksum=False))
    async with tools.reader(fake, check_crcs=False) as reader:
        assert len(await tools.values(reader.read({P0: (0, 3)}))) == 3


@virtual_time
async def test_a_bomb_is_not_unpacked(fake, tools):
    """A few kilobytes that would become more than 256 MB."""
    fake.configure_topic("t", max_message_bytes=2**30)
    tools.fill(fake, 0, 1)
    ((_, good),) = inspect(fake).partition("t", 0).log.batches
    bomb = bytearray(good[:61] + BOMB)
    struct.pack_into(">i", bomb, 8, len(bomb) - 12)
    fake.damage("t", 0, 0, damaged(bytes(bomb), 22, b"\x01"))
    async with tools.reader(fake) as reader:
        with pytest.raises(UnreadableBatchError, match="more than 268435456 bytes"):
            await tools.values(reader.read({P0: (0, 3)}))


@pytest.mark.parametrize("garbage", [b"\0" * 100, b"\xff" * 100, b"x" * 17, b"\x01"])
@virtual_time
async def test_records_that_are_none(fake, tools, garbage):
    tools.fill(fake, 0, 1)
    told = {
        "topic_id": fake.topic_id("t"),
        "partitions": [{"partition_index": 0, "high_watermark": 3, "records": garbage}],
    }
    fake.control(ApiKey.FETCH, {"responses": [told]}, keep=True)
    async with tools.reader(fake) as reader:
        with pytest.raises(UnreadableBatchError, match="t-0"):
            await tools.values(reader.read({P0: (0, 3)}))


@virtual_time
async def test_a_broker_that_does_not_get_on(fake, tools):
    """Batches that all end before the offset asked for would be read for ever."""
    tools.fill(fake, 0, 1)
    tools.fill(fake, 1, 3)
    stored = b"".join(inspect(fake).partition("t", 0).log.stored(0, 3))
    told = {
        "topic_id": fake.topic_id("t"),
        "partitions": [{"partition_index": 1, "high_watermark": 9, "records": stored}],
    }
    fake.control(ApiKey.FETCH, {"responses": [told]}, keep=True)
    async with tools.reader(fake) as reader:
        with pytest.raises(UnreadableBatchError, match="no batch reaches the requested offset"):
            await tools.values(reader.read({P1: (5, 9)}))


@virtual_time
async def test_an_answer_that_is_none(fake, tools):
    fake.control(ApiKey.FETCH, lambda r: struct.pack(">ii", 9, r.frame.correlation_id) + b"12345")
    async with tools.reader(fake) as reader:
        with pytest.raises(ProtocolError):
            await tools.values(reader.read({P0: 0}))


@virtual_time
async def test_a_defect_ends_the_read(fake, tools, monkeypatch):
    """Rather than leave it waiting for ever."""
    tools.fill(fake, 0, 1)
    monkeypatch.setattr("kafkaclient.reader.fetch.FetchedPart", None)
    async with tools.reader(fake) as reader:
        with pytest.raises(KafkaError, match="this is a defect"):
            await tools.values(reader.read({P0: (0, 3)}))


@virtual_time
async def test_a_partition_that_is_left_out(fake, tools):
    tools.fill(fake, 0, 1)
    fake.control(ApiKey.FETCH, {"responses": []})
    async with tools.reader(fake) as reader:
        assert len(await tools.values(reader.read({P0: (0, 3)}))) == 3


@virtual_time
async def test_an_error_about_all(fake, tools):
    fake.control(ApiKey.FETCH, {"error_code": 42, "responses": []})
    async with tools.reader(fake) as reader:
        with pytest.raises(BrokerError, match=r"Fetch from broker 0: INVALID_REQUEST"):
            await tools.values(reader.read({P0: 0}))
