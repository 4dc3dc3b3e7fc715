"""Client options as Kafka's tools take them: ``.properties`` files and ``NAME=VALUE`` words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import javaproperties

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

BOOTSTRAP = "bootstrap.servers"


def read_properties(path: Path) -> dict[str, str]:
    """The options in a Java properties file. Raises :class:`ConfigError` when unreadable."""
    try:
        return javaproperties.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # not UTF-8, or an escape sequence that Java refuses
        raise ConfigError(f"cannot read the options in {path}: {error}") from error


def pairs(words: Iterable[str] | None, flag: str, *, strip: bool = False) -> dict[str, str]:
    """The ``NAME=VALUE`` words of a flag. Raises :class:`ConfigError` for any other word.

    ``strip``: remove spaces around names and values.
    """
    found: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if strip:
            name, value = name.strip(), value.strip()
        if not (name and equals):
            raise ConfigError(f"{flag} takes NAME=VALUE, not {word!r}")
        found[name] = value
    return found


def comma_pairs(words: Iterable[str] | None, flag: str) -> dict[str, str]:
    """As :func:`pairs`, for flags of Kafka's tools that take several pairs, joined by commas.

    A value that has commas is given in square brackets: ``a=[1,2],b=3``. Raises
    :class:`ConfigError` also for a name that is given twice.
    """
    found: dict[str, str] = {}
    for part in (part for word in words or () for part in _split(word)):
        if found and "=" not in part:
            last = list(found)[-1]
            raise ConfigError(
                f"{flag} takes NAME=VALUE, not {part!r}. A value with commas is given in square "
                f"brackets: {last}=[{found[last]},{part}]"
            )
        [(name, value)] = pairs([part], flag, strip=True).items()
        if name in found:
            raise ConfigError(f"{flag} {name} is given twice")
        found[name] = value[1:-1] if value[:1] == "[" and value[-1:] == "]" else value
    return found


def _split(text: str) -> list[str]:
    """The parts between commas that are outside of square brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part.strip()]
