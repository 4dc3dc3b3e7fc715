"""Chooses between the compiled modules and their pure-Python twins: all of one kind.

Compiled modules know each other's types: one of them does not work with the twin of another.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["COMPILED", "FORCE_PURE_PYTHON", "load_twin", "log_pure_python", "why_pure_python"]

_log = logging.getLogger(__name__)

FORCE_PURE_PYTHON = "KAFKACLIENT_PURE_PYTHON"
"""Environment variable: any non-empty value but 0 keeps the compiled modules out of use."""

COMPILED = (
    "kafkaclient.metrics._stats",
    "kafkaclient.producer.bulk._rows",
    "kafkaclient.producer.bulk._arrow_rows",
    "kafkaclient.producer.batches._delivery",
    "kafkaclient.producer.batches._direct_append",
    "kafkaclient.wire._murmur2",
    "kafkaclient.wire._produce",
    "kafkaclient.wire._reader",
    "kafkaclient.wire._record_columns",
    "kafkaclient.wire._records",
)
"""The modules that have a twin, ``name + "_py"``. One that is missing keeps all out of use."""


def load_twin(name: str) -> tuple[ModuleType, bool]:
    """The module ``name``, or ``name + "_py"``, and whether it is the compiled one."""
    if why_pure_python() is None:
        return import_module(name), True
    return import_module(f"{name}_py"), False


@cache
def why_pure_python() -> str | None:
    """Why the compiled modules are not used; None when they are."""
    if os.environ.get(FORCE_PURE_PYTHON, "0") not in ("", "0"):
        return f"{FORCE_PURE_PYTHON} is set"
    missing = _missing(Path(__file__).parent)
    if missing:
        if len(missing) == len(COMPILED):
            return "they were not built"
        return f"not all of them were built, missing: {', '.join(missing)}"
    if not _in_main_interpreter():
        return "they can be loaded into a process's main interpreter only"
    return None


@cache
def log_pure_python() -> None:
    """Say once in the log that the compiled modules are not used, and why."""
    why = why_pure_python()
    if why is not None:
        level = logging.INFO if why.startswith(FORCE_PURE_PYTHON) else logging.WARNING
        _log.log(level, "running without compiled modules, several times slower: %s", why)


def _missing(package: Path) -> list[str]:
    """Which compiled modules cannot be found in the package's folder; none of them is loaded."""
    missing = []
    for name in COMPILED:
        folders = name.split(".")[1:-1]
        if PathFinder.find_spec(name, [str(package.joinpath(*folders))]) is None:
            missing.append(name)
    return missing


def _in_main_interpreter() -> bool:
    for name in ("_interpreters", "_xxsubinterpreters"):  # the latter before Python 3.13
        try:
            interpreters = import_module(name)
        except ImportError:
            continue
        return bool(interpreters.get_current() == interpreters.get_main())
    return True
