"""Every fault of the proxy, on real sockets, between a client of few lines and a server of few.

Timing assertions are lower bounds only: a busy machine may be late, never early.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import struct
import time
from collections import Counter
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from kafkaclient.testing.proxy import FaultProxy
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

MS = 0.001
TIMEOUT_S = 30.0


def on_both_loops(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @pytest.mark.parametrize(
        "loop_factory",
        [asyncio.SelectorEventLoop, uvloop.new_event_loop],
        ids=["asyncio", "uvloop"],
    )
    @functools.wraps(test)
    def run(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(TIMEOUT_S):
                await test()

        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(bounded())

    del run.__wrapped__  # type: ignore[attr-defined]  # pytest would read its signature
    return run


def produce(correlation_id: int, payload: bytes = b"", acks: int = -1, version: int = 9) -> bytes:
    body = struct.pack(">hhih", ApiKey.PRODUCE, version, correlation_id, 4) + b"test"
    body += b"\0\0" if version >= 9 else struct.pack(">h", -1)  # tags, transactional id
    body += struct.pack(">hi", acks, 30_000) + payload
    return struct.pack(">i", len(body)) + body


def metadata(correlation_id: int) -> bytes:
    body = struct.pack(">hhih", ApiKey.METADATA, 9, correlation_id, -1) + b"\0"
    return struct.pack(">i", len(body)) + body


class Server:
    """Answers every request but Produce with acks=0 by its correlation id and an echo."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.broken: list[bytes] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                self.requests.append(frame)
                acks_at = 16
                is_produce = frame[1] == ApiKey.PRODUCE
                if is_produce and frame[acks_at : acks_at + 2] == b"\0\0":
                    continue
                answer = frame[4:8] + b"echo" + frame[-16:]
                writer.write(struct.pack(">i", len(answer)) + answer)
        except asyncio.IncompleteReadError as error:
            self.broken.append(error.partial)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def receive(self) -> tuple[int, bytes]:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        frame = await self.reader.readexactly(size)
        return struct.unpack_from(">i", frame)[0], frame[4:]

    async def rest(self) -> bytes:
        """What still comes before the connection ends, by FIN or RST."""
        with suppress(ConnectionError):
            return await self.reader.read()
        return b""


class Stage:
    """A server, a proxy in front of it, clients in front of that."""

    def __init__(self, server: Server, proxy: FaultProxy) -> None:
        self.server, self.proxy = server, proxy
        self._writers: list[asyncio.StreamWriter] = []

    async def client(self) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.proxy.port)
        self._writers.append(writer)
        return Client(reader, writer)

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@asynccontextmanager
async def stage(*, encrypted: bool = False) -> AsyncIterator[Stage]:
    server = Server()
    port = await server.start()
    async with FaultProxy("127.0.0.1", port, encrypted=encrypted) as proxy:
        scene = Stage(server, proxy)
        try:
            yield scene
        finally:
            await scene.close()
            await server.close()


@on_both_loops
async def test_forwards_and_counts() -> None:
    async with stage() as s:
        client = await s.client()
        frames = [produce(1, b"x" * 1000), metadata(2), produce(3, version=7)]
        client.send(*frames)
        assert [(await client.receive())[0] for _ in range(3)] == [1, 2, 3]
        counters = s.proxy.counters.snapshot()
        assert counters.requests == Counter({ApiKey.PRODUCE: 2, ApiKey.METADATA: 1})
        assert counters.responses == counters.requests
        assert counters.produce_requests == 2
        assert counters.request_bytes == sum(map(len, frames))
        assert counters.produce_bytes == len(frames[0]) + len(frames[2])
        assert counters.response_bytes > 0
        assert (counters.connections, s.proxy.connections) == (1, 1)
        assert [frame[:8] for frame in s.server.requests] == [f[4:12] for f in frames]


