"""Decides which compiled modules are used. There are two groups, each used whole or not at all.

The modules of ``COMPILED`` (Cython) do the work for each record (:func:`why_pure_python`). The
modules of ``NATIVE`` (mypyc) do the work for each batch. They are used only together with the first
group (:func:`choose_native`).

In ``COMPILED``, ``x.py`` is the pure-Python form, which other modules import. ``_x`` is the
compiled form. Its source is ``x.py`` with the C types of ``_x.pxd``, or a second implementation in
``_x.pyx``. A compiled module uses the types of other compiled modules, and does not work with their
pure forms. None is used if one is missing, or, in a source tree, older than its source. One that
exists but cannot be loaded raises its ImportError.

To add one: its name in ``COMPILED``, its source in the list of ``setup.py``, ``__all__`` and at the
end ``use_compiled(globals())`` in ``x.py``, ``_x.pxd`` or ``_x.pyx`` beside it, and an empty
``__init__.pxd`` in each package above it. To add a module to ``NATIVE``, its name is enough.
"""

from __future__ import annotations

import logging
import os
import sys
from functools import cache
from importlib import import_module
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, PathFinder, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


T = TypeVar("T")

_log = logging.getLogger(__name__)

FORCE_PURE_PYTHON = "KAFKACLIENT_PURE_PYTHON"
"""Environment variable: with any value except 0, the compiled modules are not used."""

COMPILED = (
    "kafkaclient.aiokafka._futures",
    "kafkaclient.metrics._stats",
    "kafkaclient.opentelemetry._pending_spans",
    "kafkaclient.opentelemetry._sending",
    "kafkaclient.producer.bulk._rows",
    "kafkaclient.producer.bulk._arrow_rows",
    "kafkaclient.producer.batches._batch_result",
    "kafkaclient.producer.batches._delivery",
    "kafkaclient.producer.batches._delivery_future",
    "kafkaclient.producer.batches._direct_append",
    "kafkaclient.producer.batches._serializers",
    "kafkaclient.producer.batches._waiters",
    "kafkaclient.wire._murmur2",
    "kafkaclient.wire._produce",
    "kafkaclient.wire._reader",
    "kafkaclient.wire._record_buffer",
    "kafkaclient.wire._record_columns",
    "kafkaclient.wire._records",
)
"""The compiled forms. If one of them is missing, none is used."""

COMPILED_TOOLS = ("kafkaclient.perf._slices",)
"""Compiled forms that only tools use. Each is used if it is there, together with ``COMPILED``."""

NATIVE = (
    "kafkaclient.metrics.producer",
    "kafkaclient.net.pending_request",
    "kafkaclient.producer.accumulator.accumulator",
    "kafkaclient.producer.accumulator.batch_factory",
    "kafkaclient.producer.accumulator.binding",
    "kafkaclient.producer.accumulator.buffer_pool",
    "kafkaclient.producer.accumulator.incomplete",
    "kafkaclient.producer.accumulator.linger",
    "kafkaclient.producer.accumulator.ready_queues",
    "kafkaclient.producer.batches.batch",
    "kafkaclient.producer.batches.batch_limit",
    "kafkaclient.producer.batches.partition_queue",
    "kafkaclient.producer.batches.topic_buffer",
    "kafkaclient.producer.partitioning.fair_share",
    "kafkaclient.producer.partitioning.minimum_share",
    "kafkaclient.producer.sender.broker_lane",
    "kafkaclient.producer.sender.broker_lanes",
    "kafkaclient.producer.sender.in_flight_window",
    "kafkaclient.producer.sender.late_answers",
    "kafkaclient.producer.sender.late_binder",
    "kafkaclient.producer.sender.loop_monitor",
    "kafkaclient.producer.sender.responses",
    "kafkaclient.producer.sender.sender",
    "kafkaclient.producer.sender.wakeup",
)
"""Modules that mypyc compiles from their source, into ``x.so`` beside ``x.py``, which the import
system prefers. They are used all or none, and only together with the modules of ``COMPILED``.

Leave out a module that has ``await`` (``producer/suspension.py`` says why) or ``raise X from Y``
(mypyc ignores Y), that subclasses a class of a Cython module, or whose classes are subclassed by
interpreted modules.
"""

_NATIVE_LIBRARY = "kafkaclient._native__mypyc"
"""The code of ``NATIVE``."""


def use_compiled(module: dict[str, Any]) -> None:
    """Replace a module's public names by the names of its compiled form, if compiled modules are
    used.

    The last line of ``x.py`` calls it with ``globals()``. The same line in ``_x`` does nothing.
    """
    package, _, name = module["__name__"].rpartition(".")
    if not name.startswith("_") and why_pure_python() is None:
        form = f"{package}._{name}"
        folder = Path(__file__).parent
        if form in COMPILED_TOOLS and (
            _missing(folder, (form,)) or _changed_source(folder, (form,)) is not None
        ):
            return
        compiled = import_module(form)
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


