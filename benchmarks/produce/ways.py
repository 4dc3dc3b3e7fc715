"""Ways to send that several clients share."""

from __future__ import annotations

import asyncio
from array import array
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks.produce.supply import HEADERS
from benchmarks.produce.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from benchmarks.produce.supply import Supply

    Put = Callable[
        [Callable[..., object], str, Iterator[Any], type[Exception]], Iterator[Any] | None
    ]
    """Sends records until ``send`` raises that the buffer is full; returns what is left."""

__all__ = ["CHUNK", "awaited_behind", "in_tasks", "put", "put_keyed", "put_with_header"]

CHUNK = 32
"""Records that a loop sends between two looks at the clock."""

_BEHIND = 20_000


def put(
    send: Callable[..., object], topic: str, values: Iterator[bytes], full: type[Exception]
) -> Iterator[bytes] | None:
    for value in values:
        try:
            send(topic, value)
        except full:
            return chain((value,), values)
    return None


def put_with_header(
    send: Callable[..., object], topic: str, values: Iterator[bytes], full: type[Exception]
) -> Iterator[bytes] | None:
    headers = HEADERS
    for value in values:
        try:
            send(topic, value, headers=headers)
        except full:
            return chain((value,), values)
    return None


def put_keyed(
    send: Callable[..., object],
    topic: str,
    records: Iterator[tuple[bytes, bytes]],
    full: type[Exception],
) -> Iterator[tuple[bytes, bytes]] | None:
    for record in records:
        value, key = record
        try:
            send(topic, value, key)
        except full:
            return chain((record,), records)
    return None


async def awaited_behind(
    supply: Supply,
    topic: str,
    send: Callable[[str, bytes], Awaitable[Awaitable[Any]]],
    flush: Callable[[], Awaitable[Any]],
) -> None:
    """One task; every handle is awaited, some way behind the sending."""
    turns = Turns()
    before: list[Awaitable[Any]] = []
    handles: list[Awaitable[Any]] = []
    for values, _keys in supply.offered():
        for value in values:
            handles.append(await send(topic, value))  # noqa: PERF401 - it is what is measured
        if len(handles) >= _BEHIND:
            for handle in before:
                await handle
            before, handles = handles, []
        await turns.end_when_long()
    await flush()
    for handle in chain(before, handles):
        await handle


async def in_tasks(
    supply: Supply,
    topic: str,
    tasks: int,
    send_and_wait: Callable[[str, bytes], Awaitable[Any]],
) -> array[float]:
    """So many tasks, each with one record at a time; what each record took, in seconds."""
    offered, took = supply.offered(), array("d")

    async def task() -> None:
        for values, _keys in offered:
            began = perf_counter()
            await send_and_wait(topic, values[0])
            took.append(perf_counter() - began)

    await asyncio.gather(*(task() for _ in range(tasks)))
    return took
