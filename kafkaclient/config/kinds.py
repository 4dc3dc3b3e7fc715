"""Kinds of option values: how a value is read, and the words for what is accepted.

Values come from Python code (``linger_ms=5``) and from property files, where everything is text;
text is read as Java's ``ConfigDef.parseType`` does. A bool is never taken for a number.
"""

from __future__ import annotations

import math
import operator
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "INT32_MAX",
    "INT64_MAX",
    "Address",
    "Kind",
    "Range",
    "acknowledgements",
    "addresses",
    "at_least",
    "between",
    "boolean",
    "filled_text",
    "function",
    "integer",
    "name_or_object",
    "number",
    "one_of",
    "one_of_ignoring_case",
    "optional",
    "path",
    "pem",
    "some_of",
    "ssl_context",
    "text",
    "token_provider",
    "verbatim",
]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

Address: TypeAlias = tuple[str, int]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """``read`` turns what the user gave into a value; ValueError or TypeError refuses it."""

    accepts: str
    read: Callable[[object], T]


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from ``low`` to ``high``, both included, and those of ``also``."""

    low: int
    high: int
    also: tuple[int, ...] = ()

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high or value in self.also

    def __str__(self) -> str:
        open_ended = self.high in (INT32_MAX, INT64_MAX)
        words = f"of {self.low} or more" if open_ended else f"from {self.low} to {self.high}"
        return " or ".join([words, *map(str, self.also)])


def at_least(low: int, high: int = INT32_MAX) -> Range:
    """``low`` or more, within Java's ``int`` unless ``high`` says otherwise."""
    return Range(low, high)


def between(low: int, high: int, also: tuple[int, ...] = ()) -> Range:
    return Range(low, high, also)


def integer(accepted: Range) -> Kind[int]:
    def read(value: object) -> int:
        number = int(value.strip()) if isinstance(value, str) else _index(value)
        return _within(accepted, number)

    return Kind(f"a whole number {accepted}", read)


def number(accepted: Range) -> Kind[float]:
    def read(value: object) -> float:
        if not isinstance(value, (str, float)):
            return _within(accepted, _index(value))
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(value)
        return _within(accepted, int(number) if number.is_integer() else number)

    return Kind(f"a number {accepted}", read)


def boolean() -> Kind[bool]:
    def read(value: object) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str):
            return {"true": True, "false": False}[value.strip().lower()]
        raise TypeError(value)

    return Kind("true or false", read)


def text() -> Kind[str]:
    def read(value: object) -> str:
        if isinstance(value, str):
            return value.strip()
        raise TypeError(value)

    return Kind("a string", read)


def verbatim() -> Kind[str]:
    """Text of which blanks at the ends are a part: a password."""

    def read(value: object) -> str:
        if isinstance(value, str):
            return value
        raise TypeError(value)

    return Kind("a string", read)


def pem() -> Kind[str]:
    def read(value: object) -> str:
        if isinstance(value, str) and "-----BEGIN " in value:
            return value.strip()
        raise ValueError

    return Kind("PEM text, with -----BEGIN ...-----", read)


def filled_text() -> Kind[str]:
    def read(value: object) -> str:
        if isinstance(value, str) and value.strip():
            return value.strip()
        raise TypeError(value)

    return Kind("a string that is not empty", read)


def path() -> Kind[Path]:
    def read(value: object) -> Path:
        if isinstance(value, str):
            value = value.strip()
        if not value:
            raise ValueError(value)
        return Path(value)  # type: ignore[arg-type]  # refuses everything else itself

    return Kind("a path", read)


def one_of(*accepted: str) -> Kind[str]:
    def read(value: object) -> str:
        if isinstance(value, str) and value.strip() in accepted:
            return value.strip()
        raise ValueError(value)

    return Kind("one of " + ", ".join(accepted), read)


def one_of_ignoring_case(*accepted: str) -> Kind[str]:
    """One of these in any case; the value is the spelling given here."""
    spellings = {spelling.lower(): spelling for spelling in accepted}

    def read(value: object) -> str:
        if isinstance(value, str):
            return spellings[value.strip().lower()]
        raise TypeError(value)

    return Kind("one of " + ", ".join(word or "an empty string" for word in accepted), read)


