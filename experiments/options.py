"""Checks of an experiment's options. Each raises ConfigError, naming the option."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "STREAMS",
    "Listed",
    "check_libraries",
    "check_positive",
    "check_record_size",
    "chosen",
    "parse_peers",
    "words",
]

_LIBRARIES = {"plotly": "demo", "aiokafka": "demo", "psutil": "demo"}
"""Every experiment needs these modules: module -> the extra that installs it."""


STREAMS = {"rocksdict": "streams"}
"""The modules of experiments with streams applications."""


class Listed(NamedTuple):
    """Metadata of a plan's field: an option whose text, such as ``10,100``, ``parse`` reads."""

    parse: Callable[[str], Any]
    help: str
    default: str | None = None
    """The text of the default; None: the words of the field's default, joined by commas."""


def check_libraries(libraries: Mapping[str, str] = _LIBRARIES) -> None:
    """Raise ConfigError for the first module (with its extra) that is not installed."""
    for module, extra in libraries.items():
        if find_spec(module) is None:
            raise ConfigError(
                f"the experiment needs {module}, which is not installed: "
                f"pip install 'kafkaclient[{extra}]'"
            )


def check_positive(**options: float) -> None:
    """Raise ConfigError for a value of 0 or less; ``record_size`` is the option --record-size."""
    for name, value in options.items():
        if value <= 0:
            raise ConfigError(f"--{name.replace('_', '-')} must be more than 0, not {value:g}")


def check_record_size(size: int, smallest: int) -> None:
    """Raise ConfigError for records that have no room for their number."""
    if size < smallest:
        raise ConfigError(
            f"--record-size must be at least {smallest}, not {size}: records are numbered, to be "
            "told apart when they are read back"
        )


def words(text: str) -> tuple[str, ...]:
    """The different words of a text in which commas separate them."""
    return tuple(dict.fromkeys(word for part in text.split(",") if (word := part.strip())))


def chosen(option: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    """The words of ``text``, each of which is in ``known``; at least one."""
    found = words(text)
    if not found or not set(found) <= set(known):
        raise ConfigError(f"{option}: {', '.join(known)}, joined by commas, not {text!r}")
    return found


def parse_peers(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """The peers of ``text``; none for an empty text and for ``none``."""
    found = words(text)
    if found in ((), ("none",)):
        return ()
    for name in found:
        if name not in known:
            raise ConfigError(
                f"--peers: no peer {name!r}; there are {', '.join(known)}, and none for no peers"
            )
    return found
