"""Chooses between two forms of the modules that have a compiled one: all compiled, or all pure.

``x.py`` is the pure-Python form, and the module that others import. ``_x`` is the compiled form.
Its source is ``x.py`` with the C types of ``_x.pxd``, or a second implementation in ``_x.pyx``.
Compiled modules know each other's types: none of them works with the pure form of another.
"""

from __future__ import annotations

import logging
import os
import sys
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

__all__ = [
    "COMPILED",
    "FORCE_PURE_PYTHON",
    "cython",
    "load_form",
    "log_pure_python",
    "use_compiled",
    "why_pure_python",
]

T = TypeVar("T")

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
    "kafkaclient.wire._record_buffer",
    "kafkaclient.wire._record_columns",
)
"""The compiled forms. If one of them is missing, none is used."""


def use_compiled(module: dict[str, Any]) -> None:
    """Replace a module's public names by those of its compiled form, if compiled forms are used.

    The last line of ``x.py`` calls it with ``globals()``. The same line in ``_x`` does nothing.
    """
    package, _, name = module["__name__"].rpartition(".")
    if not name.startswith("_") and why_pure_python() is None:
        compiled = import_module(f"{package}._{name}")
        module.update({public: getattr(compiled, public) for public in module["__all__"]})


def load_form(name: str, *, compiled: bool) -> ModuleType:
    """A private copy of a module in one of its two forms, for tests: all modules with a compiled
    form that the copy imports have the same form. Pure Python where nothing is compiled."""
    sources = [name, *(module.replace("._", ".") for module in COMPILED)]
    kept = {source: import_module(source) for source in sources}
    forced = os.environ.get(FORCE_PURE_PYTHON, "0")
    os.environ[FORCE_PURE_PYTHON] = "0" if compiled else "1"
    why_pure_python.cache_clear()
    for source in kept:
        del sys.modules[source]
    try:
        return import_module(name)
    finally:
        os.environ[FORCE_PURE_PYTHON] = forced
        why_pure_python.cache_clear()
        for source, module in kept.items():
            package, _, leaf = source.rpartition(".")
            sys.modules[source] = module
            setattr(sys.modules[package], leaf, module)


class cython:
    """What sources of both forms need of Cython's module of this name in pure Python."""

    compiled = False

    @staticmethod
    def freelist(_: int) -> Callable[[T], T]:
        return cython.cclass

    @staticmethod
    def cclass(kind: T) -> T:
        return kind

    no_gc_clear = cclass


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