def some_of(*accepted: str) -> Kind[tuple[str, ...]]:
    def read(value: object) -> tuple[str, ...]:
        given = value.split(",") if isinstance(value, str) else value
        if not isinstance(given, (list, tuple)):
            raise TypeError(value)
        words = [word.strip() for word in given]
        if not words or any(word not in accepted for word in words):
            raise ValueError(value)
        return tuple(word for word in accepted if word in words)

    return Kind("one or more of " + ", ".join(accepted), read)


def ssl_context() -> Kind[ssl.SSLContext]:
    def read(value: object) -> ssl.SSLContext:
        if isinstance(value, ssl.SSLContext):
            return value
        raise TypeError(value)

    return Kind("an ssl.SSLContext", read)


def token_provider() -> Kind[Any]:
    """An async function, or an object with an async method ``token`` (its class is a mistake)."""

    def read(value: object) -> object:
        if isinstance(value, (str, type)):
            raise TypeError(value)
        if callable(value) or callable(getattr(value, "token", None)):
            return value
        raise TypeError(value)

    return Kind("an async function () -> Token, or an object with such a method token", read)


def name_or_object(names: tuple[str, ...], method: str, call: str) -> Kind[Any]:
    """One of ``names``, or an object with a method of that name that is not a coroutine function;
    ``call`` shows its signature. The class of such an object is a mistake, and is refused."""

    def read(value: object) -> object:
        if isinstance(value, str) and value.strip() in names:
            return value.strip()
        if isinstance(value, (str, type)):
            raise TypeError(value)
        given = getattr(value, method, None)
        if not callable(given) or iscoroutinefunction(given):
            raise TypeError(value)
        return value

    return Kind(f"one of {', '.join(names)}, or an object with a method {method}{call}", read)


def acknowledgements() -> Kind[int]:
    def read(value: object) -> int:
        if isinstance(value, str):
            return {"all": -1, "-1": -1, "0": 0, "1": 1}[value.strip().lower()]
        return _within(between(-1, 1), _index(value))

    return Kind("all (or -1), 1 or 0", read)


def function(call: str) -> Kind[Callable[..., Any]]:
    """A callable, not a coroutine function; ``call`` shows its signature."""

    def read(value: object) -> Callable[..., Any]:
        if callable(value) and not iscoroutinefunction(value):
            return value
        raise TypeError(value)

    return Kind(f"a function {call}", read)


def optional(kind: Kind[T]) -> Kind[T | None]:
    def read(value: object) -> T | None:
        return None if value is None else kind.read(value)

    return Kind(f"{kind.accepts}, or None", read)


# An optional scheme, as Java's ClientUtils accepts it, then a name or an address, then the port.
_ADDRESS = re.compile(
    r"(?:(?:SASL_)?(?:PLAINTEXT|SSL)://)?(?:\[([0-9A-Fa-f:.%\w]+)\]|([-.\w]+)):([0-9]{1,5})"
)


def addresses() -> Kind[tuple[Address, ...]]:
    """Broker addresses, in order and without repetitions."""

    def read(value: object) -> tuple[Address, ...]:
        if isinstance(value, str):
            given: Iterable[object] = [part for part in value.split(",") if part.strip()]
        elif isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping)):
            given = value
        else:
            raise TypeError(value)
        found = dict.fromkeys(_address(item) for item in given)
        if not found:
            raise ValueError(value)
        return tuple(found)

    return Kind(
        "host:port of one broker or more, as 'a:9092,b:9092' or a list (an IPv6 address "
        "in brackets: '[::1]:9092')",
        read,
    )


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
    if not host:
        raise ValueError(item)
    return host, _within(between(1, 65535), port)


Number = TypeVar("Number", int, float)


def _within(accepted: Range, value: Number) -> Number:
    if value not in accepted:
        raise ValueError(value)
    return value


def _index(value: object) -> int:
    """The value of an int-like object (numpy's integers too), but not of a bool."""
    if isinstance(value, bool):
        raise TypeError(value)
    return operator.index(value)  # type: ignore[arg-type]  # refuses everything else itself
