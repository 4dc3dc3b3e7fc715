"""The reference page of all options, written from their declarations."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from typing import TYPE_CHECKING

from kafkaclient.config.options import REQUIRED, Option
from kafkaclient.config.producer import ProducerConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = """\
# Configuration

<!-- Written by `python -m kafkaclient.config` from the declarations in the code: do not edit. -->

Give options by keyword, `Producer("localhost:9092", linger_ms=5)`, or as a mapping with Kafka's
dotted names, `Producer({"bootstrap.servers": "localhost:9092", "linger.ms": 5})`. Both forms accept
both spellings. Text values are read as in Java's property files (`"5"`, `"true"`, `"all"`). The
defaults are those of the Java producer 4.3 unless the option says otherwise. An unknown option, a
wrong type, a value out of range and conflicting options raise `ConfigError` when the producer is
created.
"""


def render_reference() -> str:
    """The text of docs/reference/producer-options.md."""
    return "\n".join([_HEAD, *_sections(), ""]).rstrip("\n") + "\n"


def _sections() -> Iterator[str]:
    sections: dict[str, list[str]] = {}
    texts = _texts(ProducerConfig)
    for option in ProducerConfig.OPTIONS.values():
        sections.setdefault(option.section, []).append(_entry(option, texts[option.name]))
    for section, entries in sections.items():
        yield f"## {section}\n"
        yield from entries


def _texts(config: type) -> dict[str, str]:
    """The text after each option's declaration in the source."""
    texts: dict[str, str] = {}
    for base in reversed(config.__mro__[:-1]):
        (definition,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(definition, ast.ClassDef)
        for field, after in pairwise(definition.body):
            match field, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    texts[name] = " ".join(text.split())
    return texts


def _entry(option: Option, text: str) -> str:
    names = ", ".join(f"`{name}`" for name in (option.kafka_name, *option.aliases))
    accepts = option.kind.accepts.removesuffix(", or None")
    return (
        f"### `{option.name}`\n\n"
        f"{text}\n\n"
        f"- Dotted: {names}\n"
        f"- Accepts: {accepts}\n"
        f"- Default: {_default(option)}\n"
    )


def _default(option: Option) -> str:
    if option.default is REQUIRED:
        return "none; it must be given"
    if option.name == "acks":
        return "`all`"
    if option.default in (None, "", ()):
        return "none"
    if isinstance(option.default, tuple):
        return f"`{','.join(option.default)}`"
    return (
        f"`{str(option.default).lower() if isinstance(option.default, bool) else option.default}`"
    )
