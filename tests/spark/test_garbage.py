"""What is imported does not take part in garbage collections."""

from __future__ import annotations

import gc
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from kafkaclient.spark import garbage

if TYPE_CHECKING:
    import pytest


def test_imports_are_frozen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "_modules", 0)
    gc.unfreeze()
    garbage.freeze_objects()
    assert gc.get_freeze_count() > 1000
    made_later: list[object] = []

    def is_frozen() -> bool:
        return not any(each is made_later for each in gc.get_objects())

    garbage.freeze_objects()
    assert not is_frozen()  # what a task makes can become garbage
    monkeypatch.setitem(sys.modules, "imported_later", ModuleType("imported_later"))
    garbage.freeze_objects()
    assert is_frozen()
