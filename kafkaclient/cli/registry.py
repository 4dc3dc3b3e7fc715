"""Keys and values of a schema registry, as JSON, for ``kafkaclient consume`` and ``produce``."""

from __future__ import annotations

import base64
import json
from contextlib import asynccontextmanager
from datetime import date, time
from inspect import isawaitable
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

import kafkaclient
from kafkaclient.errors import (
    ConfigError,
    KafkaError,
    RegistryUnavailableError,
    SerializationError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from kafkaclient.cli.record_format import Printed, Records

Registry = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="KAFKACLIENT_REGISTRY",
        help="The schema registry; further options of its client are -X schema.registry.NAME.",
    ),
]

_MAGIC = b"\x00"  # before the schema's id in four bytes: Confluent's wire format
_FRAME = 5
_JSON, _AVRO = "JSON", "AVRO"

Field: TypeAlias = Literal["key", "value"]
_FIELDS: tuple[Field, ...] = ("key", "value")


@asynccontextmanager
async def registry_client(url: str, options: Mapping[str, str]) -> AsyncIterator[Any]:
    """confluent-kafka's client with these properties. Raises ConfigError without the extra
    ``schema-registry``, or for properties that it refuses."""
    try:
        from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
    except ImportError as error:
        raise ConfigError(
            f"--registry needs {error.name}: pip install 'kafkaclient[schema-registry]'"
        ) from error
    try:
        typed = {name: int(v) if v.isdecimal() else v for name, v in options.items()}
        client = AsyncSchemaRegistryClient({**typed, "url": url})
    except (ValueError, TypeError) as error:
        raise ConfigError(f"--registry {url}: {error}") from error
    async with client:
        yield client


class Decoder:
    """Makes JSON of keys and values with a schema's id before them. Others stay as they are."""

    def __init__(self, client: Any, url: str) -> None:
        from kafkaclient.schema_registry import AvroDeserializer  # the extra

        self._client = client
        self._registry = _name(url)
        self._avro = AvroDeserializer(client)
        self._kinds: dict[int, str] = {}

    async def decoded(
        self, records: Records, *, skip_errors: bool
    ) -> tuple[list[Printed], list[KafkaError]]:
        """The records with JSON, up to the first that cannot be decoded, and what is wrong with it.
        With ``skip_errors`` all that can be decoded, and all errors; a RegistryUnavailableError is
        the end."""
        from kafkaclient.reader.batch import FetchedRecord

        found: list[Printed] = []
        wrong: list[KafkaError] = []
        for r in records:
            try:
                key, value = [await self._content(r, field) for field in _FIELDS]
            except Exception as error:  # noqa: BLE001 - whatever fastavro and the client raise
                is_of_registry = _is_of_registry(error)
                kind = RegistryUnavailableError if is_of_registry else SerializationError
                where = f"{r.topic}-{r.partition} at offset {r.offset}"
                told = f"the record of {where} cannot be decoded with {self._registry}: {error}"
                wrong.append(kind(told))
                if is_of_registry or not skip_errors:
                    break
                continue
            head = (r.topic, r.partition, r.offset, r.timestamp, r.timestamp_type)
            found.append(FetchedRecord(*head, key, value, r.headers))
        return found, wrong

    async def _content(self, record: Printed, field: Field) -> bytes | None:
        data: bytes | None = getattr(record, field)
        if data is None or len(data) < _FRAME or not data.startswith(_MAGIC):
            return data
        number = int.from_bytes(data[1:_FRAME], "big")
        if number not in self._kinds:
            self._kinds[number] = (await self._client.get_schema(number)).schema_type
        kind = self._kinds[number]
        if kind == _JSON:
            return data[_FRAME:]
        if kind != _AVRO:
            raise SerializationError(
                f"its {field} has a schema of type {kind}, which needs its classes: read it in "
                "Python with kafkaclient.schema_registry.ProtobufDeserializer"
            )
        value = self._avro.deserialize(
            data, kafkaclient.SerializationContext(record.topic, field, [])
        )
        if isawaitable(value):
            value = await value
        return json.dumps(value, default=_plain, ensure_ascii=False).encode()


class Encoder:
    """Encodes JSON by the newest schema of a subject, or by a schema's id. Registers nothing."""

    def __init__(self, serializer: Any, topic: str, field: Field) -> None:
        self._serializer = serializer
        self._topic = topic
        self._field = field

    @classmethod
    async def of(cls, client: Any, url: str, topic: str, field: Field, schema: str) -> Encoder:
        """``schema``: an id, or "latest" for the newest of the subject TOPIC-value or TOPIC-key."""
        from kafkaclient.schema_registry import AvroSerializer, JSONSerializer

        if schema != "latest" and not schema.isdecimal():
            raise ConfigError(f"--{field}-schema {schema!r}: give latest or the id of a schema")
        try:
            if schema == "latest":
                found = await client.get_latest_version(f"{topic}-{field}")
                number, text = found.schema_id, found.schema
            else:
                number, text = int(schema), await client.get_schema(int(schema))
        except Exception as error:  # the client's own errors, and those of its HTTP library
            subject = f" of {topic}-{field}" if schema == "latest" else ""
            told = f"--{field}-schema {schema}{subject}, {_name(url)}: {error}; nothing was sent"
            is_known = getattr(error, "http_status_code", 500) < 500  # not: no answer, or a failure
            raise (ConfigError if is_known else SerializationError)(told) from error
        conf = {"auto.register.schemas": False, "use.schema.id": number}
        if text.schema_type == _AVRO:
            return cls(AvroSerializer(client, text, conf=conf), topic, field)
        if text.schema_type == _JSON:
            return cls(JSONSerializer(text, client, conf=conf), topic, field)
        raise ConfigError(
            f"--{field}-schema {schema}: its type is {text.schema_type}, which needs its classes; "
            "there are AVRO and JSON"
        )

    async def encoded(self, text: bytes | None) -> bytes | None:
        """What is sent for a JSON text; None stays. Raises ValueError with the reason."""
        if text is None:
            return None
        try:
            context = kafkaclient.SerializationContext(self._topic, self._field, [])
            data = self._serializer.serialize(json.loads(text), context)
            encoded: bytes | None = await data if isawaitable(data) else data
        except Exception as error:  # whatever fastavro and the client raise
            raise ValueError(f"{self._field}: {error}") from error
        return encoded


def _name(url: str) -> str:
    """The registry in messages, without a password."""
    return f"the registry {url.rpartition('@')[2]}"


def _is_of_registry(error: Exception) -> bool:
    """Whether the registry refuses the request, or does not answer it."""
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    from kafkaclient.schema_registry import NO_SUCH_SCHEMA

    if isinstance(error, SchemaRegistryError):
        return error.http_status_code not in NO_SUCH_SCHEMA
    # confluent-kafka uses the one of the two that is installed.
    of_http = type(error).__module__.partition(".")[0] in ("httpx", "httpx2")
    return of_http or isinstance(error, RegistryUnavailableError)


def _plain(value: Any) -> Any:
    """What JSON does not have: bytes as base64, dates and times as in ISO 8601, others as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, date | time) else str(value)
