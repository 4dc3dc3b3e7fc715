"""Kinds of option values: how a value is read, its limits, and the text on accepted values.

Values come from Python code (``linger_ms=5``) or as text from property files. Text is read as in
Java's ``ConfigDef.parseType``. A bool is not accepted as a number.
"""

from __future__ import annotations

import math
import operator
import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from kafkaclient.hooks import Hooks

# --- A time limit with the name of its option, if it has one --------------------------------------


class Limit(NamedTuple):
    """``str`` gives the text for messages: ``60 s (max.block.ms)``, or ``60 s``."""

    seconds: float
    setting: str = ""

    def __str__(self) -> str:
        return f"{self.seconds:g} s ({self.setting})" if self.setting else f"{self.seconds:g} s"


# --- Kinds of option values: how a value is read --------------------------------------------------

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

Address: TypeAlias = tuple[str, int]

T = TypeVar("T")


class Kind(Generic[T]):
    """``read`` converts the user's value. It raises ValueError, TypeError or LookupError for a
    value that is not accepted. ``annotation``: the type of a keyword argument with such a value,
    for type checkers. Text is always read, but has this type only where nothing else fits.
    """

    def __init__(
        self, accepts: str, read: Callable[[object], T], annotation: str = "object"
    ) -> None:
        self.accepts = accepts
        self.read = read
        self.annotation = annotation


class _Range(NamedTuple):
    """The numbers from ``low`` to ``high``, both included, and the numbers in ``also``."""

    low: int
    high: int
    also: tuple[int, ...] = ()

    def check(self, value: Number) -> Number:
        return _checked(value, self.low <= value <= self.high or value in self.also)

    def __str__(self) -> str:
        open_ended = self.high in (INT32_MAX, INT64_MAX)
        words = f"of {self.low} or more" if open_ended else f"from {self.low} to {self.high}"
        return " or ".join([words, *map(str, self.also)])


def integer(low: int, high: int = INT32_MAX, also: tuple[int, ...] = ()) -> Kind[int]:
    accepted = _Range(low, high, also)

    def read(value: object) -> int:
        return accepted.check(int(value.strip()) if isinstance(value, str) else _index(value))

    return Kind(f"a whole number {accepted}", read, "int")


def number(low: int, high: int) -> Kind[float]:
    accepted = _Range(low, high)

    def read(value: object) -> float:
        if not isinstance(value, (str, float)):
            return accepted.check(_index(value))
        number = _checked(float(value), math.isfinite(float(value)))
        return accepted.check(int(number) if number.is_integer() else number)

    return Kind(f"a number {accepted}", read, "float")


def _read_share(value: object) -> float:
    share = number(0, 1).read(value)
    return _checked(share, share >= 1e-9)


def _read_acks(value: object) -> int:
    if isinstance(value, str):
        return {"all": -1, "-1": -1, "0": 0, "1": 1}[value.strip().lower()]
    return _Range(-1, 1).check(_index(value))


ACKS = Kind("all (or -1), 1 or 0", _read_acks, "int | Literal['all']")


def _index(value: object) -> int:
    """The value of an int-like object (numpy's integers too), but not of a bool."""
    if isinstance(value, bool):
        raise TypeError(value)
    return operator.index(value)  # type: ignore[arg-type]  # refuses everything else itself


Number = TypeVar("Number", int, float)


def _checked(value: T, accepted: object) -> T:
    if not accepted:
        raise ValueError(value)
    return value


def _instance_of(kind: type[T]) -> Callable[[object], T]:
    def read(value: object) -> T:
        if isinstance(value, kind):
            return value
        raise TypeError(value)

    return read


_string = _instance_of(str)


def _stripped(value: object) -> str:
    return _string(value).strip()


def _filled(value: object) -> str:
    return _checked(_stripped(value), _stripped(value))


def _read_boolean(value: object) -> bool:
    words = {"true": True, "false": False}
    return value if isinstance(value, bool) else words[_stripped(value).lower()]