@on_both_loops
async def test_frames_in_pieces_of_one_byte_are_understood() -> None:
    async with stage() as s:
        client = await s.client()
        stream = produce(1, b"abc") + produce(2, acks=0) + metadata(3)
        for index in range(len(stream)):
            client.send(stream[index : index + 1])
            await asyncio.sleep(0)
        assert [(await client.receive())[0] for _ in range(2)] == [1, 3]
        assert s.proxy.counters.requests == Counter({ApiKey.PRODUCE: 2, ApiKey.METADATA: 1})
        assert s.proxy.counters.responses == Counter({ApiKey.PRODUCE: 1, ApiKey.METADATA: 1})


@on_both_loops
async def test_encrypted_bytes_are_forwarded_and_not_read() -> None:
    async with stage(encrypted=True) as s:
        client = await s.client()
        frames = [produce(1, b"x" * 1000), metadata(2)]
        client.send(*frames)
        assert [(await client.receive())[0] for _ in range(2)] == [1, 2]
        counters = s.proxy.counters.snapshot()
        assert counters.request_bytes == sum(map(len, frames))
        assert not counters.requests
        s.proxy.round_trip(30 * MS)
        started = time.monotonic()
        client.send(metadata(3))
        await client.receive()
        assert time.monotonic() - started >= 29 * MS
        for fault in (
            s.proxy.cut_before,
            s.proxy.cut_after,
            functools.partial(s.proxy.delay_produce, 1.0),
        ):
            with pytest.raises(ValueError, match="the connections are encrypted"):
                fault()
        assert s.proxy.cut() == 1
        assert await client.rest() == b""


@on_both_loops
async def test_produce_responses_leave_one_after_the_other() -> None:
    async with stage() as s:
        client, other = await s.client(), await s.client()
        s.proxy.delay_produce(20 * MS)
        started = time.monotonic()
        client.send(produce(1), produce(2), metadata(3), produce(4))
        left = []
        for expected in (1, 2, 3, 4):
            assert (await client.receive())[0] == expected
            left.append(time.monotonic() - started)
        assert left[0] >= 19.5 * MS
        assert left[1] >= 39.5 * MS
        assert left[2] >= left[1]
        assert left[3] >= 59.5 * MS
        # Another connection has its own server: it does not queue behind the first.
        s.proxy.delay_produce(1000 * MS)
        client.send(produce(5))
        await _until(lambda: s.proxy.counters.responses[ApiKey.PRODUCE] == 4)
        s.proxy.delay_produce(0)
        other.send(produce(1))
        slow, fast = (asyncio.ensure_future(c.receive()) for c in (client, other))
        assert await fast
        assert not slow.done()
        await slow


@on_both_loops
async def test_overlapping_delays_do_not_add_up() -> None:
    async with stage() as s:
        client = await s.client()
        s.proxy.delay_produce(500 * MS, overlapping=True)
        started = time.monotonic()
        client.send(produce(1), produce(2), produce(4))
        for expected in (1, 2, 4):
            assert (await client.receive())[0] == expected
        elapsed = time.monotonic() - started
        assert elapsed >= 499 * MS
        assert elapsed < 3 * 500 * MS  # one after the other
        s.proxy.delay_produce(20 * MS)
        started = time.monotonic()
        client.send(produce(5), produce(6))
        assert [(await client.receive())[0] for _ in range(2)] == [5, 6]
        assert time.monotonic() - started >= 39.5 * MS


@on_both_loops
async def test_delay_all_concerns_every_api() -> None:
    async with stage() as s:
        client = await s.client()
        s.proxy.delay_all(15 * MS)
        started = time.monotonic()
        client.send(metadata(1), metadata(2))
        await client.receive()
        await client.receive()
        assert time.monotonic() - started >= 29 * MS


@on_both_loops
async def test_round_trip_delays_do_not_add_up() -> None:
    async with stage() as s:
        client = await s.client()
        s.proxy.round_trip(40 * MS)
        started = time.monotonic()
        for correlation_id in range(50):
            client.send(produce(correlation_id))
        for correlation_id in range(50):
            assert (await client.receive())[0] == correlation_id
        elapsed = time.monotonic() - started
        assert elapsed >= 39 * MS
        assert elapsed < 50 * 40 * MS  # one after the other


