"""Runs coroutines for fixtures that are not async, whatever plugin runs the tests."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of ``asyncio.run`` in another thread: this one may be running an event loop."""
    with ThreadPoolExecutor(1, thread_name_prefix="pytest-kafkaclient") as executor:
        return executor.submit(asyncio.run, coroutine).result()
