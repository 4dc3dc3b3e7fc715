"""The proxy's delays, to the instant, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.proxy.faults import DelayLine


class Exit:
    """Notes what leaves a line, and when."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.left: list[tuple[float, bytes]] = []
        self.ended_at: float | None = None
        self.line = DelayLine(self.loop.time, self._deliver, self._ended)

    def _deliver(self, data: bytes) -> None:
        self.left.append((round(self.loop.time(), 6), data))

    def _ended(self) -> None:
        self.ended_at = self.loop.time()


@virtual_time
async def test_without_a_delay_bytes_pass_at_once() -> None:
    out = Exit()
    out.line.push(b"a", 0.0, 0.0)
    assert out.left == [(0.0, b"a")]


@virtual_time
async def test_spacing_is_a_serial_server() -> None:
    out = Exit()
    for data in (b"a", b"b"):
        out.line.push(data, 0.0, 0.02)
    out.line.push(b"other", 0.0, 0.0)
    out.line.push(b"c", 0.0, 0.02)
    await asyncio.sleep(0.1)
    out.line.push(b"idle before", 0.0, 0.02)
    await asyncio.sleep(1)
    assert out.left == [
        (0.02, b"a"),
        (0.04, b"b"),
        (0.04, b"other"),
        (0.06, b"c"),
        (0.12, b"idle before"),
    ]


@virtual_time
async def test_latency_is_not_serial_and_keeps_order() -> None:
    out = Exit()
    out.line.push(b"a", 0.05, 0.0)
    await asyncio.sleep(0.01)
    out.line.push(b"b", 0.05, 0.0)
    out.line.push(b"c", 0.0, 0.0)
    await asyncio.sleep(1)
    assert out.left == [(0.05, b"a"), (0.06, b"b"), (0.06, b"c")]


@virtual_time
async def test_both_together() -> None:
    out = Exit()
    for data in (b"a", b"b"):
        out.line.push(data, 0.05, 0.02)
    await asyncio.sleep(1)
    assert out.left == [(0.07, b"a"), (0.09, b"b")]


@virtual_time
async def test_the_end_comes_after_what_waits() -> None:
    out = Exit()
    out.line.push(b"a", 0.05, 0.0)
    out.line.finish()
    assert out.line.size == 1
    await asyncio.sleep(1)
    assert out.ended_at == pytest.approx(0.05)
    assert out.line.size == 0


@virtual_time
async def test_freeze_thaw_and_clear() -> None:
    out = Exit()
    out.line.push(b"a", 0.05, 0.0)
    out.line.freeze()
    await asyncio.sleep(1)
    out.line.push(b"b", 0.0, 0.0)
    out.line.thaw()
    out.line.thaw()
    assert out.left == [(1.0, b"a"), (1.0, b"b")]
    out.line.push(b"c", 0.05, 0.0)
    out.line.clear()
    await asyncio.sleep(1)
    assert len(out.left) == 2
