"""How options are declared, and how a user's values are checked against the declarations."""

from __future__ import annotations

import dataclasses
import reprlib
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from kafkaclient.config.unsupported import refuse_unsupported
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkaclient.config.kinds import Kind

_KEY = "kafkaclient.option"

REQUIRED: Any = dataclasses.MISSING
"""The default of an option that must be given."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of an option; ``name`` is Python's spelling, ``kafka_name`` is dotted."""

    name: str
    kind: Kind[Any]
    default: Any
    section: str
    aliases: tuple[str, ...]
    secret: bool = False
    """Whether the option's value is never shown."""

    @property
    def kafka_name(self) -> str:
        return self.name.replace("_", ".")

    @property
    def spellings(self) -> tuple[str, ...]:
        dotted = (self.kafka_name, *self.aliases)
        return (self.name, *dotted, *(alias.replace(".", "_") for alias in self.aliases))


@dataclass(frozen=True, slots=True)
class Given:
    """A user's value for an option, and the option's name in the user's spelling."""

    spelling: str
    value: Any
    secret: bool = False

    def __str__(self) -> str:
        return f"{self.spelling}={show(self.value, secret=self.secret)}"

    __repr__ = __str__


class Section(str):
    """A heading of the reference page; declares the options under this heading."""

    __slots__ = ()

    def option(
        self,
        default: T,
        kind: Kind[T],
        *,
        aliases: tuple[str, ...] = (),
        secret: bool = False,
    ) -> T:
        """Declare a field of an options dataclass; ``aliases`` are further dotted names. The text
        after the field is its entry on the page of options (docsite/options.py).
        """
        metadata = {_KEY: (kind, self, aliases, secret)}
        return dataclasses.field(default=default, metadata=metadata)


def options_of(config: type) -> Mapping[str, Option]:
    """The options that a dataclass declares, by Python name, in order of declaration. The options
    of its root class come last.
    """
    root = [base for base in config.__mro__ if dataclasses.is_dataclass(base)][-1]
    last = {field.name for field in dataclasses.fields(root)}
    options = {}
    for field in sorted(dataclasses.fields(config), key=lambda each: each.name in last):
        kind, section, aliases, secret = field.metadata[_KEY]
        options[field.name] = Option(field.name, kind, field.default, section, aliases, secret)
    return MappingProxyType(options)


def read_options(
    options: Mapping[str, Option], sources: Iterable[Mapping[str, object]]
) -> dict[str, Given]:
    """The checked values of all sources, by Python name. Raises ConfigError."""
    by_spelling = {name: option for option in options.values() for name in option.spellings}
    given: dict[str, Given] = {}
    for source in sources:
        for spelling, value in source.items():
            if not isinstance(spelling, str):
                raise ConfigError(f"option names are strings, not {show(spelling)}")
            if (option := by_spelling.get(spelling)) is None:
                if not refuse_unsupported(spelling, value):
                    raise ConfigError(_unknown(spelling, by_spelling))
                continue
            now = Given(spelling, _read(option, spelling, value), option.secret)
            before = given.setdefault(option.name, now)
            if before.value != now.value:
                raise ConfigError(
                    f"{before} and {now} name the same option with different values; give one"
                )
    return given


def _read(option: Option, spelling: str, value: object) -> Any:
    try:
        return option.kind.read(value)
    except (ValueError, TypeError, LookupError):
        raise ConfigError(
            f"{spelling}={show(value, secret=option.secret)} is not accepted: give "
            f"{option.kind.accepts}"
        ) from None


def _unknown(spelling: str, known: Iterable[str]) -> str:
    """The message names the closest option, with dots if the user wrote dots."""
    dotted = "." in spelling
    candidates = [name for name in known if ("." in name) == dotted or name.isalpha()]
    from difflib import get_close_matches  # noqa: PLC0415 - for this message alone

    close = get_close_matches(spelling.lower(), candidates, n=1, cutoff=0.6)
    if close:
        return f"unknown option {spelling}: did you mean {close[0]}?"
    return f"unknown option {spelling}: none of kafkaclient's options has a similar name"


_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 80


def show(value: object, *, secret: bool = False) -> str:
    """A value for messages: long values are shortened, functions are named, secrets are hidden."""
    if secret:
        return "[hidden]"
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    return _repr.repr(value)
