"""What is imported does not take part in garbage collections."""

from __future__ import annotations

import gc
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from kafkaclient.spark import garbage

if TYPE_CHECKING:
    import pytest


def test_once_for_what_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "_modules", 0)
    gc.unfreeze()
    garbage.freeze_imports()
    frozen = gc.get_freeze_count()
    assert frozen > 1000
    later = [[] for _ in range(1000)]
    garbage.freeze_imports()
    assert gc.get_freeze_count() == frozen  # what a task makes can become garbage
    monkeypatch.setitem(sys.modules, "imported_later", ModuleType("imported_later"))
    garbage.freeze_imports()
    assert gc.get_freeze_count() >= frozen + len(later)
