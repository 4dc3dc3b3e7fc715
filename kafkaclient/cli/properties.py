"""Producer options as Kafka's tools take them: ``.properties`` files and ``name=value`` words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["parse_properties", "read_properties", "split_pairs"]

_PAIR = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path) -> dict[str, str]:
    """The options in a Java properties file. Raises :class:`ConfigError` when unreadable."""
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the options in {path}: {error}") from error


def parse_properties(text: str) -> dict[str, str]:
    """Java's ``Properties.load``: comments, ``=`` ``:`` or blanks between, escapes, long lines."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        pair = _PAIR.fullmatch(line)
        if pair is not None:
            properties[_unescaped(pair[1])] = _unescaped(pair[2])
    return properties


def split_pairs(words: Iterable[str]) -> dict[str, str]:
    """``name=value`` words as a dict. Raises :class:`ConfigError` for a word without ``=``."""
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise ConfigError(f"{word!r} is not an option of the form name=value")
        pairs[name] = value
    return pairs


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for raw in text.splitlines():
        line = raw.lstrip()
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_character, text)


def _character(escape: re.Match[str]) -> str:
    if escape[1]:
        return chr(int(escape[1], 16))
    return _CONTROL.get(escape[2], escape[2])
