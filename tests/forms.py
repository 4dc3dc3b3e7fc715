"""Both forms of the modules that have a compiled form, for tests that compare them."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from kafkaclient.compiled_modules import (
    COMPILED,
    COMPILED_TOOLS,
    FORCE_PURE_PYTHON,
    why_pure_python,
)

if TYPE_CHECKING:
    from types import ModuleType


def load_form(name: str, *, compiled: bool) -> ModuleType:
    """A private copy of a module in one of its two forms, for tests: all modules with a compiled
    form that the copy imports have the same form. Pure Python where nothing is compiled."""
    sources = [name, *(module.replace("._", ".") for module in COMPILED + COMPILED_TOOLS)]
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
