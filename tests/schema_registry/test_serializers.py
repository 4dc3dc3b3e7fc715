"""confluent-kafka's serializers with its async client, over ``mock://`` and over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import traceback
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import AsyncJSONDeserializer
from confluent_kafka.schema_registry.protobuf import AsyncProtobufDeserializer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import kafkaclient.schema_registry
from kafkaclient import Producer, SerializationContext
from kafkaclient.consumer import Consumer
from kafkaclient.errors import ConfigError, RegistryUnavailableError, SerializationError
from kafkaclient.schema_registry import (
    AvroDeserializer,
    AvroSerializer,
    JSONDeserializer,
    JSONSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
)
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.wire.records import BatchBuilder
from tests.schema_registry.stub import PASSWORD, USER, running_stub

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.schema_registry.stub import RegistryStub

AVRO = json.dumps(
    {"type": "record", "name": "Flight", "fields": [{"name": "carrier", "type": "string"}]}
)
JSON = json.dumps(
    {"title": "Flight", "type": "object", "properties": {"carrier": {"type": "string"}}}
)
FLIGHT = {"carrier": "UA"}


def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="flight.proto", package="tests", syntax="proto3")
    file.message_type.add(name="Flight").field.add(
        name="carrier",
        number=1,
        type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
        label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tests.Flight"))


MESSAGE = _message_class()


def a_batch(value: bytes) -> bytes:
    builder = BatchBuilder(2**16)
    builder.append(0, None, value, [])
    builder.seal(0)
    return bytes(builder.buffer())


@pytest.fixture
def fake() -> FakeCluster:
    cluster = FakeCluster(1)
    cluster.create_topic("t", 1)
    return cluster


@asynccontextmanager
async def client_of(stub: RegistryStub, **conf: Any) -> AsyncIterator[AsyncSchemaRegistryClient]:
    options = {"url": stub.url, "basic.auth.user.info": f"{USER}:{PASSWORD}", "max.retries": 0}
    async with AsyncSchemaRegistryClient(options | conf) as client:
        yield client


@asynccontextmanager
async def producing(fake: FakeCluster, **options: Any) -> AsyncIterator[Producer]:
    """A producer that leaves no task of its own, nor of the serializers."""
    async with Producer(fake.bootstrap, dialer=fake, **options) as producer:
        yield producer
    left = [task.get_name() for task in asyncio.all_tasks()]
    assert not [name for name in left if name.startswith("kafkaclient")]


def context(topic: str = "t") -> SerializationContext:
    return SerializationContext(topic, "value", [])


def carriers(fake: FakeCluster) -> list[bytes]:
    """The last letters of the carriers in the log, which Avro writes at the end."""
    return [(record.value or b"")[6:] for record in fake.log("t", 0)]


async def _avro(client: Any) -> tuple[Any, Any, Any]:
    return AvroSerializer(client, AVRO), await AsyncAvroDeserializer(client), FLIGHT


async def _json(client: Any) -> tuple[Any, Any, Any]:
    return JSONSerializer(JSON, client), await AsyncJSONDeserializer(JSON, None, client), FLIGHT


async def _protobuf(client: Any) -> tuple[Any, Any, Any]:
    conf = {"use.deprecated.format": False}
    decode = await AsyncProtobufDeserializer(MESSAGE, conf, client)
    return ProtobufSerializer(MESSAGE, client), decode, MESSAGE(carrier="UA")


@pytest.mark.parametrize("kind", [_avro, _json, _protobuf])
@pytest.mark.parametrize("over_http", [False, True])
async def test_values_survive_the_way(fake: FakeCluster, kind: Any, over_http: bool) -> None:
    """Confluent's deserializers read what is written; only the first record waits."""
    async with running_stub() as stub, client_of(stub) as http_client:
        client: Any = http_client
        if not over_http:
            client = AsyncSchemaRegistryClient.new_client({"url": f"mock://{kind.__name__}"})
        serializer, deserialize, value = await kind(client)
        for_keys, _, _ = await kind(client)
        first = serializer.serialize(value, context())
        assert isawaitable(first)
        expected = await first
        assert serializer.serialize(value, context()) == expected
        async with producing(
            fake, value_serializer=serializer, key_serializer=for_keys
        ) as producer:
            await producer.send_and_wait("t", value, value)
            producer.send_nowait("t", value)
            producer.send_nowait("t", None)
            await (await producer.send_many("t", [value, value]))
        assert bool(stub.calls) == over_http
        log = fake.log("t", 0)
        assert [record.value for record in log] == [expected, expected, None, expected, expected]
        assert (log[0].key or b"")[5:] == expected[5:]
        read = await deserialize(expected, context())
        assert read == value


