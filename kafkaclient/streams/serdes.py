"""How keys and values of topics and stores become bytes, and bytes become keys and values.

===============================  ==========================================================
declared as                      bytes
===============================  ==========================================================
``bytes``                        unchanged; a topic's default is ``bytes | None``
``str``                          UTF-8
``int``                          decimal text, ``b"-42"``; up to 4,300 digits, unless
                                 ``sys.set_int_max_str_digits`` is called
``float``                        shortest text that reads back equal, ``b"0.1"``
``bool``                         ``b"true"`` or ``b"false"``
``uuid.UUID``                    text of 36 characters, as Java's ``UUIDSerializer``
dataclass, ``msgspec.Struct``,   JSON by msgspec, keys of dicts sorted; the type is checked
``TypedDict``, ``dict``,         when reading and when writing. What would be read back
``list``, a union, ...           as another object is not written
``T | None``                     as ``T``, and None is allowed: a null key or value
``Serde(serialize, ...)``        what its functions do
a producer's serializer          what it does; for topics that are only written
===============================  ==========================================================
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import iscoroutine, iscoroutinefunction
from types import NoneType, UnionType
from typing import (
    Any,
    Generic,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    _SpecialForm,
    get_args,
    get_origin,
)
from uuid import UUID

import msgspec
from msgspec import inspect

from kafkaclient.errors import ConfigError
from kafkaclient.producer.batches.serializers import SerializationContext

__all__ = ["Serde", "TypeLike"]

T = TypeVar("T")

Decode: TypeAlias = Callable[[bytes], Any]
Encode: TypeAlias = Callable[[Any], bytes]
Write: TypeAlias = Callable[[Any], Any]


class Serde(Generic[T]):
    """A pair of functions for keys or values: ``serialize`` makes bytes, ``deserialize`` reads
    them. Neither is called for None.

    ``serialize`` may also be a :class:`kafkaclient.Serializer`, such as a serializer of
    :mod:`kafkaclient.schema_registry`. If it returns an awaitable, the serde is only for topics: a
    store cannot wait. Without ``deserialize`` the serde is only for topics that are written.

    Raises :class:`~kafkaclient.errors.ConfigError` for an argument that is neither.
    """

    __slots__ = ("deserialize", "serialize")

    def __init__(
        self,
        serialize: Callable[[T], Any] | Any,
        deserialize: Callable[[bytes], T] | None = None,
    ) -> None:
        if not callable(serialize) and not callable(getattr(serialize, "serialize", None)):
            raise ConfigError(
                f"Serde(serialize={serialize!r}): give a function, or an object with a method "
                "serialize(value, context)"
            )
        if deserialize is not None and not callable(deserialize):
            raise ConfigError(f"Serde(deserialize={deserialize!r}): give a function")
        self.serialize: Callable[[T], Any] | Any = serialize
        self.deserialize: Callable[[bytes], T] | None = deserialize

    def __repr__(self) -> str:
        return f"Serde({self.serialize!r}, {self.deserialize!r})"


TypeLike: TypeAlias = type[T] | Serde[T] | UnionType | _SpecialForm
"""What ``key=`` and ``value=`` take. A type checker cannot read the type of a union: write
``Topic[str, int | None]("numbers", key=str, value=int | None)``."""


class TypeCodec(NamedTuple):
    """The functions for the keys or values of one topic or store."""

    declared: str
    """The declaration, for error messages."""
    encode: Encode | None
    """Not for None. None: the values are bytes, which only have to be checked."""
    decode: Decode | None
    """Not for None. None: the bytes themselves."""
    nullable: bool = True
    with_context: bool = False
    """Whether ``encode`` is a serializer's method, called with (value, SerializationContext)."""
    readable: bool = True
    trusted: bool = False
    """Whether ``encode`` and ``decode`` check their arguments, and ``encode`` always returns
    bytes."""

    @property
    def writer(self) -> Write:
        """:meth:`write` without the checks that ``encode`` itself makes: stores call it for each
        access."""
        if self.nullable:
            return self.write
        if self.encode is None:
            return _checked_bytes
        return self.encode if self.trusted else self.write

    @property
    def reader(self) -> Decode | None:
        """:meth:`read` without the checks that ``decode`` itself makes, though with less helpful
        errors. None: the bytes themselves."""
        if self.nullable and self.decode is None:
            return None
        if self.decode is not None and self.trusted and not self.nullable:
            return self.decode
        return self.read

    def read(self, data: bytes | None) -> Any:
        """The object. Raises what the decoder raises, and TypeError for a null that the declaration
        does not allow."""
        if data is None:
            if not self.nullable:
                raise TypeError(f"it is null, and declared as {self.declared}, without None")
            return None
        return data if self.decode is None else self.decode(data)

    def write(self, value: Any) -> bytes | None:
        """The bytes. Raises TypeError for an object of another type than declared."""
        if value is None:
            if not self.nullable:
                raise TypeError(f"None is given for {self.declared}")
            return None
        if self.encode is None:
            return _checked_bytes(value)
        if self.with_context:
            raise TypeError(f"{self.declared} needs a topic, which a store does not have")
        return checked_result(self.encode(value), self.declared)

    async def write_for(
        self, value: Any, topic: str, field: Any, headers: list[Any]
    ) -> bytes | None:
        """As :meth:`write`, for serializers that need a context or wait."""
        if value is None or self.encode is None or not self.with_context:
            return self.write(value)
        encode: Any = self.encode
        data = encode(value, SerializationContext(topic, field, headers))
        if isinstance(data, Awaitable):
            data = await data
        return checked_result(data, self.declared)


