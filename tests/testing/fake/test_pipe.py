"""The in-memory transports keep asyncio's contract."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake.pipe import MemoryTransport, connect

if TYPE_CHECKING:
    from collections.abc import Callable


class Recorder(asyncio.Protocol):
    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.events: list[str] = []
        self.error: Exception | None = None
        self.on_data: Callable[[], None] = lambda: None

    @property
    def data(self) -> bytes:
        return b"".join(self.chunks)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.chunks.append(data)
        self.on_data()

    def eof_received(self) -> None:
        self.events.append("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.error = exc

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Buffered(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.buffer = bytearray(3)
        self.data = b""

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data += bytes(self.buffer[:nbytes])


def pair(
    round_trip: float = 0.0,
) -> tuple[MemoryTransport, Recorder, MemoryTransport, Recorder]:
    left, right = connect(("left", 1), ("right", 2), lambda: round_trip / 2)
    a, b = Recorder(), Recorder()
    left.attach(a)
    right.attach(b)
    return left, a, right, b


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@virtual_time
async def test_data_is_never_delivered_inside_write() -> None:
    left, a, right, b = pair()
    b.on_data = lambda: right.write(b"pong")
    left.writelines([b"pi", memoryview(b"ng")])
    assert b.chunks == []
    await turns()
    assert (b.data, a.data) == (b"ping", b"pong")
    assert left.get_extra_info("peername") == ("left", 1)


@virtual_time
async def test_what_was_written_is_a_copy() -> None:
    left, _, _, b = pair()
    buffer = bytearray(b"one")
    left.write(buffer)
    buffer[:] = b"two"
    await turns()
    assert b.data == b"one"


@virtual_time
async def test_back_pressure() -> None:
    left, a, right, b = pair()
    right.pause_reading()
    left.write(bytes(100_000))
    assert a.events == ["made"]
    left.write(bytes(200_000))
    assert a.events == ["made", "pause"]
    assert left.get_write_buffer_size() > 100_000
    await turns()
    assert b.data == b""
    right.resume_reading()
    await turns()
    assert len(b.data) == 300_000
    assert a.events == ["made", "pause", "resume"]
    assert left.get_write_buffer_size() == 0


@virtual_time
async def test_close_delivers_what_was_written_first() -> None:
    left, a, right, b = pair()
    left.write(bytes(1_000_000))
    left.close()
    left.write(b"too late")
    assert left.is_closing()
    await turns()
    assert len(b.data) == 1_000_000
    assert a.events == ["made", "pause", "resume", "lost"]
    assert b.events == ["made", "eof", "lost"]
    assert (a.error, b.error) == (None, None)
    assert right.is_closing()


@virtual_time
async def test_close_ends_also_while_the_peer_does_not_read() -> None:
    left, a, right, b = pair()
    right.pause_reading()
    left.write(b"data")
    left.close()
    await turns()
    assert a.events == ["made", "lost"]
    assert b.events == ["made"]
    right.resume_reading()
    await turns()
    assert b.data == b"data"
    assert b.events == ["made", "eof", "lost"]


@virtual_time
async def test_abort_resets_the_peer() -> None:
    left, a, _, b = pair()
    left.write(b"lost")
    left.abort()
    left.abort()
    await turns()
    assert b.data == b""
    assert (a.events, b.events) == (["made", "lost"], ["made", "lost"])
    assert a.error is None
    assert isinstance(b.error, ConnectionResetError)


@virtual_time
async def test_both_close_at_once() -> None:
    left, a, right, b = pair()
    left.write(b"unread")
    left.close()
    right.write(b"unread")
    right.close()
    await turns()
    assert (a.events, b.events) == (["made", "lost"], ["made", "lost"])


@virtual_time
async def test_distance_delays_both_ways_and_keeps_order() -> None:
    loop = asyncio.get_running_loop()
    left, a, right, b = pair(round_trip=0.05)
    b.on_data = lambda: right.write(b.chunks[-1])
    for index in range(5):
        left.write(bytes([index]))
    await asyncio.sleep(0.049)
    assert len(b.chunks) == 5
    assert a.chunks == []
    await asyncio.sleep(0.002)
    assert a.data == bytes(range(5))
    assert loop.time() < 0.06


@virtual_time
async def test_buffered_protocols_and_small_chunks() -> None:
    left, _, right, _ = pair()
    buffered = Buffered()
    right.set_protocol(buffered)
    left.write(b"0123456789")
    await turns()
    assert buffered.data == b"0123456789"
    left.chunk_size = 1
    recorder = Recorder()
    right.set_protocol(recorder)
    left.write(b"abc")
    await turns()
    assert recorder.chunks == [b"a", b"b", b"c"]