@pytest.mark.parametrize("kind", [_avro, _json, _protobuf])
async def test_consumers_deserialize(fake: FakeCluster, kind: Any) -> None:
    """Only the first record waits, and no record is skipped because the registry is down."""
    conf = {"use.deprecated.format": False}
    async with running_stub() as stub, client_of(stub, **{"max.retries": 0}) as client:
        serializer, _, value = await kind(client)
        async with producing(fake, value_serializer=serializer) as producer:
            await producer.send_and_wait("t", value)
            await producer.send_and_wait("t", value)
        fake.append("t", 0, a_batch(b"\0\0\0\0\x63nonsense"))  # no schema has the id
        async with producing(fake, value_serializer=serializer) as producer:
            await producer.send_and_wait("t", value)
        async with client_of(stub, **{"max.retries": 0}) as reading:
            deserializer = {
                _avro: lambda: AvroDeserializer(reading),
                _json: lambda: JSONDeserializer(JSON, None, reading),
                _protobuf: lambda: ProtobufDeserializer(MESSAGE, conf, reading),
            }[kind]()
            async with Consumer(
                fake.bootstrap, dialer=fake, value_deserializer=deserializer, on_error="skip"
            ) as consumer:
                consumer.assign([("t", 0)])
                consumer.seek(("t", 0), 0)
                if kind is not _protobuf:  # a protobuf schema is not asked for
                    stub.refuse_with = 503
                    with pytest.raises(RegistryUnavailableError, match="not available"):
                        await anext(aiter(consumer))
                    stub.refuse_with = 0
                stub.calls.clear()
                records = aiter(consumer)
                offsets = []
                for _ in range(3):
                    record = await anext(records)
                    assert record.value == value
                    offsets.append(record.offset)
                assert offsets == ([0, 1, 3] if kind is not _protobuf else offsets)
                assert sum(stub.calls.values()) <= 3


async def test_a_burst_asks_the_registry_once(fake: FakeCluster) -> None:
    """All records of the first use share a request, and keep their order."""
    async with running_stub() as stub, client_of(stub) as client:
        stub.delay_s = 0.05
        async with producing(fake, value_serializer=AvroSerializer(client, AVRO)) as producer:
            sent = [producer.send_nowait("t", {"carrier": str(n)}) for n in range(100)]
            await asyncio.gather(*sent)
    assert carriers(fake) == [str(n).encode() for n in range(100)]
    assert stub.calls["POST subjects/t-value/versions"] == 1
    assert set(stub.calls.values()) == {1}


async def test_an_awaitable_that_nobody_awaits_asks_nothing() -> None:
    async with running_stub() as stub, client_of(stub) as client:
        asked = AvroSerializer(client, AVRO).serialize(FLIGHT, context())
        asked.close()
    assert not stub.calls


async def test_the_request_ends_with_its_last_waiter(fake: FakeCluster) -> None:
    async with running_stub() as stub, client_of(stub) as client:
        stub.delay_s = 30
        async with producing(fake, value_serializer=AvroSerializer(client, AVRO)) as producer:
            callers = [asyncio.create_task(producer.send("t", FLIGHT)) for _ in range(2)]
            await stub.began.wait()
            for caller in callers:
                caller.cancel()
            await asyncio.wait(callers)
            assert all(caller.cancelled() for caller in callers)
            while not stub.gone_away:
                await asyncio.sleep(0.01)
            stub.delay_s = 0
            await producer.send_and_wait("t", FLIGHT)