_REBUILD = "make build compiles them (without make: python setup.py build_ext --inplace)"
_INSTALL = "Install a wheel, which needs no C compiler, or install again where there is one"


@cache
def why_pure_python() -> str | None:
    """Why the compiled modules are not used; None when they are."""
    if os.environ.get(FORCE_PURE_PYTHON, "0") not in ("", "0"):
        return f"{FORCE_PURE_PYTHON} is set"
    package = Path(__file__).parent
    missing = _missing(package, COMPILED)
    if missing:
        if len(missing) == len(COMPILED):
            return "they were not built"
        return f"not all of them were built, missing: {', '.join(missing)}"
    if (source := _changed_source(package, COMPILED)) is not None:
        return f"{source} has changed since it was compiled"
    if not _in_main_interpreter():
        return "they can be loaded into a process's main interpreter only"
    return None


@cache
def why_not_native() -> str | None:
    """Why the modules of ``NATIVE`` are used from their sources; None when they are compiled."""
    why = why_pure_python()
    package = Path(__file__).parent
    if why is None and (missing := _missing(package, (*NATIVE, _NATIVE_LIBRARY))):
        return f"not built: {', '.join(missing)}"
    if why is None and (source := _changed_source(package, NATIVE)) is not None:
        return f"{source} has changed since it was compiled"
    return why


@cache
def log_pure_python() -> None:
    """Log once that compiled modules are not used, why, and what remedies it."""
    if (why := why_pure_python()) is not None:
        if why.startswith(FORCE_PURE_PYTHON):
            _log.info("running without compiled modules, several times slower: %s", why)
        else:
            what = "running without compiled modules, several times slower: %s. %s"
            _log.warning(what, why, _remedy())
    elif (why := why_not_native()) is not None:
        what = "running without the modules that mypyc compiles, batches cost more: %s. %s"
        _log.warning(what, why, _remedy())


def _remedy() -> str:
    if not _in_main_interpreter():
        return "Use kafkaclient in the main interpreter, or in processes of their own"
    return _REBUILD if _is_source_tree(Path(__file__).parent) else _INSTALL


class _SourceFinder:
    """Finds the sources of ``NATIVE``, as the import system does where nothing is compiled."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in NATIVE or path is None:
            return None
        specs = (FileFinder(at, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name) for at in path)
        return next((spec for spec in specs if spec is not None), None)


@cache
def choose_native() -> None:
    """Decide whether the modules of ``NATIVE`` are used. The packages ``metrics``, ``net`` and
    ``producer`` call this function before any of their modules is imported."""
    if why_not_native() is not None and _SourceFinder not in sys.meta_path:
        sys.meta_path.insert(0, _SourceFinder)


def _missing(package: Path, modules: Sequence[str]) -> list[str]:
    """Which of these have no compiled form in the package's folder. This loads no module."""
    missing = []
    for name in modules:
        form = _built(package, name)
        if form is None or (name in NATIVE and form.suffix in SOURCE_SUFFIXES):
            missing.append(name)
    return missing


def _is_source_tree(package: Path) -> bool:
    return all((package.parent / name).exists() for name in ("setup.py", "MANIFEST.in"))


def _changed_source(package: Path, modules: Sequence[str]) -> str | None:
    """A source in a source tree that is newer than its compiled form. An installed wheel has no
    such order: its installer writes sources and compiled forms as it likes."""
    if not _is_source_tree(package):
        return None
    for name in modules:
        # The code of NATIVE is in one library, and what lies beside the sources only loads it.
        form = _built(package, _NATIVE_LIBRARY if name in NATIVE else name)
        source_name = name if name in NATIVE else name.replace("._", ".")
        sources = (
            _path(package, stem).with_suffix(suffix)
            for stem in {name, source_name}
            for suffix in (".py", ".pyx", ".pxd")
        )
        for source in sources:
            if form is not None and source.exists() and _modified(source) > _modified(form):
                return str(source.relative_to(package.parent))
    return None


def _path(package: Path, module: str) -> Path:
    """A module's file, without a suffix."""
    return package.joinpath(*module.split(".")[1:])


def _built(package: Path, module: str) -> Path | None:
    spec = PathFinder.find_spec(module, [str(_path(package, module).parent)])
    return None if spec is None or spec.origin is None else Path(spec.origin)


def _modified(file: Path) -> float:
    return file.stat().st_mtime


def _in_main_interpreter() -> bool:
    for name in ("_interpreters", "_xxsubinterpreters"):  # the latter before Python 3.13
        try:
            interpreters = import_module(name)
        except ImportError:
            continue
        return bool(interpreters.get_current() == interpreters.get_main())
    return True