def _read_path(value: object) -> Path:
    return Path(_filled(value) if isinstance(value, str) else _checked(value, value))  # type: ignore[arg-type]  # Path refuses everything else


TEXT = Kind("a string", _stripped, "str")
VERBATIM = Kind("a string", _string, "str")  # a password: blanks at its ends are a part of it
FILLED_TEXT = Kind("a string that is not empty", _filled, "str")
PEM = Kind(
    "PEM text, with -----BEGIN ...-----",
    lambda value: _checked(_stripped(value), "-----BEGIN " in _string(value)),
    "str",
)
BOOLEAN = Kind("true or false", _read_boolean, "bool")
PATH = Kind("a path", _read_path, "str | PathLike[str]")
SHARE = Kind("a number from 1e-9 to 1", _read_share, "float")


def one_of(*accepted: str, ignore_case: bool = False) -> Kind[str]:
    """One of these words; the value has the spelling given here."""
    fold: Callable[[str], str] = str.lower if ignore_case else str
    spellings = {fold(word): word for word in accepted}
    return Kind(
        "one of " + ", ".join(word or "an empty string" for word in accepted),
        lambda value: spellings[fold(_stripped(value))],
        "str" if ignore_case else f"Literal{list(accepted)}",
    )


def some_of(*accepted: str) -> Kind[tuple[str, ...]]:
    def read(value: object) -> tuple[str, ...]:
        given = value.split(",") if isinstance(value, str) else value
        if not isinstance(given, (list, tuple)):
            raise TypeError(value)
        words = {word.strip() for word in given}
        _checked(words, words and words <= set(accepted))
        return tuple(word for word in accepted if word in words)

    return Kind("one or more of " + ", ".join(accepted), read, "str | Sequence[str]")


def optional(kind: Kind[T]) -> Kind[T | None]:
    return Kind(
        f"{kind.accepts}, or None",
        lambda value: None if value is None else kind.read(value),
        f"{kind.annotation} | None",
    )


SSL_CONTEXT = Kind("an ssl.SSLContext", _instance_of(ssl.SSLContext), "ssl.SSLContext")


# A module and a name in it. The colon keeps a token that was given by mistake out of messages: no
# token has one.
_PROVIDER_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def _read_token_provider(value: object) -> object:
    if isinstance(value, str):
        return _checked(value.strip(), _PROVIDER_PATH.fullmatch(value.strip()))
    has_token = callable(value) or callable(getattr(value, "token", None))
    return _checked(value, has_token and not isinstance(value, type))


TOKEN_PROVIDER: Kind[Any] = Kind(
    "an async function () -> Token, an object with such a method token, or the path of one of the "
    "two as 'package.module:name'",
    _read_token_provider,
    "TokenProvider | Callable[[], Awaitable[Token]] | str",
)

# RFC 7628's extensions.
EXTENSION_NAME = re.compile(r"[A-Za-z]+")
EXTENSION_VALUE = re.compile(r"[\x20-\x7E\t\r\n]+")


def _read_extensions(value: object) -> Mapping[str, str]:
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        value = {name.strip(): text.strip() for name, _, text in pairs}
    if not isinstance(value, Mapping):
        raise TypeError(value)
    for name, text in value.items():
        _checked(name, EXTENSION_NAME.fullmatch(_string(name)) and name != "auth")
        _checked(text, EXTENSION_VALUE.fullmatch(_string(text)))
    return dict(value)


SASL_EXTENSIONS: Kind[Mapping[str, str]] = Kind(
    "a dict of names (letters) and values, or text such as 'logicalCluster=lkc-1,identityPoolId="
    "pool-1'",
    _read_extensions,
    "Mapping[str, str] | str",
)

_HOST_NAME = re.compile(
    r"[A-Za-z0-9_](?:[-.\w]*\w)?\.?|[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*", re.ASCII
)
HOST_NAME = Kind(
    "a host name, without a port",
    lambda value: _checked(_stripped(value), _HOST_NAME.fullmatch(_stripped(value))),
    "str",
)