async def test_a_poison_value(fake: FakeCluster) -> None:
    async with (
        running_stub() as stub,
        client_of(stub) as client,
        producing(fake, value_serializer=AvroSerializer(client, AVRO)) as producer,
    ):
        for _ in range(2):  # waiting for the registry, and at once
            sent = [asyncio.create_task(producer.send("t", {"carrier": c})) for c in ("a", 7)]
            [good, poison] = await asyncio.gather(*sent, return_exceptions=True)
            await good  # type: ignore[misc]
            assert isinstance(poison, SerializationError)
            assert "the value of a record for topic 't'" in str(poison)
    assert carriers(fake) == [b"a", b"a"]


async def test_a_registry_that_is_down_and_comes_back(fake: FakeCluster) -> None:
    async with running_stub() as stub, client_of(stub) as client:
        stub.refuse_with = 503
        async with producing(fake, value_serializer=AvroSerializer(client, AVRO)) as producer:
            with pytest.raises(SerializationError, match="store is not available") as caught:
                await producer.send("t", FLIGHT)
            assert caught.value.__cause__ is not None
            stub.refuse_with = 0
            await producer.send_and_wait("t", FLIGHT)
    assert carriers(fake) == [b"UA"]


async def test_nothing_listens_there(fake: FakeCluster) -> None:
    async with running_stub() as stub:
        pass
    async with (
        client_of(stub) as client,
        producing(fake, value_serializer=AvroSerializer(client, AVRO)) as producer,
    ):
        with pytest.raises(SerializationError, match="the value of a record for topic 't'"):
            await producer.send("t", FLIGHT)


async def test_a_registry_that_does_not_answer(fake: FakeCluster) -> None:
    async with running_stub() as stub, client_of(stub) as client:
        stub.delay_s = 30
        serializer = AvroSerializer(client, AVRO)
        async with producing(fake, value_serializer=serializer, max_block_ms=200) as producer:
            with pytest.raises(SerializationError, match=r"0.2 s \(max.block.ms\)"):
                await producer.send("t", FLIGHT)


