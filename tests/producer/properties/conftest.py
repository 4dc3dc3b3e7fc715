"""A property is tested with many examples in one test."""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let such a test take some seconds of CPU time on a machine that gives it a tenth of one. A
    run that hangs ends at once: virtual time knows that nothing can happen any more."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.timeout(300))
