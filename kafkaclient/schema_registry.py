"""Avro, JSON Schema and Protobuf with a schema registry, by confluent-kafka's (de)serializers.

The classes have the names and arguments of confluent-kafka's, with its async client in place of the
client that blocks. They need the extra ``schema-registry``. See docs/how-to/serializers.md.

Confluent's own async serializers are coroutines for every record. Here its sync serializers run
against a cache of the registry. On a cache miss the serializer raises; the record waits for the
client's request, and then the serializer runs again.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Never, TypeAlias
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from kafkaclient.errors import ConfigError, RegistryUnavailableError, SerializationError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from kafkaclient.producer.batches.serializers import SerializationContext

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "JSONDeserializer",
    "JSONSerializer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
]

_Call: TypeAlias = "tuple[str, tuple[Any, ...], tuple[tuple[str, Any], ...]]"
"""A method of the client, its arguments, and its arguments by keyword, all hashable."""

_clock = time.monotonic

_loops: WeakKeyDictionary[Any, asyncio.AbstractEventLoop] = WeakKeyDictionary()
"""By client: the event loop of its requests. Its connections belong to this loop."""

_fetched: ContextVar[Mapping[_Call, Callable[[], Any]]] = ContextVar("kafkaclient_registry_fetched")
"""What the registry has answered to the calls of the present record: functions that return the
answer, or raise the error. They count also if the answer is too old for other records, for example
with ``cache.latest.ttl.sec`` 0. Other threads run the same serializer for their records."""

_OTHER_LOOP = (
    "the AsyncSchemaRegistryClient was first used in another event loop, or before a fork, and its "
    "connections belong there: make a client and serializers for each producer and in each process"
)


class _NotCachedError(BaseException):
    """Ends a serializer that needs an answer of the registry. Not an Exception, so that no handler
    in the serializer catches it."""

    def __init__(self, call: _Call, request: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        super().__init__(call[0])
        self.call = call
        self.request = request


class _PendingCall:
    """A request to the registry, and how many records wait for it."""

    __slots__ = ("loop", "task", "waiting")

    def __init__(self, request: Coroutine[Any, Any, Any]) -> None:
        self.loop = asyncio.get_running_loop()
        self.task = self.loop.create_task(request, name="kafkaclient-registry")
        self.waiting = 0


class _CachedRegistry:
    """The registry as a sync serializer sees it: the client's coroutines are plain methods, which
    return cached answers, or raise :class:`_NotCachedError`."""

    def __init__(self, client: Any) -> None:
        self._client = client
        # The client itself requests the latest version again after this time.
        self._latest_s: float | None = client.config().get("cache.latest.ttl.sec")
        self._cached: dict[_Call, tuple[Any, float | None]] = {}
        self._pending: dict[_Call, _PendingCall] = {}

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        return partial(self._answer, name) if iscoroutinefunction(attribute) else attribute

    def _answer(self, name: str, *given: Any, **named: Any) -> Any:
        call = (name, _hashable(given), _hashable(named))
        if (fetched := _fetched.get({}).get(call)) is not None:
            return fetched()
        answer, until = self._cached.get(call, (None, 0.0))
        if until is None or _clock() < until:
            return answer
        raise _NotCachedError(call, partial(getattr(self._client, name), *given, **named))

    def check_loop(self) -> None:
        """Raise ConfigError if the client has sent requests in another event loop."""
        loop = asyncio.get_running_loop()
        first = _loops.setdefault(self._client, loop)
        if first is not loop and not first.is_closed():
            raise ConfigError(_OTHER_LOOP)
        _loops[self._client] = loop

    async def fetch(self, missing: _NotCachedError) -> Any:
        """Have the client make a call; returns the answer. Records that need the same call share
        one request.

        Raises:
            ConfigError: a connection of the client belongs to another event loop.
            Exception: what the client raises.
        """
        call = missing.call
        pending = self._pending.get(call)
        if pending is None or pending.loop is not asyncio.get_running_loop():
            pending = self._pending[call] = _PendingCall(missing.request())
        pending.waiting += 1
        try:
            answer = await asyncio.shield(pending.task)
        except RuntimeError as error:
            if "event loop" not in str(error).lower():
                raise
            raise ConfigError(_OTHER_LOOP) from error
        finally:
            pending.waiting -= 1
            if not pending.waiting:
                if self._pending.get(call) is pending:
                    del self._pending[call]
                pending.task.cancel()
        latest = call[0].startswith("get_latest")
        until = _clock() + self._latest_s if latest and self._latest_s is not None else None
        self._cached[call] = answer, until
        return answer


class _RegistryCodec:
    """What serializers and deserializers share. ``make(registry)`` makes a sync one of Confluent's.

    ``_convert`` returns the result if the cache has all answers of the registry; otherwise a
    coroutine, which waits for the registry, and raises ConfigError if the client belongs to another
    event loop.

    Raises:
        ConfigError: the client is not an ``AsyncSchemaRegistryClient``, or its URL has a password.
    """

    def __init__(self, client: Any, make: Callable[[Any], Callable[[Any, Any], Any]]) -> None:
        if not iscoroutinefunction(getattr(client, "get_schema", None)):
            raise ConfigError(
                f"{type(self).__name__} needs an AsyncSchemaRegistryClient of confluent-kafka, not "
                f"a {type(client).__name__}"
            )
        if any(urlsplit(url).username for url in str(client.config().get("url")).split(",")):
            raise ConfigError(
                "the URL of the schema registry has a user name, and its HTTP client writes URLs "
                "with passwords to the log: give basic.auth.user.info instead"
            )
        self._registry = _CachedRegistry(client)
        self._make = make
        self._codec: Callable[[Any, Any], Any] | None = None
        with suppress(_NotCachedError):  # the schema refers to others: the first record waits
            self._codec = make(self._registry)

    def _convert(self, value: Any, context: SerializationContext) -> Any:
        try:
            return self._now(value, context)
        except _NotCachedError as missing:
            return self._later(missing, value, context)

    def _now(self, value: Any, context: SerializationContext) -> Any:
        if self._codec is None:
            self._codec = self._make(self._registry)
        return self._codec(value, context)

    async def _later(
        self, missing: _NotCachedError, value: Any, context: SerializationContext
    ) -> Any:
        self._registry.check_loop()
        fetched: dict[_Call, Callable[[], Any]] = {}
        while True:
            try:
                answer = await self._registry.fetch(missing)
            except ConfigError:
                raise
            except Exception as error:  # noqa: BLE001 - the serializer raises it, or handles it
                self._check_answer(error)
                fetched[missing.call] = partial(_raise, error)
            else:
                fetched[missing.call] = partial(_given, answer)
            token = _fetched.set(fetched)
            try:
                return self._now(value, context)
            except _NotCachedError as next_missing:
                missing = next_missing
            finally:
                _fetched.reset(token)

    def _check_answer(self, error: Exception) -> None:
        """Raise an error in place of what the client has raised, if the codec must not get it."""


class _RegistrySerializer(_RegistryCodec):
    """A :class:`kafkaclient.Serializer`."""

    def serialize(self, value: Any, context: SerializationContext) -> Any:
        """See :class:`kafkaclient.Serializer`."""
        if not context.topic:
            raise SerializationError(
                "the subject of a schema depends on the topic, which a record of create_batch does "
                "not have yet; use send or send_many"
            )
        return self._convert(value, context)


class _RegistryDeserializer(_RegistryCodec):
    """A :class:`kafkaclient.Deserializer`. Raises RegistryUnavailableError if the registry gives no
    usable answer: that is not the fault of the record."""

    def deserialize(self, data: bytes, context: SerializationContext) -> Any:
        """See :class:`kafkaclient.Deserializer`."""
        return self._convert(data, context)

    def _check_answer(self, error: Exception) -> None:
        if getattr(error, "http_status_code", None) not in NO_SUCH_SCHEMA:
            raise RegistryUnavailableError(
                f"the schema registry gave no usable answer, so no record is skipped: {error!r}"
            ) from error


NO_SUCH_SCHEMA = (404, 422)  # the record names a schema that the registry does not have


class AvroSerializer(_RegistrySerializer):
    """confluent-kafka's ``AvroSerializer`` for a producer's ``value_serializer`` or
    ``key_serializer``::

        registry = AsyncSchemaRegistryClient({"url": "http://localhost:8081"})
        Producer("localhost:9092", value_serializer=AvroSerializer(registry, schema))

    The arguments are confluent-kafka's; ``conf`` has its properties, such as
    ``auto.register.schemas``. ``to_dict`` may be called twice for a record that waits for the
    registry. The caller closes the client, after the producer. A client and its serializers work in
    one event loop: in the loop of their first request to the registry.

    Raises:
        ConfigError: the extra ``schema-registry`` is not installed, the client is not an
            ``AsyncSchemaRegistryClient``, or its URL has a password.
        ValueError, TypeError: confluent-kafka refuses an argument.
    """

    def __init__(
        self,
        schema_registry_client: Any,
        schema_str: Any = None,
        to_dict: Callable[[Any, Any], dict[str, Any]] | None = None,
        conf: dict[str, Any] | None = None,
        rule_conf: dict[str, Any] | None = None,
        rule_registry: Any = None,
    ) -> None:
        kind = _confluent("avro", "AvroSerializer")
        given = (schema_str, to_dict, conf, rule_conf, rule_registry)
        super().__init__(schema_registry_client, lambda registry: kind(registry, *given))


class JSONSerializer(_RegistrySerializer):
    """confluent-kafka's ``JSONSerializer``, as :class:`AvroSerializer` is used."""

    def __init__(
        self,
        schema_str: Any,
        schema_registry_client: Any,
        to_dict: Callable[[Any, Any], dict[str, Any]] | None = None,
        conf: dict[str, Any] | None = None,
        rule_conf: dict[str, Any] | None = None,
        rule_registry: Any = None,
        json_encode: Callable[[Any], str] | None = None,
    ) -> None:
        kind = _confluent("json_schema", "JSONSerializer")
        given = (to_dict, conf, rule_conf, rule_registry, json_encode)
        super().__init__(
            schema_registry_client, lambda registry: kind(schema_str, registry, *given)
        )