def codec_of(declared: Any, what: str) -> TypeCodec:
    """The codec of a declaration. Raises ConfigError, which begins with ``what``."""
    if isinstance(declared, TypeCodec):
        return declared
    if isinstance(declared, Serde):
        return _serde(declared)
    if isinstance(declared, type) and declared in _SIMPLE:
        return TypeCodec(declared.__name__, *_SIMPLE[declared], nullable=False, trusted=True)
    if get_origin(declared) in (Union, UnionType) and NoneType in get_args(declared):
        others = [each for each in get_args(declared) if each is not NoneType]
        inner = codec_of(others[0] if len(others) == 1 else Union[tuple(others)], what)  # noqa: UP007
        return inner._replace(declared=f"{inner.declared} | None", nullable=True)
    if declared is None or isinstance(declared, (str, TypeVar)):
        raise ConfigError(
            f"{what} is {declared!r}: give a type such as str, int, a dataclass, or a Serde"
        )
    if not isinstance(declared, type) and callable(getattr(declared, "serialize", None)):
        return _serde(Serde(declared))
    return _json(declared, what)


def checked_result(data: Any, declared: str) -> bytes:
    """The result of a serializer. Raises TypeError if it is not bytes."""
    if data.__class__ is bytes:
        return data
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if iscoroutine(data):
        data.close()
        raise TypeError(f"{declared} is asynchronous: a store cannot wait for it")
    raise TypeError(f"the serializer of {declared} returned {type(data).__name__}, not bytes")


def _checked_bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)  # the same object, if it is bytes
    raise TypeError(f"{_shown(value)} is given for bytes")


def _shown(value: Any) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"


def _checked(accepted: Any, write: Encode) -> Encode:
    """``write``, for objects of the types that are ``accepted``, the first of which is declared."""
    declared, *_ = accepted

    def encode(value: Any) -> bytes:
        if value.__class__ is not declared and not isinstance(value, accepted):
            raise TypeError(f"{_shown(value)} is given for {declared.__name__}")
        return write(value)

    return encode


def _int_bytes(value: int) -> bytes:
    try:
        return b"%d" % value
    except ValueError as error:
        raise ValueError(
            f"an int cannot be written, see sys.set_int_max_str_digits: {error}"
        ) from None


def _read_bool(data: bytes) -> bool:
    if data not in (b"true", b"false"):
        raise ValueError(f"{data[:20]!r} is neither b'true' nor b'false'")
    return data == b"true"


_GIVE = (
    "Give bytes, str, int, float, bool, UUID, a type that msgspec reads from JSON, such as a "
    "dataclass, or a Serde"
)

_SIMPLE: dict[Any, tuple[Encode | None, Decode | None]] = {
    bytes: (None, None),
    str: (_checked((str,), str.encode), bytes.decode),
    int: (_checked((int,), _int_bytes), int),
    float: (_checked((float, int), lambda number: repr(float(number)).encode()), float),
    bool: (_checked((bool,), lambda flag: b"true" if flag else b"false"), _read_bool),
    UUID: (_checked((UUID,), lambda uuid: str(uuid).encode()), lambda data: UUID(data.decode())),
}

