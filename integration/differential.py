"""Runs the same script through two producers with aiokafka's API, and compares what comes of it.

A script is an async generator of steps: a name, and an awaitable. Both sides must give the same
results. An error of the second side must be an instance of the class that the first side raises.
"""

from __future__ import annotations

import asyncio
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import aiokafka
from aiokafka import TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from kafkaclient.testing import LocalCluster

    Script = Callable[["Side"], AsyncIterator[tuple[str, Awaitable[Any]]]]

__all__ = ["Side", "both_read", "same"]

RECENT_MS = 60_000
STEP_S = 30


class Side(NamedTuple):
    """One of the two producers, and the names that only this one uses."""

    name: str
    producer: Callable[..., Any]
    cluster: LocalCluster
    topic: str

    def make(self, **options: Any) -> Any:
        return self.producer(**{"bootstrap_servers": self.cluster.bootstrap} | options)


def _plain(result: Any, side: Side) -> Any:
    """A result without the parts that differ between two topics and two moments."""
    if isinstance(result, aiokafka.structs.RecordMetadata):
        assert result.topic == side.topic
        assert result.topic_partition == TopicPartition(side.topic, result.partition)
        recent = abs(time.time() * 1000 - result.timestamp) < RECENT_MS
        when = "now" if recent else result.timestamp
        return (
            result.partition,
            result.offset,
            when,
            result.timestamp_type,
            result.log_start_offset,
        )
    return result


async def _outcomes(script: Script, side: Side) -> dict[str, Any]:
    """Step -> its plain result, or its exception."""
    found: dict[str, Any] = {}
    async for step, work in script(side):
        assert step not in found
        limit = asyncio.timeout(STEP_S)
        try:
            async with limit:
                found[step] = _plain(await work, side)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - compared below
            found[step] = error
        assert not limit.expired(), f"{side.name}: {step} has not ended within {STEP_S} s"
    return found


async def same(
    script: Script,
    sides: tuple[Side, Side],
    different: Mapping[str, type[BaseException]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Run the script on both sides, and compare; returns aiokafka's outcomes.

    ``different``: the steps at which the drop-in raises another error on purpose.
    """
    theirs, ours = [await _outcomes(script, side) for side in sides]
    assert list(theirs) == list(ours)
    wrong = [
        f"{step}: aiokafka {theirs[step]!r}, drop-in {ours[step]!r}"
        for step in theirs
        if not (
            isinstance(ours[step], different[step])
            if step in different
            else _agree(theirs[step], ours[step])
        )
    ]
    assert not wrong, "\n".join(wrong)
    return theirs


def _agree(theirs: Any, ours: Any) -> bool:
    if isinstance(theirs, BaseException):
        return isinstance(ours, type(theirs))
    return not isinstance(ours, BaseException) and bool(theirs == ours)


async def both_read(
    read_topic: Any, sides: tuple[Side, Side], *, least: int = 0, **kw: Any
) -> list[Any]:
    """The records that both sides wrote; asserts that they are the same but for recent times.

    ``least``: wait for so many. A transaction's records are readable a moment after its commit.
    """
    read = []
    for side in sides:
        records = await read_topic(side.topic, **kw)
        async with asyncio.timeout(STEP_S):
            while len(records) < least:
                await asyncio.sleep(0.05)
                records = await read_topic(side.topic, **kw)
        now = time.time() * 1000
        recent = [abs(now - record.timestamp) < RECENT_MS for record in records]
        read.append(
            sorted(
                record._replace(timestamp=-1) if new else record
                for record, new in zip(records, recent, strict=True)
            )
        )
    assert read[0] == read[1]
    return read[0]
