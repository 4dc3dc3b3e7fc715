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


@pytest.mark.parametrize(
    ("pushes", "left"),
    [
        ([(0.0, b"a", 0.0, 0.0)], [(0.0, b"a")]),
        (
            [
                (0.0, b"a", 0.0, 0.02),
                (0.0, b"b", 0.0, 0.02),
                (0.0, b"other", 0.0, 0.0),
                (0.0, b"c", 0.0, 0.02),
                (0.1, b"idle before", 0.0, 0.02),
            ],
            [(0.02, b"a"), (0.04, b"b"), (0.04, b"other"), (0.06, b"c"), (0.12, b"idle before")],
        ),
        (
            [(0.0, b"a", 0.05, 0.0), (0.01, b"b", 0.05, 0.0), (0.01, b"c", 0.0, 0.0)],
            [(0.05, b"a"), (0.06, b"b"), (0.06, b"c")],
        ),
        ([(0.0, b"a", 0.05, 0.02), (0.0, b"b", 0.05, 0.02)], [(0.07, b"a"), (0.09, b"b")]),
    ],
    ids=["no delay", "spacing is a serial server", "latency is not serial, in order", "both"],
)
@virtual_time
async def test_when_bytes_leave(
    pushes: list[tuple[float, bytes, float, float]], left: list[tuple[float, bytes]]
) -> None:
    """A push: when, what, latency, spacing."""
    out = Exit()
    for at, data, latency, spacing in pushes:
        await asyncio.sleep(at - out.loop.time())
        out.line.push(data, latency, spacing)
    await asyncio.sleep(1)
    assert out.left == left


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