async def test_secrets_appear_nowhere(fake: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in logs at the level DEBUG, nor in errors with their causes."""
    caplog.set_level(logging.DEBUG)
    async with running_stub() as stub:
        wrong = {"basic.auth.user.info": f"{USER}:wrong-{PASSWORD}"}
        async with client_of(stub, **wrong) as client:
            serializer = AvroSerializer(client, AVRO)
            async with producing(fake, value_serializer=serializer) as producer:
                with pytest.raises(SerializationError, match="401") as caught:
                    await producer.send("t", FLIGHT)
                shown = [
                    *traceback.format_exception(caught.value),
                    repr(serializer),
                    repr(producer),
                    repr(producer.config),
                    *caplog.messages,
                ]
        # The HTTP client logs whole URLs.
        in_url = stub.url.replace("://", f"://{USER}:{PASSWORD}@")
        async with AsyncSchemaRegistryClient({"url": in_url}) as client:
            with pytest.raises(ConfigError, match="give basic") as refused:
                AvroSerializer(client, AVRO)
    assert any("401" in message for message in caplog.messages)
    assert PASSWORD not in "".join([*shown, str(refused.value)])


async def test_a_schema_that_refers_to_others(fake: FakeCluster) -> None:
    """The serializer is complete with the first record, which waits for the referenced schema."""
    code = {"type": "record", "name": "Code", "fields": [{"name": "code", "type": "string"}]}
    flight = {"type": "record", "name": "F", "fields": [{"name": "carrier", "type": "Code"}]}
    async with running_stub() as stub, client_of(stub) as client:
        stub.register("code", {"schema": json.dumps(code)})
        schema = Schema(json.dumps(flight), "AVRO", [SchemaReference("Code", "code", 1)])
        async with producing(fake, value_serializer=AvroSerializer(client, schema)) as producer:
            await producer.send_and_wait("t", {"carrier": {"code": "UA"}})
            await producer.send_and_wait("t", {"carrier": {"code": "AA"}})
    assert carriers(fake) == [b"UA", b"AA"]
    assert stub.calls["GET subjects/code/versions/1"] == 1


async def test_the_latest_version_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After ``cache.latest.ttl.sec``; without it the first answer stays."""
    newer = json.loads(AVRO)
    newer["fields"].append({"name": "extra", "type": "string", "default": "?"})
    conf = {"auto.register.schemas": False, "use.latest.version": True}
    for ttl_s, in_the_end in ((1.0, b"\x02?"), (None, b"")):
        async with running_stub() as stub:
            stub.register("t-value", {"schema": AVRO})
            more = {} if ttl_s is None else {"cache.latest.ttl.sec": ttl_s}
            async with client_of(stub, **more) as client:
                serializer = AvroSerializer(client, AVRO, conf=conf)
                assert (await serializer.serialize(FLIGHT, context()))[5:] == b"\x04UA"
                assert serializer.serialize(FLIGHT, context())[5:] == b"\x04UA"
                stub.register("t-value", {"schema": json.dumps(newer)})
                await asyncio.sleep(0.0 if ttl_s is None else 1.1)
                later = serializer.serialize(FLIGHT, context())
                later = await later if isawaitable(later) else later
                assert later[5:] == b"\x04UA" + in_the_end


@pytest.mark.parametrize("ttl_s", [0, 1e-9])
async def test_an_answer_counts_for_the_record_that_asked(ttl_s: float) -> None:
    """Also if it is too old by then: each record asks for the latest version."""
    conf = {"auto.register.schemas": False, "use.latest.version": True}
    async with running_stub() as stub:
        stub.register("t-value", {"schema": AVRO})
        async with client_of(stub, **{"cache.latest.ttl.sec": ttl_s}) as client:
            serializer = AvroSerializer(client, AVRO, conf=conf)
            for _ in range(2):
                later = asyncio.wait_for(serializer.serialize(FLIGHT, context()), 5)
                assert (await later)[5:] == b"\x04UA"
    assert sum(stub.calls.values()) <= 4


async def test_schema_ids_in_headers(fake: FakeCluster) -> None:
    client = AsyncSchemaRegistryClient.new_client({"url": "mock://headers"})
    conf = {"schema.id.serializer": header_schema_id_serializer}
    serializer = AvroSerializer(client, AVRO, conf=conf)
    async with producing(fake, value_serializer=serializer) as producer:
        for _ in range(2):
            await producer.send_and_wait("t", FLIGHT, headers={"own": b"1"})
    for record in fake.log("t", 0):
        assert [name for name, _ in record.headers] == ["own", "__value_schema_id"]
        assert record.value == b"\x04UA"


def held_client(url: str, release: threading.Event) -> AsyncSchemaRegistryClient:
    """A client in memory, which registers schemas after ``release``."""
    client = AsyncSchemaRegistryClient.new_client({"url": url})
    register = client.register_schema_full_response

    async def late(*given: Any, **named: Any) -> Any:
        while not release.is_set():
            await asyncio.sleep(0.01)
        return await register(*given, **named)

    client.register_schema_full_response = late  # type: ignore[method-assign]
    return client


async def test_a_client_works_in_one_event_loop(fake: FakeCluster) -> None:
    """Another loop gets an error at once. The first loop's record is sent."""
    release = threading.Event()
    client = held_client("mock://loops", release)
    shared = AvroSerializer(client, AVRO)

    async def elsewhere(serializer: Any) -> None:
        with pytest.raises(ConfigError, match="another event loop"):
            await asyncio.wait_for(serializer.serialize(FLIGHT, context()), 3)

    async with producing(fake, value_serializer=shared) as producer:
        held = producer.send_nowait("t", FLIGHT)
        await asyncio.sleep(0)
        for serializer in (shared, AvroSerializer(client, AVRO)):
            await asyncio.to_thread(asyncio.run, elsewhere(serializer))
        release.set()
        await held
    assert carriers(fake) == [b"UA"]


def test_a_client_can_move_to_another_loop_when_its_own_is_closed() -> None:
    """Also if a request was under way when the loop was closed."""
    release = threading.Event()
    serializer = AvroSerializer(held_client("mock://closed", release), AVRO)
    loop = asyncio.new_event_loop()
    left = loop.create_task(serializer.serialize(FLIGHT, context()))
    loop.run_until_complete(asyncio.sleep(0.02))
    loop.close()
    release.set()
    assert asyncio.run(serializer.serialize(FLIGHT, context()))[5:] == b"\x04UA"
    assert not left.done()


@pytest.mark.parametrize(
    "error", ["Event loop is closed", "<Event> is bound to a different event loop", "no"]
)
async def test_a_connection_of_another_event_loop(error: str) -> None:
    """The application has used the client itself, so the serializer cannot know its loop."""
    client = held_client("mock://used", threading.Event())

    async def fail(*_: Any, **_named: Any) -> Any:
        raise RuntimeError(error)

    client.register_schema_full_response = fail  # type: ignore[method-assign]
    serializer = AvroSerializer(client, AVRO)
    expected = RuntimeError if error == "no" else ConfigError
    with pytest.raises(expected, match=r"another event loop|no"):
        await serializer.serialize(FLIGHT, context())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_does_not_use_the_parents_connections() -> None:
    """It gets an error instead; what the cache has still works."""
    serializer = AvroSerializer(AsyncSchemaRegistryClient.new_client({"url": "mock://fork"}), AVRO)
    loop = asyncio.new_event_loop()
    expected = loop.run_until_complete(serializer.serialize(FLIGHT, context()))
    if not (child := os.fork()):
        status = 1
        try:
            assert serializer.serialize(FLIGHT, context()) == expected
            with pytest.raises(ConfigError, match="before a fork"):
                asyncio.run(serializer.serialize(FLIGHT, context("other")))
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    loop.close()


async def test_a_refusal_is_the_error_of_its_record_alone() -> None:
    """Another thread that runs the serializer at this moment asks the registry itself."""
    client = AsyncSchemaRegistryClient.new_client({"url": "mock://refusals"})
    seen: list[bool] = []

    def make(registry: Any) -> Any:
        def serialize(_value: Any, _context: Any) -> bytes:
            try:
                registry.get_schema(404)
            except Exception:
                if not seen:
                    seen.append(False)
                    other = threading.Thread(target=serialize_elsewhere)
                    other.start()
                    other.join()
                raise
            return b""

        return serialize

    def serialize_elsewhere() -> None:
        waiting = serializer.serialize(FLIGHT, context())
        seen[0] = isawaitable(waiting)
        waiting.close()

    serializer = kafkaclient.schema_registry._RegistrySerializer(client, make)
    with pytest.raises(SchemaRegistryError):
        await serializer.serialize(FLIGHT, context())
    assert seen == [True]


async def test_what_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    blocking: Any = SchemaRegistryClient({"url": "http://127.0.0.1:1"})
    with pytest.raises(ConfigError, match="not a SchemaRegistryClient"):
        AvroSerializer(blocking, AVRO)
    client = AsyncSchemaRegistryClient.new_client({"url": "mock://unusable"})
    with pytest.raises(ValueError, match="Unrecognized properties"):
        AvroSerializer(client, AVRO, conf={"no.such.property": 1})
    with pytest.raises(SerializationError, match="create_batch"):
        AvroSerializer(client, AVRO).serialize(FLIGHT, context(""))
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry.avro", None)
    with pytest.raises(ConfigError, match=r"pip install 'kafkaclient\[schema-registry\]'"):
        AvroSerializer(client, AVRO)
    assert kafkaclient.schema_registry.__all__