def name_or_object(names: tuple[str, ...], method: str, call: str, annotation: str) -> Kind[Any]:
    """One of ``names``, or an object with this method, which is not a coroutine function. ``call``
    is the method's signature, ``annotation`` the object's type. The class of such an object is
    refused, because it is a mistake.
    """

    def read(value: object) -> object:
        if isinstance(value, str):
            return _checked(value.strip(), value.strip() in names)
        given = getattr(value, method, None)
        usable = callable(given) and not iscoroutinefunction(given)
        return _checked(value, usable and not isinstance(value, type))

    accepts = f"one of {', '.join(names)}, or an object with a method {method}{call}"
    return Kind(accepts, read, f"Literal{list(names)} | {annotation}")


def serializer(call: str, annotation: str, method: str = "serialize(value, context)") -> Kind[Any]:
    """A callable, maybe a coroutine function, or an object with this ``method``. The class of such
    an object is refused, because it is a mistake."""
    name = method.partition("(")[0]

    def read(value: object) -> object:
        has_context = callable(getattr(value, name, None))
        usable = not isinstance(value, type) if has_context else callable(value)
        return _checked(value, usable)

    return Kind(f"a function {call}, or an object with a method {method}", read, annotation)


def _read_error_policy(value: object) -> object:
    return _checked(value, value in ("fail", "skip") or callable(value))


ERROR_POLICY: Kind[Any] = Kind(
    "'fail', 'skip', DeadLetters(producer, topic), or another function (record, error)",
    _read_error_policy,
    "Literal['fail', 'skip'] | Callable[[Any, Any], object]",
)


_HOOKS = (
    *("on_start", "on_batch", "on_request"),
    *("on_consume", "on_commit", "on_assigned", "on_revoked", "on_lost"),
)


def _read_hooks(value: object) -> tuple[Hooks, ...]:
    given = value if isinstance(value, (list, tuple)) else (value,)
    for hooks in given:
        methods = (getattr(hooks, name, None) for name in _HOOKS)
        _checked(hooks, isinstance(hooks, Hooks) and not any(map(iscoroutinefunction, methods)))
    return tuple({id(hooks): hooks for hooks in given}.values())  # an object sees nothing twice


HOOKS = Kind("a kafkaclient.hooks.Hooks, or a list of them", _read_hooks, "Hooks | Sequence[Hooks]")


def function(call: str) -> Kind[Callable[..., Any]]:
    """A callable that is not a coroutine function; ``call`` is its signature."""

    def read(value: object) -> Callable[..., Any]:
        if callable(value) and not iscoroutinefunction(value):
            return value
        raise TypeError(value)

    return Kind(f"a function {call}", read, "Callable[[Any], object]")


# An optional scheme, as Java's ClientUtils accepts it, then a name or an address, then the port.
_ADDRESS = re.compile(
    r"(?:(?:SASL_)?(?:PLAINTEXT|SSL)://)?(?:\[([0-9A-Fa-f:.%\w]+)\]|([-.\w]+)):([0-9]{1,5})"
)


def _read_addresses(value: object) -> tuple[Address, ...]:
    """Broker addresses, in order and without repetitions."""
    if isinstance(value, str):
        given: Iterable[object] = [part for part in value.split(",") if part.strip()]
    elif isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping)):
        given = value
    else:
        raise TypeError(value)
    found = tuple(dict.fromkeys(map(_address, given)))
    return _checked(found, found)


def _address(item: object) -> Address:
    if isinstance(item, str):
        match = _ADDRESS.fullmatch(item.strip())
        if match is None:
            raise ValueError(item)
        host, port = match[1] or match[2], int(match[3])
    elif isinstance(item, (list, tuple)) and len(item) == 2 and isinstance(item[0], str):
        host, port = item[0], _index(item[1])
    else:
        raise TypeError(item)
    return _checked(host, host), _Range(1, 65535).check(port)


ADDRESSES = Kind(
    "host:port of one broker or more, as 'a:9092,b:9092' or a list (an IPv6 address "
    "in brackets: '[::1]:9092')",
    _read_addresses,
    "str | Iterable[str | tuple[str, int]]",
)
