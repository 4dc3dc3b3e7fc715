"""Chooses between a compiled module and its pure-Python twin."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["FORCE_PURE_PYTHON", "load_twin"]

FORCE_PURE_PYTHON = "KAFKACLIENT_PURE_PYTHON"
"""Environment variable: any non-empty value but 0 keeps the compiled modules out of use."""


def load_twin(name: str) -> tuple[ModuleType, bool]:
    """The module ``name`` or else ``name + "_py"``, and whether it is the compiled one."""
    if os.environ.get(FORCE_PURE_PYTHON, "0") in ("", "0"):
        try:
            return importlib.import_module(name), True
        except ModuleNotFoundError as error:
            # Not built, as on a machine without a compiler. Anything else is a defect to show.
            if error.name != name:
                raise
    return importlib.import_module(f"{name}_py"), False