class ProtobufSerializer(_RegistrySerializer):
    """confluent-kafka's ``ProtobufSerializer``, as :class:`AvroSerializer` is used; ``msg_type`` is
    the class of the messages."""

    def __init__(
        self,
        msg_type: Any,
        schema_registry_client: Any,
        conf: dict[str, Any] | None = None,
        rule_conf: dict[str, Any] | None = None,
        rule_registry: Any = None,
    ) -> None:
        kind = _confluent("protobuf", "ProtobufSerializer")
        given = (conf, rule_conf, rule_registry)
        super().__init__(schema_registry_client, lambda registry: kind(msg_type, registry, *given))


class AvroDeserializer(_RegistryDeserializer):
    """confluent-kafka's ``AvroDeserializer`` for a consumer's ``value_deserializer`` or
    ``key_deserializer``, with its arguments; otherwise as :class:`AvroSerializer`. ``from_dict``
    may be called twice for a record that waits for the registry."""

    def __init__(
        self,
        schema_registry_client: Any,
        schema_str: Any = None,
        from_dict: Callable[[dict[str, Any], Any], Any] | None = None,
        return_record_name: bool = False,
        conf: dict[str, Any] | None = None,
        rule_conf: dict[str, Any] | None = None,
        rule_registry: Any = None,
    ) -> None:
        kind = _confluent("avro", "AvroDeserializer")
        given = (schema_str, from_dict, return_record_name, conf, rule_conf, rule_registry)
        super().__init__(schema_registry_client, lambda registry: kind(registry, *given))


