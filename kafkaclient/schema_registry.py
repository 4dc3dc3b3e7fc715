"""Avro, JSON Schema and Protobuf with a schema registry, by confluent-kafka's serializers.

The classes have the names and arguments of confluent-kafka's, with its async client in place of the
client that blocks. They need the extra ``schema-registry``. See docs/serializers.md.

Confluent's own async serializers are coroutines for every record. Here its sync serializers work,
on a registry that answers from memory. A question that has no answer yet breaks the serializer off.
The record waits until the client has answered, and then the serializer begins again.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from importlib import import_module
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from kafkaclient.errors import ConfigError, SerializationError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kafkaclient.producer.batches.serializers import SerializationContext

__all__ = ["AvroSerializer", "JSONSerializer", "ProtobufSerializer"]

_Question: TypeAlias = "tuple[str, tuple[Any, ...], tuple[tuple[str, Any], ...]]"
"""A method of the client, its arguments, and its arguments by keyword, all hashable."""

_clock = time.monotonic


class _UnansweredError(BaseException):
    """Breaks a serializer off. Not an Exception: no handler within the serializer is meant."""

    def __init__(self, question: _Question, ask: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        super().__init__(question[0])
        self.question = question
        self.ask = ask


class _Inquiry:
    """A request to the registry under way, and how many records wait for it."""

    __slots__ = ("task", "waiting")

    def __init__(self, answer: Coroutine[Any, Any, Any]) -> None:
        self.task = asyncio.get_running_loop().create_task(answer, name="kafkaclient-registry")
        self.waiting = 0


class _Answers:
    """The registry as a sync serializer sees it: the client's coroutines are plain methods, which
    return known answers, or raise :class:`_UnansweredError`."""

    def __init__(self, client: Any) -> None:
        self._client = client
        # The client itself asks again for the latest version after this time.
        self._latest_s: float | None = client.config().get("cache.latest.ttl.sec")
        self._known: dict[_Question, tuple[Any, float | None]] = {}
        self._inquiries: dict[_Question, _Inquiry] = {}
        self.errors: dict[_Question, Exception] = {}
        """Questions of the present record that the registry has refused."""

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        return partial(self._answer, name) if iscoroutinefunction(attribute) else attribute

    def _answer(self, name: str, *given: Any, **named: Any) -> Any:
        question = (name, _hashable(given), _hashable(named))
        answer, until = self._known.get(question, (None, 0.0))
        if until is None or _clock() < until:
            return answer
        if question in self.errors:
            raise self.errors[question].with_traceback(None)  # other records have it, too
        raise _UnansweredError(question, partial(getattr(self._client, name), *given, **named))

    async def ask(self, asked: _UnansweredError) -> None:
        """Have a question answered by the client. Records that ask the same share one request."""
        inquiry = self._inquiries.get(asked.question)
        if inquiry is None:
            inquiry = self._inquiries[asked.question] = _Inquiry(asked.ask())
        inquiry.waiting += 1
        try:
            answer = await asyncio.shield(inquiry.task)
        finally:
            inquiry.waiting -= 1
            if not inquiry.waiting:
                del self._inquiries[asked.question]
                inquiry.task.cancel()
        latest = asked.question[0].startswith("get_latest")
        until = _clock() + self._latest_s if latest and self._latest_s is not None else None
        self._known[asked.question] = answer, until


class _RegistrySerializer:
    """A :class:`kafkaclient.Serializer`. ``make(registry)`` makes a sync serializer of Confluent's.

    ``serialize`` returns bytes if the registry has answered everything before; otherwise a
    coroutine, which waits for the registry.

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
        self._registry = _Answers(client)
        self._make = make
        self._serialize: Callable[[Any, Any], Any] | None = None
        with suppress(_UnansweredError):  # the schema refers to others: the first record waits
            self._serialize = make(self._registry)

    def serialize(self, value: Any, context: SerializationContext) -> Any:
        """See :class:`kafkaclient.Serializer`."""
        if not context.topic:
            raise SerializationError(
                "the subject of a schema depends on the topic, which a record of create_batch does "
                "not have yet; use send or send_many"
            )
        try:
            return self._now(value, context)
        except _UnansweredError as asked:
            return self._later(asked, value, context)

    def _now(self, value: Any, context: SerializationContext) -> Any:
        if self._serialize is None:
            self._serialize = self._make(self._registry)
        return self._serialize(value, context)

    async def _later(
        self, asked: _UnansweredError, value: Any, context: SerializationContext
    ) -> Any:
        errors: dict[_Question, Exception] = {}
        while True:
            try:
                await self._registry.ask(asked)
            except Exception as error:  # noqa: BLE001 - the serializer raises it, or handles it
                errors[asked.question] = error.with_traceback(None)
            self._registry.errors = errors
            try:
                return self._now(value, context)
            except _UnansweredError as next_asked:
                asked = next_asked
            finally:
                self._registry.errors = {}


class AvroSerializer(_RegistrySerializer):
    """confluent-kafka's ``AvroSerializer`` for a producer's ``value_serializer`` or
    ``key_serializer``::

        registry = AsyncSchemaRegistryClient({"url": "http://localhost:8081"})
        Producer("localhost:9092", value_serializer=AvroSerializer(registry, schema))

    The arguments are confluent-kafka's; ``conf`` has its properties, such as
    ``auto.register.schemas``. ``to_dict`` may be called twice for a record that waits for the
    registry. The caller closes the client, after the producer.

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


def _confluent(module: str, name: str) -> Any:
    """A sync serializer class of confluent-kafka."""
    try:
        return getattr(import_module(f"confluent_kafka.schema_registry.{module}"), name)
    except ImportError as error:
        raise ConfigError(
            f"{name} needs confluent-kafka with its schema registry client ({error}): "
            "pip install 'kafkaclient[schema-registry]'"
        ) from error


def _hashable(item: Any) -> Any:
    if isinstance(item, (list, tuple)):
        return tuple(map(_hashable, item))
    if isinstance(item, dict):
        return tuple(sorted((name, _hashable(value)) for name, value in item.items()))
    return item
