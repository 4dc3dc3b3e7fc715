"""The same script through aiokafka's own producer and through the drop-in, on a real broker.

Both must give the same results and write the same records, read back by aiokafka's consumer. An
error of the drop-in must be an instance of the class that aiokafka raises at the same place.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiokafka
import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from integration.differential import Side, both_read, same
from kafkaclient import aiokafka as dropin
from kafkaclient.testing import ClusterSecurity, LocalCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.local_cluster(not_in_containers="starts a broker with ACLs"),
]

USERS = {"alice": "alice-password", "bob": "bob-password"}
LOG_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
SOME_TIME = 1_500_000_000_000
SOON_MS = 1500
"""For requests that no broker answers as hoped."""


@pytest.fixture(scope="module")
def kafka_cluster() -> Iterator[LocalCluster]:
    """One broker that creates no topics by itself; the plain listener is allowed everything."""
    security = ClusterSecurity(users=USERS, acls=True)
    cluster = LocalCluster(1, config={"auto.create.topics.enable": "false"}, security=security)
    asyncio.run(cluster.start())
    try:
        yield cluster
    finally:
        asyncio.run(cluster.stop())


@pytest.fixture
def sides(kafka_cluster: LocalCluster, topic: str) -> tuple[Side, Side]:
    """aiokafka, then the drop-in."""
    return (
        Side("aiokafka", aiokafka.AIOKafkaProducer, kafka_cluster, f"{topic}-theirs"),
        Side("drop-in", dropin.AIOKafkaProducer, kafka_cluster, f"{topic}-ours"),
    )


async def _both_topics(create_topic: Any, sides: tuple[Side, Side], *args: Any, **kw: Any) -> None:
    for side in sides:
        await create_topic(side.topic, *args, **kw)


# --- results -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"enable_idempotence": True, "compression_type": "gzip", "linger_ms": 5},
        {"acks": "all", "compression_type": "lz4"},
    ],
    ids=["defaults", "idempotent", "acks all"],
)
async def test_results_and_records_are_the_same(sides, create_topic, read_topic, options):
    await _both_topics(create_topic, sides, 5)

    async def script(side: Side) -> AsyncIterator[tuple[str, Awaitable[Any]]]:
        topic = side.topic
        async with side.make(**options) as producer:
            yield "partitions", producer.partitions_for(topic)
            for n in range(20):
                key = b"key %d" % n
                yield f"keyed {n}", producer.send_and_wait(topic, b"v%d" % n, key=key)
            headers = [("a", b"1"), ("a", b""), ("ünïcode", "ü".encode()), ("", b"\x00\xff")]
            yield "all given", producer.send_and_wait(topic, b"v", b"k", 4, SOME_TIME, headers)
            yield "no headers", producer.send_and_wait(topic, b"v", partition=4, headers=[])
            yield "tombstone", producer.send_and_wait(topic, None, b"k", 4)
            yield "empty", producer.send_and_wait(topic, b"", b"", 4)
            yield "buffers", producer.send_and_wait(topic, bytearray(b"v"), memoryview(b"k"), 4)
            future = await producer.send(topic, b"v", partition=4, timestamp_ms=0)
            yield "epoch", future
            await producer.flush()
            yield "flushed", _value(future.done())

    results = await same(script, sides)
    assert {results[f"keyed {n}"][0] for n in range(20)} == set(range(5))
    records = await both_read(read_topic, sides)
    assert len(records) == 26
    assert next(r for r in records if r.key == b"k" and r.headers).headers[2][0] == "ünïcode"


async def test_log_append_time(sides, create_topic, read_topic):
    await _both_topics(create_topic, sides, 1, config=LOG_APPEND_TIME)

    async def script(side: Side) -> AsyncIterator[tuple[str, Awaitable[Any]]]:
        async with side.make() as producer:
            yield "given", producer.send_and_wait(side.topic, b"v", timestamp_ms=SOME_TIME)
            yield "not given", producer.send_and_wait(side.topic, b"v")

    results = await same(script, sides)
    assert [result[2:4] for result in results.values()] == [("now", 1), ("now", 1)]


async def test_unkeyed_records_and_a_partitioner(sides, create_topic, read_topic):
    """With one partition there is no choice; a callable decides about all records."""
    await _both_topics(create_topic, sides, 1)
    asked: dict[str, list[Any]] = {}

    async def script(side: Side) -> AsyncIterator[tuple[str, Awaitable[Any]]]:
        def choose(key: bytes | None, everything: list[int], available: list[int]) -> int:
            asked.setdefault(side.name, []).append((key, list(everything), list(available)))
            return everything[-1]

        def fail(*_: Any) -> int:
            raise ZeroDivisionError

        async with side.make() as producer:
            yield "unkeyed", producer.send_and_wait(side.topic, b"v")
        async with side.make(partitioner=choose) as producer:
            yield "chosen", producer.send_and_wait(side.topic, b"v", b"k")
            yield "chosen, no key", producer.send_and_wait(side.topic, b"v")
        async with side.make(partitioner=fail) as producer:
            yield "failing", producer.send_and_wait(side.topic, b"v", b"k")

    results = await same(script, sides)
    assert isinstance(results["failing"], ZeroDivisionError)
    assert asked["aiokafka"] == asked["drop-in"] == [(b"k", [0], [0]), (None, [0], [0])]
    await both_read(read_topic, sides)


async def test_acks_0_serializers_and_wait(sides, create_topic, read_topic):
    await _both_topics(create_topic, sides, 1)

    async def script(side: Side) -> AsyncIterator[tuple[str, Awaitable[Any]]]:
        async with side.make(acks=0) as producer:
            yield "acks 0", producer.send_and_wait(side.topic, b"first")
        async with asyncio.timeout(30):  # the broker answers nothing
            while not await read_topic(side.topic):
                await asyncio.sleep(0.05)
        serializers = {"key_serializer": _text, "value_serializer": _text}
        async with side.make(**serializers) as producer:
            yield "serialized", producer.send_and_wait(side.topic, 17, "key")
            yield "key of None", producer.send_and_wait(side.topic, "v")
            futures = [await producer.send(side.topic, n, n) for n in range(10)]
            done, pending = await asyncio.wait(futures)
            yield "waited", _value((len(done), len(pending)))
            yield "gathered", _count(asyncio.gather(*futures))
            offsets = [future.result().offset for future in futures]
            yield "offsets", _value(offsets)
            future = await producer.send(side.topic, "cancelled", "k")
            future.cancel()
            yield "cancelled", future
            yield "within a time", asyncio.wait_for(await producer.send(side.topic, "w", "k"), 20)
            yield "shielded", asyncio.shield(await producer.send(side.topic, "s", "k"))

    results = await same(script, sides)
    assert results["acks 0"] is None
    records = await both_read(read_topic, sides)
    assert b"<cancelled>" in [record.value for record in records]


async def test_batches(sides, create_topic, read_topic):
    await _both_topics(create_topic, sides, 2)

    async def script(side: Side) -> AsyncIterator[tuple[str, Awaitable[Any]]]:
        async with side.make(max_batch_size=2000) as producer:
            batch = producer.create_batch()
            yield "new", _value((batch.record_count(), batch.closed()))
            made = batch.append(key=b"k", value=b"v", timestamp=SOME_TIME, headers=[("h", b"1")])
            yield "appended", _value((made.offset, made.timestamp))
            count = 1
            while batch.append(key=None, value=b"x" * 100, timestamp=SOME_TIME) is not None:
                count += 1
            # The drop-in may count a few bytes less in a record's header.
            yield "full", _value((15 <= count <= 20, batch.record_count() == count))
            future = await producer.send_batch(batch, side.topic, partition=1)
            yield "sent", _place(future)
            yield "closed", _value(batch.closed())
            yield "refused", _value(batch.append(key=b"k", value=b"v", timestamp=None))
            await producer.send_and_wait(side.topic, b"between", partition=0)
            large = producer.create_batch()
            yield (
                "first fits",
                _value(large.append(key=None, value=b"y" * 5000, timestamp=SOME_TIME) is not None),
            )
            yield "large", _place(await producer.send_batch(large, side.topic, partition=0))
            yield (
                "no such partition",
                producer.send_batch(producer.create_batch(), side.topic, partition=9),
            )
            yield "bad type", _call(large.append, key="k", value=b"v", timestamp=None)
        yield "stopped", producer.send_batch(producer.create_batch(), side.topic, partition=0)

    await same(script, sides)
    for side in sides:
        records = await read_topic(side.topic)
        assert {r.partition for r in records if r.value == b"x" * 100} == {1}
        assert [r.headers for r in records if r.key == b"k"] == [(("h", b"1"),)]


# --- errors --------------------------------------------------------------------------------------


async def test_errors_of_a_record(sides, create_topic, read_topic):
    await _both_topics(create_topic, sides, 1)

    async def script(side: Side) -> AsyncIterator[tuple[str, Awaitable[Any]]]:
        topic = side.topic
        async with side.make(max_request_size=1000) as producer:
            yield "str value", producer.send(topic, "text")
            yield "str key", producer.send(topic, b"v", "key")
            yield "int value", producer.send(topic, 7)
            yield "nothing", producer.send(topic)
            yield "negative partition", producer.send(topic, b"v", partition=-1)
            yield "str timestamp", producer.send(topic, b"v", timestamp_ms="1")
            yield "float timestamp", producer.send_and_wait(topic, b"v", timestamp_ms=1.5)
            yield "header of str", producer.send(topic, b"v", headers=[("h", "text")])
            yield "header name of bytes", producer.send(topic, b"v", headers=[(b"h", b"v")])
            yield "header of one", producer.send(topic, b"v", headers=[("h",)])
            yield "too large", producer.send(topic, b"v" * 1001)
            yield "good", producer.send_and_wait(topic, b"v")
        yield "stopped", producer.send(topic, b"v")
        yield "stopped again", producer.stop()
        async with side.make(request_timeout_ms=SOON_MS) as producer:
            yield "no such partition", producer.send(topic, b"v", partition=9)
            yield "unknown topic", producer.send(f"{topic}-unknown", b"v")
            yield "partitions of unknown", producer.partitions_for(f"{topic}-unknown")

    results = await same(script, sides)
    assert isinstance(results["unknown topic"], aiokafka.errors.UnknownTopicOrPartitionError)
    assert isinstance(results["too large"], aiokafka.errors.MessageSizeTooLargeError)
    assert isinstance(results["stopped"], aiokafka.errors.ProducerClosed)
    assert len(await both_read(read_topic, sides)) == 2


async def test_the_broker_refuses_a_record(sides, create_topic, read_topic):
    await _both_topics(create_topic, sides, 1, config={"max.message.bytes": "1000"})

    async def script(side: Side) -> AsyncIterator[tuple[str, Awaitable[Any]]]:
        async with side.make() as producer:
            yield "too large for the broker", producer.send_and_wait(side.topic, b"v" * 2000)
            yield "afterwards", producer.send_and_wait(side.topic, b"small")

    results = await same(script, sides)
    assert isinstance(results["too large for the broker"], aiokafka.errors.MessageSizeTooLargeError)
    assert len(await both_read(read_topic, sides)) == 1


async def test_errors_of_the_constructor(sides):
    async def script(side: Side) -> AsyncIterator[tuple[str, Awaitable[Any]]]:
        for options in (
            {"acks": 122},
            {"acks": 1, "enable_idempotence": True},
            {"acks": 0, "transactional_id": "t"},
            {"compression_type": "my_custom"},
            {"security_protocol": "SOME"},
            {"security_protocol": "SSL"},
            {"security_protocol": "SASL_PLAINTEXT"},
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OTHER"},
        ):
            yield ", ".join(f"{k}={v}" for k, v in options.items()), _call(side.make, **options)

    results = await same(script, sides)
    assert {isinstance(error, ValueError) for error in results.values()} == {True}


async def test_errors_of_start(sides, kafka_cluster):
    async def script(side: Side) -> AsyncIterator[tuple[str, Awaitable[Any]]]:
        nowhere = side.make(bootstrap_servers="127.0.0.1:1", request_timeout_ms=SOON_MS)
        yield "nowhere", nowhere.start()
        await nowhere.stop()
        wrong = side.make(**_login(kafka_cluster, "alice", "wrong"), request_timeout_ms=SOON_MS)
        yield "wrong password", wrong.start()
        await wrong.stop()

    results = await same(script, sides)
    assert isinstance(results["nowhere"], aiokafka.errors.KafkaConnectionError)


async def test_misuse_of_transactions(sides, create_topic, read_topic):
    await _both_topics(create_topic, sides, 1)

    async def script(side: Side) -> AsyncIterator[tuple[str, Awaitable[Any]]]:
        topic, offsets = side.topic, {TopicPartition(side.topic, 0): 1}
        async with side.make() as producer:
            yield "begin, not configured", producer.begin_transaction()
            yield "commit, not configured", producer.commit_transaction()
            yield "abort, not configured", producer.abort_transaction()
            yield "offsets, not configured", producer.send_offsets_to_transaction(offsets, "g")
        async with side.make(transactional_id=f"misuse-{topic}") as producer:
            yield "send outside", producer.send(topic, b"v")
            yield "commit outside", producer.commit_transaction()
            yield "abort outside", producer.abort_transaction()
            yield "offsets outside", producer.send_offsets_to_transaction(offsets, "g")
            yield "begin", producer.begin_transaction()
            yield "begin again", producer.begin_transaction()
            yield "no group", producer.send_offsets_to_transaction(offsets, None)
            yield "bad offsets", producer.send_offsets_to_transaction({"t": 1}, "g")
            yield (
                "bad offset",
                producer.send_offsets_to_transaction({TopicPartition(topic, 0): "1"}, "g"),
            )
            yield "sent", producer.send_and_wait(topic, b"aborted")
            yield "abort", producer.abort_transaction()
            yield "raised in the block", _raising(producer, topic)
            yield "begin third", producer.begin_transaction()
            yield "sent third", producer.send_and_wait(topic, b"committed")
            given = {TopicPartition(topic, 0): OffsetAndMetadata(7, "text")}
            yield "offsets", producer.send_offsets_to_transaction(given, f"group-{topic}")
            yield "commit", producer.commit_transaction()
            yield "offsets read", _committed(side)
            yield "empty", _empty(producer)

    # aiokafka fails an assertion about its own states; the drop-in says what is wrong.
    steps = ("begin again", "commit outside", "abort outside")
    different = dict.fromkeys(steps, aiokafka.errors.IllegalOperation)
    results = await same(script, sides, different)
    assert results["offsets read"] == 7
    committed = await both_read(read_topic, sides, least=1, isolation_level="read_committed")
    assert [record.value for record in committed] == [b"committed"]


async def test_fenced(sides, create_topic, read_topic):
    await _both_topics(create_topic, sides, 1)

    async def script(side: Side) -> AsyncIterator[tuple[str, Awaitable[Any]]]:
        same_id = {"transactional_id": f"fenced-{side.topic}"}
        async with side.make(**same_id) as first, side.make(**same_id) as second:
            async with second.transaction():
                await second.send_and_wait(side.topic, b"second")
            yield "fenced", _in_transaction(first, side.topic, b"first")
            yield "still fenced", first.begin_transaction()
            yield "the other one", _in_transaction(second, side.topic, b"again")

    # aiokafka fails an assertion about its own states.
    different = {"still fenced": aiokafka.errors.ProducerFenced}
    results = await same(script, sides, different)
    assert isinstance(results["fenced"], aiokafka.errors.ProducerFenced)
    committed = await both_read(read_topic, sides, least=2, isolation_level="read_committed")
    assert [record.value for record in committed] == [b"second", b"again"]


async def test_denied(sides, create_topic, kafka_cluster):
    """bob may describe the topic, and alice may write to it; neither may use a group or a
    transactional id."""
    await _both_topics(create_topic, sides, 1)
    for side in sides:
        _allow(kafka_cluster, side.topic, "bob", AclOperation.DESCRIBE)
        _allow(kafka_cluster, side.topic, "alice", AclOperation.WRITE)
        await _until_alice_may_write(side)

    async def script(side: Side) -> AsyncIterator[tuple[str, Awaitable[Any]]]:
        soon = {"request_timeout_ms": SOON_MS}
        async with side.make(**_login(kafka_cluster, "bob"), **soon) as producer:
            yield "may not write", producer.send_and_wait(side.topic, b"v")
            yield "may not know", producer.send_and_wait(f"{side.topic}-secret", b"v")
        mine = {"transactional_id": f"denied-{side.topic}"}
        producer = side.make(**_login(kafka_cluster, "alice"), **mine, **soon)
        yield "may not use the id", producer.start()
        await producer.stop()

    results = await same(script, sides)
    assert isinstance(results["may not write"], aiokafka.errors.TopicAuthorizationFailedError)


# --- steps ---------------------------------------------------------------------------------------


async def _value(value: Any) -> Any:
    return value


async def _place(future: Awaitable[Any]) -> tuple[int, int, int]:
    """Without the timestamp: aiokafka's is -1, the drop-in's is that of the first record."""
    metadata = await future
    return metadata.partition, metadata.offset, metadata.timestamp_type


async def _count(gathered: Awaitable[list[Any]]) -> int:
    return len(await gathered)


async def _call(function: Callable[..., Any], **given: Any) -> Any:
    return function(**given)


def _text(value: Any) -> bytes | None:
    return None if value is None else f"<{value}>".encode()


async def _raising(producer: Any, topic: str) -> None:
    async with producer.transaction():
        await producer.send_and_wait(topic, b"never committed")
        raise LookupError


async def _empty(producer: Any) -> None:
    async with producer.transaction():
        pass


async def _in_transaction(producer: Any, topic: str, value: bytes) -> None:
    async with producer.transaction():
        await producer.send_and_wait(topic, value)


async def _committed(side: Side) -> int | None:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=side.cluster.bootstrap,
        group_id=f"group-{side.topic}",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        found: int | None = None
        while found is None:  # the coordinator of the transaction tells that of the group
            found = await consumer.committed(TopicPartition(side.topic, 0))
        return found
    finally:
        await consumer.stop()


def _login(cluster: LocalCluster, user: str, password: str | None = None) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.secured_bootstrap("SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": password or USERS[user],
    }


def _allow(cluster: LocalCluster, topic: str, user: str, operation: AclOperation) -> None:
    binding = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for done in admin.create_acls([binding]).values():
        done.result(30)


async def _until_alice_may_write(side: Side) -> None:
    """A broker applies an ACL a little later than it accepts the ACL."""
    async with asyncio.timeout(30):
        while True:
            options = _login(side.cluster, "alice")
            async with aiokafka.AIOKafkaProducer(**options) as producer:
                try:
                    await producer.send_and_wait(side.topic, b"first")
                except aiokafka.errors.TopicAuthorizationFailedError:
                    await asyncio.sleep(0.2)
                else:
                    return