@on_both_loops
async def test_acks_0_does_not_get_out_of_step() -> None:
    async with stage() as s:
        client = await s.client()
        client.send(
            *(produce(i, acks=0, version=v) for i, v in enumerate((3, 8, 9, 12))), metadata(9)
        )
        assert (await client.receive())[0] == 9
        assert s.proxy.counters.responses == Counter({ApiKey.METADATA: 1})
        assert s.proxy.counters.produce_requests == 4
        # Were the answer above taken for a Produce's, a delay would hit the wrong one here.
        hit = s.proxy.cut_after(ApiKey.METADATA)
        client.send(produce(10, acks=0), produce(11))
        assert (await client.receive())[0] == 11
        assert hit.hits == 0


@on_both_loops
async def test_stall_and_resume() -> None:
    async with stage() as s:
        client = await s.client()
        client.send(metadata(1))
        await client.receive()
        s.proxy.stall()
        client.send(metadata(2))
        late = await s.client()
        late.send(metadata(7))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30 * MS):
                await client.receive()
        assert len(s.server.requests) == 1
        s.proxy.resume()
        assert (await client.receive())[0] == 2
        assert (await late.receive())[0] == 7


@on_both_loops
async def test_stall_holds_responses_that_were_under_way() -> None:
    async with stage() as s:
        client = await s.client()
        s.proxy.delay_produce(150 * MS)
        client.send(produce(1))
        while not s.proxy.counters.responses:  # a counter, not an event
            await asyncio.sleep(0)
        s.proxy.stall()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(250 * MS):
                await client.receive()
        s.proxy.heal()
        assert (await client.receive())[0] == 1


@on_both_loops
async def test_a_stalled_proxy_closes_and_cuts() -> None:
    async with stage() as s:
        client = await s.client()
        client.send(metadata(1))
        await client.receive()
        s.proxy.stall()
        assert s.proxy.cut() == 1
        assert await client.rest() == b""
        await s.client()


@pytest.mark.parametrize("reset", [False, True])
async def test_cut_ends_every_connection(reset: bool) -> None:
    async with stage() as s:
        clients = [await s.client() for _ in range(3)]
        for client in clients:
            client.send(metadata(1))
            await client.receive()
        assert s.proxy.cut(reset=reset) == 3
        for client in clients:
            if reset:
                with pytest.raises(ConnectionResetError):
                    await client.reader.read()
            else:
                assert await client.reader.read() == b""
        again = await s.client()
        again.send(metadata(2))
        assert (await again.receive())[0] == 2


@on_both_loops
async def test_cut_before_the_request_reaches_the_broker() -> None:
    async with stage() as s:
        client = await s.client()
        fault = s.proxy.cut_before(when=lambda frame: frame.correlation_id == 3)
        client.send(produce(1))
        assert (await client.receive())[0] == 1
        client.send(produce(2), produce(3), produce(4))
        assert 3 not in _answers(await client.rest())
        await _until(lambda: len(s.server.requests) == 2)
        assert [_correlation_id(frame) for frame in s.server.requests] == [1, 2]
        assert (fault.hits, fault.spent) == (1, True)
        again = await s.client()
        again.send(produce(3))
        assert (await again.receive())[0] == 3


@on_both_loops
async def test_cut_after_the_request_reached_the_broker() -> None:
    async with stage() as s:
        client = await s.client()
        s.proxy.cut_after()
        client.send(metadata(1), produce(2), metadata(3))
        assert _answers(await client.rest()) == [1]
        assert 2 in [_correlation_id(frame) for frame in s.server.requests]