class JSONDeserializer(_RegistryDeserializer):
    """confluent-kafka's ``JSONDeserializer``, as :class:`AvroDeserializer` is used."""

    def __init__(
        self,
        schema_str: Any,
        from_dict: Callable[[dict[str, Any], Any], Any] | None = None,
        schema_registry_client: Any = None,
        conf: dict[str, Any] | None = None,
        rule_conf: dict[str, Any] | None = None,
        rule_registry: Any = None,
        json_decode: Callable[[str], Any] | None = None,
    ) -> None:
        kind = _confluent("json_schema", "JSONDeserializer")
        given = (conf, rule_conf, rule_registry, json_decode)
        super().__init__(
            schema_registry_client, lambda registry: kind(schema_str, from_dict, registry, *given)
        )


class ProtobufDeserializer(_RegistryDeserializer):
    """confluent-kafka's ``ProtobufDeserializer``, as :class:`AvroDeserializer` is used;
    ``message_type`` is the class of the messages."""

    def __init__(
        self,
        message_type: Any,
        conf: dict[str, Any] | None = None,
        schema_registry_client: Any = None,
        rule_conf: dict[str, Any] | None = None,
        rule_registry: Any = None,
    ) -> None:
        kind = _confluent("protobuf", "ProtobufDeserializer")
        super().__init__(
            schema_registry_client,
            lambda registry: kind(message_type, conf, registry, rule_conf, rule_registry),
        )


def _confluent(module: str, name: str) -> Any:
    """A sync serializer or deserializer class of confluent-kafka."""
    try:
        return getattr(import_module(f"confluent_kafka.schema_registry.{module}"), name)
    except ImportError as error:
        raise ConfigError(
            f"{name} needs confluent-kafka with its schema registry client ({error}): "
            "pip install 'kafkaclient[schema-registry]'"
        ) from error


def _raise(error: Exception) -> Never:
    raise error.with_traceback(None)  # other records have it, too


def _given(answer: Any) -> Any:
    return answer


def _hashable(item: Any) -> Any:
    if isinstance(item, (list, tuple)):
        return tuple(map(_hashable, item))
    if isinstance(item, dict):
        return tuple(sorted((name, _hashable(value)) for name, value in item.items()))
    return item
