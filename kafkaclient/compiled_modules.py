"""Decides whether the compiled modules are used: all of them, or none (:func:`why_pure_python`).

``x.py`` is the pure-Python form, which other modules import. ``_x`` is the compiled form. Its
source is ``x.py`` with the C types of ``_x.pxd``, or a second implementation in ``_x.pyx``. A
compiled module uses the types of other compiled modules, and does not work with their pure forms.
None is used if one is missing. One that exists but cannot be loaded raises its ImportError.

To add one: its name in ``COMPILED``, its source in the list of ``setup.py``, ``__all__`` and at the
end ``use_compiled(globals())`` in ``x.py``, ``_x.pxd`` or ``_x.pyx`` beside it, and an empty
``__init__.pxd`` in each package above it.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


T = TypeVar("T")

_log = logging.getLogger(__name__)

FORCE_PURE_PYTHON = "KAFKACLIENT_PURE_PYTHON"
"""Environment variable: with any value except 0, the compiled modules are not used."""

COMPILED = (
    "kafkaclient.metrics._stats",
    "kafkaclient.perf._slices",
    "kafkaclient.producer.bulk._rows",
    "kafkaclient.producer.bulk._arrow_rows",
    "kafkaclient.producer.batches._delivery",
    "kafkaclient.producer.batches._direct_append",
    "kafkaclient.producer.batches._waiters",
    "kafkaclient.wire._murmur2",
    "kafkaclient.wire._produce",
    "kafkaclient.wire._reader",
    "kafkaclient.wire._record_buffer",
    "kafkaclient.wire._record_columns",
    "kafkaclient.wire._records",
)
"""The compiled forms. If one of them is missing, none is used."""


def use_compiled(module: dict[str, Any]) -> None:
    """Replace a module's public names by the names of its compiled form, if compiled modules are
    used.

    The last line of ``x.py`` calls it with ``globals()``. The same line in ``_x`` does nothing.
    """
    package, _, name = module["__name__"].rpartition(".")
    if not name.startswith("_") and why_pure_python() is None:
        compiled = import_module(f"{package}._{name}")
        module.update({public: getattr(compiled, public) for public in module["__all__"]})


class cython:
    """The part of Cython's module ``cython`` that pure-Python forms use."""

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
    """Log once that the compiled modules are not used, and why."""
    why = why_pure_python()
    if why is not None:
        level = logging.INFO if why.startswith(FORCE_PURE_PYTHON) else logging.WARNING
        _log.log(level, "running without compiled modules, several times slower: %s", why)


def _missing(package: Path) -> list[str]:
    """The compiled modules that are not in the package's folder. This loads no module."""
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