@on_both_loops
async def test_every_nth_frame_until_healed() -> None:
    async with stage() as s:
        fault = s.proxy.cut_after(every=3, times=None, reset=True)
        answered = 0
        for _ in range(3):
            client = await s.client()
            for correlation_id in range(2):
                client.send(produce(correlation_id))
                await client.receive()
                answered += 1
            client.send(produce(9))
            assert await client.rest() == b""
        assert (answered, fault.hits, fault.spent) == (6, 3, False)
        s.proxy.heal()
        client = await s.client()
        for correlation_id in range(9):
            client.send(produce(correlation_id))
            await client.receive()


@on_both_loops
async def test_truncated_request() -> None:
    async with stage() as s:
        client = await s.client()
        s.proxy.truncate_request(keep=4 + 30)
        client.send(metadata(1), produce(2, b"x" * 200_000))
        assert 2 not in _answers(await client.rest())
        await _until(lambda: bool(s.server.broken))
        assert len(s.server.broken[0]) == 30


@on_both_loops
async def test_truncated_response() -> None:
    async with stage() as s:
        client = await s.client()
        s.proxy.delay_produce(5 * MS)
        s.proxy.truncate_response()
        client.send(metadata(1), produce(2))
        assert (await client.receive())[0] == 1
        rest = await client.rest()
        size = struct.unpack_from(">i", rest)[0]
        assert len(rest) == (size + 4) // 2


@on_both_loops
async def test_corrupted_request_also_across_chunks() -> None:
    async with stage() as s:
        client = await s.client()
        payload = bytes(1_000_000)
        s.proxy.corrupt_request({-8: 0xFF, -500_000: 0x0F})
        client.send(produce(1, payload), produce(2, payload))
        await client.receive()
        await client.receive()
        first, second = (frame[-len(payload) :] for frame in s.server.requests)
        assert second == payload
        changed = {i - len(payload): b for i, b in enumerate(first) if b}
        assert changed == {-8: 0xFF, -500_000: 0x0F}


@on_both_loops
async def test_corrupted_response_header() -> None:
    async with stage() as s:
        client = await s.client()
        s.proxy.corrupt_response({7: 0x40}, ApiKey.METADATA, times=2)
        client.send(metadata(1), produce(2), metadata(3), metadata(4))
        assert [(await client.receive())[0] for _ in range(4)] == [0x41, 2, 0x43, 4]


@on_both_loops
async def test_back_pressure_reaches_the_sender() -> None:
    async with stage() as s:
        client = await s.client()
        client.send(metadata(1))
        await client.receive()
        s.proxy.stall()
        sent = 0

        async def flood() -> None:
            nonlocal sent
            while True:
                client.send(produce(2, bytes(1 << 20)))
                sent += 1
                await client.writer.drain()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(flood(), 50 * MS)
        assert s.proxy.counters.request_bytes < 1 << 20
        s.proxy.resume()
        for _ in range(sent):
            await client.receive()


@on_both_loops
async def test_broker_down_and_back() -> None:
    async with stage() as s:
        port, s.proxy.target_port = s.proxy.target_port, _unused_port()
        client = await s.client()
        assert await client.rest() == b""
        s.proxy.target_port = port
        client = await s.client()
        client.send(metadata(1))
        assert (await client.receive())[0] == 1
        await s.server.close()
        assert await client.rest() == b""


@on_both_loops
async def test_the_port_is_kept_over_close_and_start() -> None:
    async with stage() as s:
        port = s.proxy.port
        client = await s.client()
        await s.proxy.close()
        assert await client.rest() == b""
        assert s.proxy.connections == 0
        with pytest.raises(ConnectionRefusedError):
            await s.client()
        await s.proxy.start()
        assert s.proxy.port == port
        client = await s.client()
        client.send(metadata(1))
        await client.receive()
        assert str(port) in repr(s.proxy)


def _correlation_id(frame: bytes) -> int:
    correlation_id: int = struct.unpack_from(">i", frame, 4)[0]
    return correlation_id


def _answers(data: bytes) -> list[int]:
    found = []
    while data:
        size, correlation_id = struct.unpack_from(">ii", data)
        found.append(correlation_id)
        data = data[4 + size :]
    return found


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # another task's state, not an event
        await asyncio.sleep(0.001)


def _unused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