BYTES_OR_NONE: Any = TypeCodec("bytes | None", None, None)


def _serde(serde: Serde[Any]) -> TypeCodec:
    serialize: Any = serde.serialize
    with_context = False
    if not callable(serialize):
        serialize, with_context = serialize.serialize, True
    elif iscoroutinefunction(serialize):
        serialize, with_context = lambda value, _context: serde.serialize(value), True
    readable = serde.deserialize is not None
    return TypeCodec(repr(serde), serialize, serde.deserialize, True, with_context, readable)


_encoder = msgspec.json.Encoder(order="deterministic")  # equal dicts must be equal keys
_KEY_TYPES = (
    *(inspect.AnyType, inspect.StrType, inspect.IntType, inspect.FloatType, inspect.BytesType),
    *(inspect.DateTimeType, inspect.DateType, inspect.TimeType, inspect.TimeDeltaType),
    *(inspect.UUIDType, inspect.DecimalType, inspect.EnumType, inspect.LiteralType),
)


def _json(declared: Any, what: str) -> TypeCodec:
    try:
        decode = msgspec.json.Decoder(declared).decode
        types = _parts(inspect.type_info(declared))
    except (TypeError, ValueError, NameError) as error:
        raise ConfigError(
            f"{what} is {declared!r}, which has no serde: {error}. {_GIVE}"
        ) from error
    keys = [each.key_type for each in types if isinstance(each, inspect.DictType)]
    keys = [key for each in keys for key in getattr(each, "types", (each,))]  # of unions
    if reason := _never_works(declared, types, keys):
        raise ConfigError(f"{what} is {declared!r}, which has no serde: {reason}. {_GIVE}")
    name = getattr(declared, "__name__", None) if isinstance(declared, type) else None
    name = name or str(declared)
    # isinstance does not work with TypedDict; generic types are no classes.
    plain = get_origin(declared) is None and isinstance(declared, type)
    expected = declared if plain and not hasattr(declared, "__total__") else None
    other_keys = any(not isinstance(key, (inspect.StrType, inspect.AnyType)) for key in keys)

    def encode(value: Any) -> bytes:
        if expected is not None and not isinstance(value, expected):
            raise TypeError(f"{_shown(value)} is given for {name}")
        try:
            data = _encoder.encode(
                msgspec.to_builtins(value, str_keys=True) if other_keys else value
            )
            read = decode(data)  # the only check that msgspec has for objects and their fields
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise TypeError(f"{_shown(value)} is given for {name}: {error}") from None
        if read != value and not _is_same(read, value):
            raise TypeError(
                f"{_shown(value)} is given for {name}: what is read back would differ from it. "
                "JSON has no NaN, bytes, sets, tuples or dates unless the type declares them, and "
                "no fields of subclasses"
            )
        return data

    return TypeCodec(name, encode, decode, nullable=False, trusted=True)


def _never_works(declared: Any, types: list[inspect.Type], keys: list[inspect.Type]) -> str | None:
    """Why no object of the type can be written or read; msgspec itself says it only then."""
    if declared is Any or declared is NoneType:
        return "it says nothing of what is written"
    for each in types:
        if isinstance(each, inspect.CustomType):
            return f"msgspec cannot read {each.cls!r}"
    for key in keys:
        if not isinstance(key, _KEY_TYPES):
            return f"JSON has no keys of {type(key).__name__.removesuffix('Type').lower()}"
    return None


def _parts(found: inspect.Type) -> list[inspect.Type]:
    """The type and all types in it."""
    parts: dict[int, inspect.Type] = {}
    waiting: list[Any] = [found]
    while waiting:
        each = waiting.pop()
        if isinstance(each, (tuple, list)):
            waiting += each
        elif isinstance(each, inspect.Field):
            waiting.append(each.type)
        elif isinstance(each, inspect.Type) and id(each) not in parts:
            parts[id(each)] = each
            waiting += [getattr(each, field) for field in each.__struct_fields__]
    return list(parts.values())


def _is_same(one: Any, other: Any) -> bool:
    """Whether two objects are equal; those of classes without ``__eq__``, if their fields are."""
    if one.__class__ is not other.__class__:
        return bool(one == other)
    fields = getattr(one, "__struct_fields__", None) or getattr(one, "__dataclass_fields__", None)
    if fields:
        return all(_is_same(getattr(one, field), getattr(other, field)) for field in fields)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other)
