"""Programs that use the clients, as type checkers read them; nothing runs them.

An ignored error is one that users must see: mypy, and pyright in ``make types``, complain about a
comment without an error.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_type

from kafkaclient import Consumer, Producer, SyncConsumer, SyncProducer, TopicPartition
from kafkaclient.admin import Admin
from kafkaclient.consumer import Record
from kafkaclient.hooks import Hooks
from kafkaclient.opentelemetry import instrument_consumer, process_span
from kafkaclient.reader import Reader
from kafkaclient.testing import MockConsumer, MockProducer
from kafkaclient.types import Buffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.schema_registry import AvroDeserializer, AvroSerializer


async def options(more: dict[str, Any]) -> None:
    """Names and types of options."""
    servers = "localhost:9092"
    Producer(servers, linger_ms=5, acks="all", compression_type="zstd", hooks=Hooks())
    Producer({"bootstrap.servers": servers, "linger.ms": "5"}, batch_size=65_536)
    Producer(bootstrap_servers=[("localhost", 9092)], ssl_cafile=Path("ca.pem"), **more)
    Producer(servers, partitioner="sticky", value_serializer=str.encode)
    Producer(servers, linger=5)  # type: ignore[call-overload]
    Producer(servers, compresion_type="zstd")  # type: ignore[call-overload]
    Producer(servers, compression_type="zst")  # type: ignore[call-overload]
    Producer(servers, linger_ms="5")  # type: ignore[call-overload]
    Producer(servers, group_id="g")  # type: ignore[call-overload]
    SyncProducer(servers, client_id="billing", exit_timeout_s=5)
    SyncProducer(servers, exit_timeout=5)  # type: ignore[call-overload]
    Consumer(servers, group_id="g", topics=["t"], auto_offset_reset="earliest")
    Consumer(servers, topics=["t"], on_error="skip", value_deserializer=bytes.decode)
    Consumer(servers, "t")  # type: ignore[arg-type]
    Consumer(servers, topic=["t"])  # type: ignore[call-arg]
    Consumer(servers, group_protocol="new")  # type: ignore[arg-type]
    Consumer(servers, linger_ms=5)  # type: ignore[call-arg]
    SyncConsumer(servers, group_id="g", topics=["t"], max_poll_interval_ms=60_000)
    SyncConsumer(servers, grup_id="g")  # type: ignore[call-arg]
    Reader(servers, isolation_level="read_committed")
    Reader(servers, isolation_level="committed")  # type: ignore[arg-type]
    Admin(servers, default_api_timeout_ms=5_000, limits="topic")
    Admin(servers, default_api_timeout=5)  # type: ignore[call-arg]


async def consumed(avro: AvroDeserializer, load: Callable[[bytes], Any]) -> None:
    """Keys and values are bytes, or what deserializers make of them; null stays None."""
    servers = "localhost:9092"
    consumer = Consumer(servers, group_id="g", topics=["t"])
    async for record in consumer:
        assert_type(record.key, bytes | None)
        assert_type(record.value, bytes | None)
        record.value.decode()  # type: ignore[union-attr]
    async for record in consumer.tracked():
        assert_type(record, Record[bytes, bytes])
    texts = Consumer(servers, key_deserializer=int.from_bytes, value_deserializer=bytes.decode)
    async for text in texts:
        assert_type(text.key, int | None)
        assert_type(text.value, str | None)
        assert_type(text.raw, Record[bytes, bytes])
        process_span(text, texts)
    assert_type(await texts.getone(), Record[int, str])
    assert_type(await texts.getmany(), dict[TopicPartition, list[Record[int, str]]])
    instrument_consumer(texts)
    assert_type(Consumer(servers, value_deserializer=load), Consumer[bytes, Any])
    assert_type(Consumer(servers, value_deserializer=avro), Consumer[bytes, Any])
    assert_type(
        Consumer(servers, value_deserializer=lambda data: len(data) + 1), Consumer[bytes, int]
    )
    named = Consumer[bytes, int]({"value.deserializer": int.from_bytes}, group_id="g")
    assert_type((await named.getone()).value, int | None)
    Consumer[bytes, int](servers, value_deserializer=_length)
    Consumer(servers, value_deserializer=str.encode)  # type: ignore[arg-type]
    with SyncConsumer(servers, group_id="g", value_deserializer=bytes.decode) as threaded:
        for each in threaded:
            assert_type(each, Record[bytes, str])
        assert_type(threaded.poll(), Record[bytes, str] | None)
    assert_type(MockConsumer(group_id="g"), MockConsumer[bytes, bytes])
    mock = MockConsumer(group_id="g", value_deserializer=bytes.decode)
    _takes_texts(mock)
    _takes_texts(consumer)  # type: ignore[arg-type]


async def _length(data: bytes) -> int:
    return len(data)


def _takes_texts(_: Consumer[Any, str]) -> None: ...


async def sent(avro: AvroSerializer, dump: Callable[[Any], bytes]) -> None:
    """Keys and values are bytes, or what serializers take."""
    servers = "localhost:9092"
    producer = Producer(servers, linger_ms=5)
    assert_type(producer, Producer[Buffer, Buffer])
    await producer.send("t", b"value", bytearray(b"key"))
    await producer.send("t", None)
    await producer.send_many("t", [b"1", None])
    await producer.send("t", "text")  # type: ignore[arg-type]
    await producer.send("t", b"value", key="text")  # type: ignore[arg-type]
    producer.send_nowait("t", "text")  # type: ignore[arg-type]
    await producer.send_and_wait("t", "text")  # type: ignore[arg-type]
    await producer.send_many("t", ["text"])  # type: ignore[list-item]
    texts = Producer(servers, key_serializer=str.encode, value_serializer=str.encode)
    await texts.send("t", "text", key="key")
    await texts.send("t", b"value")  # type: ignore[arg-type]
    for value_serializer in (dump, avro):
        await Producer(servers, value_serializer=value_serializer).send("t", {"id": 7})
    await Producer(servers, value_serializer=lambda value: dump([value])).send("t", {"id": 7})
    await Producer({"value.serializer": str.encode}).send("t", "text")
    _sends(producer, texts)
    with SyncProducer(servers) as threaded:
        threaded.send("t", b"value")
        threaded.send("t", "text")  # type: ignore[arg-type]
    SyncProducer(servers, value_serializer=str.encode).send_and_wait("t", "text")
    await MockProducer(value_serializer=str.encode).send("t", "text")
    await MockProducer().send("t", "text")  # type: ignore[arg-type]


def _sends(*_: Producer) -> None: ...
