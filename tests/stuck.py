"""A test that has failed and whose fixtures never end ends its process, with all stacks.

pytest and pytest-timeout leave a test alone once it has failed, since a debugger may follow.
"""

from __future__ import annotations

import faulthandler
from typing import TYPE_CHECKING

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

if TYPE_CHECKING:
    from collections.abc import Generator

TEARDOWN_S = 180


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(TEARDOWN_S, exit=True, file=stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
