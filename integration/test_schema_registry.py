"""confluent-kafka's serializers over a real registry, Apicurio's, and a real broker."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, Schema
from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer
from confluent_kafka.schema_registry.json_schema import AsyncJSONDeserializer

from integration.apicurio import running_apicurio
from integration.test_records_cli import shell
from kafkaclient import Producer, SerializationContext
from kafkaclient.errors import SerializationError
from kafkaclient.schema_registry import AvroSerializer, JSONSerializer

# The registry's archive has 140 MB, which a first run fetches.
pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

FIELDS = [{"name": "carrier", "type": "string"}]
AVRO = json.dumps({"type": "record", "name": "Flight", "fields": FIELDS})
DRAFT_7 = "http://json-schema.org/draft-07/schema#"  # Apicurio tells JSON schemas by it
NUMBER = json.dumps({"$schema": DRAFT_7, "title": "Key", "type": "integer"})


@pytest.fixture(scope="module")
def registry_url(tmp_path_factory):
    with running_apicurio(tmp_path_factory.mktemp("apicurio")) as url:
        yield url


async def test_avro_values_and_json_keys(
    kafka_cluster, topic, create_topic, read_topic, registry_url
):
    await create_topic(topic, 1)
    async with AsyncSchemaRegistryClient({"url": registry_url}) as registry:
        async with Producer(
            kafka_cluster.bootstrap,
            key_serializer=JSONSerializer(NUMBER, registry),
            value_serializer=AvroSerializer(registry, AVRO),
        ) as producer:
            sent = [producer.send_nowait(topic, {"carrier": str(n)}, n) for n in range(500)]
            poison = producer.send_nowait(topic, {"carrier": None}, 500)
            await producer.flush()
            assert [(await delivery).offset for delivery in sent] == list(range(500))
            with pytest.raises(SerializationError, match=f"value of a record for topic '{topic}'"):
                await poison
            await (await producer.send_many(topic, [{"carrier": "many"}] * 100, keys=[7] * 100))
        read = await read_topic(topic)
        value_of, key_of = (
            await AsyncAvroDeserializer(registry),
            await AsyncJSONDeserializer(NUMBER),
        )
        context = SerializationContext(topic, "value", [])
        values = [await value_of(record.value, context) for record in read]
        keys = [await key_of(record.key, context) for record in read]
        assert sorted(await registry.get_subjects()) == [f"{topic}-key", f"{topic}-value"]
    expected = [{"carrier": str(n)} for n in range(500)] + [{"carrier": "many"}] * 100
    assert values == expected
    assert keys == [*range(500), *[7] * 100]


async def test_a_schema_that_the_registry_does_not_know(kafka_cluster, topic, registry_url):
    async with AsyncSchemaRegistryClient({"url": registry_url}) as registry:
        serializer = AvroSerializer(registry, AVRO, conf={"auto.register.schemas": False})
        async with Producer(kafka_cluster.bootstrap, value_serializer=serializer) as producer:
            with pytest.raises(SerializationError, match="404"):
                await producer.send(topic, {"carrier": "UA"})


async def test_the_commands_write_and_read_by_its_schemas(
    kafka_cluster, topic, create_topic, registry_url
) -> None:
    await create_topic(topic, 1)
    async with AsyncSchemaRegistryClient({"url": registry_url}) as registry:
        await registry.register_schema(f"{topic}-value", Schema(AVRO, "AVRO"))
        await registry.register_schema(f"{topic}-key", Schema(NUMBER, "JSON"))
    at = f"--registry {registry_url}"
    produce, consume = f"kafkaclient produce {topic}", f"kafkaclient consume {topic} -e {at}"
    lines = "\\n".join(('{"carrier": "KLM"}', '{"carrier": 5}', '{"carrier": "AFR"}'))
    for command, status, told in (
        (f"printf '{lines}' | {produce} -k 5 --value-schema latest --key-schema latest {at}", 1,
         "record 2: value: "),
        (f"{produce} x --value-schema 999 {at}", 2, f"the registry {registry_url}: "),
        (f"{produce} x --value-schema latest --registry http://127.0.0.1:1", 1, "nothing was sent"),
        (f"{consume} -f '%k %s'", 0, '5 {"carrier": "KLM"}'),
        (f"printf '\\0\\0\\0\\3\\347x' | {produce}", 0, "1 record written"),
        (consume, 1, f"1 record of {topic}\nerror: the record of {topic}-0 at offset 1 cannot be"),
        (f"{consume} -n 1", 0, "KLM"),
        (f"{consume} --registry http://127.0.0.1:1", 1, "the registry http://127.0.0.1:1: "),
    ):  # fmt: skip
        ended = await shell(kafka_cluster.bootstrap, command)
        assert (ended[0], told in "".join(ended[1:])) == (status, True), (command, ended)
