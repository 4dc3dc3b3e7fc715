"""Producer options as Kafka's tools take them: ``.properties`` files and ``name=value`` words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import javaproperties

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["read_properties", "split_pairs"]


def read_properties(path: Path) -> dict[str, str]:
    """The options in a Java properties file. Raises :class:`ConfigError` when unreadable."""
    try:
        return javaproperties.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # not UTF-8, or an escape sequence that Java refuses
        raise ConfigError(f"cannot read the options in {path}: {error}") from error


def split_pairs(words: Iterable[str]) -> dict[str, str]:
    """``name=value`` words as a dict. Raises :class:`ConfigError` for a word without ``=``."""
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise ConfigError(f"{word!r} is not an option of the form name=value")
        pairs[name] = value
    return pairs
