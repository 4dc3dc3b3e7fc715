"""One connection: frames in any slicing, order, loss, time limits, cancellation."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaclient.errors import (
    BrokerConnectionError,
    ProtocolError,
    RequestTimedOutError,
)
from kafkaclient.net.connection import Connection
from kafkaclient.net.pending_request import PendingRequest
from kafkaclient.net.pipeline import MAX_FRAME_SIZE
from kafkaclient.testing.clock import run_virtual, virtual_time

# --- frames ---------------------------------------------------------------------------------


@virtual_time
async def test_an_answer_reaches_its_request_in_the_iteration_that_read_it(make_wire: Any) -> None:
    wire = make_wire()
    first = wire.send()
    wire.answer(first, b"payload")
    assert wire.done == [(first, b"payload", None)]
    assert wire.connection.in_flight == 0
    assert wire.connection.oldest_sent_at is None
    assert [event[0] for event in wire.meter.events] == ["opened", "sent", "received"]


@virtual_time
async def test_an_answer_byte_by_byte(make_wire: Any) -> None:
    wire = make_wire()
    ids = [wire.send() for _ in range(3)]
    for byte in b"".join(wire.frame(i, bytes([i]) * i) for i in ids):
        wire.receive(bytes([byte]))
    assert wire.done == [(i, bytes([i]) * i, None) for i in ids]


@virtual_time
async def test_many_answers_in_one_read(make_wire: Any) -> None:
    wire = make_wire()
    ids = [wire.send() for _ in range(100)]
    wire.receive(b"".join(wire.frame(i) for i in ids) + b"\0\0")
    assert [done[0] for done in wire.done] == ids
    tail = wire.send()
    wire.receive(wire.frame(tail, b"x")[2:])
    assert wire.done[-1] == (tail, b"x", None)


@given(
    payloads=st.lists(st.binary(max_size=50), max_size=20),
    cuts=st.lists(st.integers(min_value=0, max_value=2000), max_size=30),
)
@settings(deadline=None, max_examples=75)
def test_slicing_does_not_matter(make_wire: Any, payloads: list[bytes], cuts: list[int]) -> None:
    async def check() -> None:
        wire = make_wire()
        ids = [wire.send() for _ in payloads]
        stream = b"".join(wire.frame(i, p) for i, p in zip(ids, payloads, strict=True))
        edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
        for start, end in itertools.pairwise(edges):
            wire.receive(stream[start:end])
        assert wire.done == [(i, p, None) for i, p in zip(ids, payloads, strict=True)]
        assert not wire.connection.closed

    run_virtual(check())


@given(garbage=st.binary(min_size=4, max_size=200))
@settings(deadline=None, max_examples=75)
def test_whatever_comes_every_request_ends_once(make_wire: Any, garbage: bytes) -> None:
    async def check() -> None:
        wire = make_wire()
        ids = [wire.send() for _ in range(3)]
        wire.receive(garbage)
        await asyncio.sleep(60)
        assert [done[0] for done in wire.done] == ids
        assert wire.connection.closed

    run_virtual(check())


@pytest.mark.parametrize("size", [MAX_FRAME_SIZE + 1, 2**31 - 1, -1, 0, 3, -(2**31)])
@virtual_time
async def test_an_impossible_size_drops_the_connection_at_once(
    make_wire: Any, settle: Any, size: int
) -> None:
    wire = make_wire()
    request = wire.send()
    wire.receive(struct.pack(">i", size))
    assert wire.connection.closed
    assert wire.done == []  # never from inside data_received of a dying connection
    await settle()
    ((label, payload, error),) = wire.done
    assert (label, payload) == (request, None)
    assert isinstance(error, ProtocolError)
    assert "broker 1" in str(error)


@pytest.mark.parametrize("wrong", [0, 2, -1, 99])
@virtual_time
async def test_an_unexpected_correlation_id_drops_the_connection(
    make_wire: Any, settle: Any, wrong: int
) -> None:
    wire = make_wire()
    ids = [wire.send(), wire.send()]
    assert ids == [1, 2]
    wire.answer(wrong)
    await settle()
    assert [done[0] for done in wire.done] == ids
    assert all(isinstance(done[2], ProtocolError) for done in wire.done)
    assert isinstance(wire.closed_with[0], ProtocolError)


@virtual_time
async def test_an_answer_nobody_asked_for_drops_the_connection(make_wire: Any) -> None:
    wire = make_wire()
    wire.answer(1)
    assert wire.connection.closed


@virtual_time
async def test_nothing_after_a_bad_frame_is_believed(make_wire: Any, settle: Any) -> None:
    wire = make_wire()
    ids = [wire.send(), wire.send()]
    wire.receive(wire.frame(ids[0]) + wire.frame(77) + wire.frame(ids[1]))
    await settle()
    assert wire.done[0][2] is None
    assert isinstance(wire.done[1][2], ProtocolError)


# --- order and exactly once -----------------------------------------------------------------


@virtual_time
async def test_a_lost_connection_fails_its_requests_in_order(make_wire: Any, settle: Any) -> None:
    wire = make_wire()
    ids = [wire.send() for _ in range(5)]
    wire.answer(ids[0])
    cause = ConnectionResetError("reset")
    wire.transport.lose(cause)
    await settle()
    assert [done[0] for done in wire.done] == ids
    errors = [done[2] for done in wire.done[1:]]
    assert all(isinstance(error, BrokerConnectionError) for error in errors)
    assert "4 requests in flight" in str(errors[0])
    assert errors[0].__cause__ is cause
    assert wire.closed_with == [errors[0]]
    assert wire.connection.in_flight == 0
    wire.connection.close()
    await settle()
    assert len(wire.done) == 5
    assert len(wire.closed_with) == 1


@virtual_time
async def test_receivers_are_never_called_inside_send_or_close(make_wire: Any, settle: Any) -> None:
    wire = make_wire()
    wire.send()
    wire.connection.close(BrokerConnectionError("given up"))
    assert wire.done == []
    with pytest.raises(BrokerConnectionError, match="not sent") as caught:
        wire.send()
    assert isinstance(caught.value.__cause__, BrokerConnectionError)
    assert wire.done == []
    await settle()
    assert [str(done[2]) for done in wire.done] == ["given up"]


@virtual_time
async def test_a_receiver_may_send_and_close(make_wire: Any, settle: Any) -> None:
    wire = make_wire()
    connection = wire.connection
    correlation_id = connection.next_correlation_id()
    first = PendingRequest(correlation_id, lambda *_: wire.send("inner"), 0.0)
    connection.send([b"a"], first)
    second = connection.next_correlation_id()
    connection.send([b"b"], PendingRequest(second, lambda *_: connection.close(), 0.0))
    wire.receive(wire.frame(correlation_id) + wire.frame(second) + wire.frame(3))
    assert connection.closed
    await settle()
    # Its answer was in the same read, but the connection was closed before.
    assert [done[0] for done in wire.done] == ["inner"]
    assert isinstance(wire.done[0][2], BrokerConnectionError)


@virtual_time
async def test_a_receiver_that_raises_fails_only_itself(
    make_wire: Any, settle: Any, caplog: pytest.LogCaptureFixture
) -> None:
    wire = make_wire()

    def broken(*_: object) -> None:
        raise RuntimeError("receiver broke")

    def cancelled(*_: object) -> None:
        raise asyncio.CancelledError

    for receiver in (broken, cancelled, broken):
        correlation_id = wire.connection.next_correlation_id()
        wire.connection.send([b"x"], PendingRequest(correlation_id, receiver, 0.0))
    last = wire.send()
    wire.receive(wire.frame(1) + wire.frame(2))
    assert not wire.connection.closed
    wire.transport.lose(None)
    await settle()
    assert wire.done[0][0] == last
    assert isinstance(wire.done[0][2], BrokerConnectionError)
    assert len(caplog.records) == 3
    assert all(record.levelno == logging.ERROR for record in caplog.records)


@virtual_time
async def test_no_entry_is_kept_for_a_request_without_an_answer(make_wire: Any) -> None:
    wire = make_wire()
    wire.connection.send([b"a", bytearray(b"b"), memoryview(b"c")], None)
    assert wire.transport.written == [b"abc"]
    assert wire.connection.in_flight == 0
    assert ("sent", 1, 3) in wire.meter.events
    await asyncio.sleep(100)
    assert not wire.connection.closed


@virtual_time
async def test_a_failed_write_is_told_once_and_ends_the_connection(
    make_wire: Any, settle: Any
) -> None:
    wire = make_wire()
    kept = wire.send()
    wire.transport.write_error = TypeError("not bytes")
    cut_off = wire.send()
    assert wire.connection.closed
    assert [done[0] for done in wire.done] == [], "never from inside send"
    await settle()
    assert [done[0] for done in wire.done] == [kept, cut_off]
    for _, _, error in wire.done:
        assert isinstance(error, BrokerConnectionError)
        assert isinstance(error.__cause__, TypeError)


@virtual_time
async def test_a_failing_write_that_nobody_is_told_of_raises(make_wire: Any) -> None:
    connection = (wire := make_wire()).connection
    wire.transport.write_error = RuntimeError("defect")
    with pytest.raises(BrokerConnectionError, match="defect"):
        connection.send([b"request"], None)
    assert connection.closed


@virtual_time
async def test_correlation_ids_stay_positive(make_wire: Any) -> None:
    wire = make_wire()
    wire.connection._correlation_id = 2**31 - 2
    assert [wire.connection.next_correlation_id() for _ in range(3)] == [2**31 - 1, 0, 1]


# --- back-pressure and closing ----------------------------------------------------------------


@virtual_time
async def test_the_transport_says_when_it_has_enough(make_wire: Any) -> None:
    wire = make_wire()
    assert wire.connection.writable
    wire.connection.pause_writing()
    assert not wire.connection.writable
    wire.connection.resume_writing()
    assert wire.connection.writable
    assert wire.writable_again == 1
    wire.connection.close()
    assert not wire.connection.writable


@virtual_time
async def test_an_idle_connection_closes_in_good_order(make_wire: Any) -> None:
    wire = make_wire()
    wire.connection.close()
    await wire.connection.wait_closed()
    assert wire.closed_with == [None]
    assert not wire.transport.aborted


@virtual_time
async def test_a_connection_closed_before_it_was_made_is_cut_when_it_is(
    new_wire: Any, settle: Any
) -> None:
    wire = new_wire()
    with pytest.raises(BrokerConnectionError):
        wire.send()
    wire.connection.close()
    await wire.connection.wait_closed()
    wire.open()
    await settle()
    assert wire.transport.aborted
    with pytest.raises(BrokerConnectionError):
        await wire.connection.handshake()


@virtual_time
async def test_nothing_is_left_on_the_loop_after_close(make_wire: Any) -> None:
    wire = make_wire()
    wire.send()
    assert wire.connection._timer is not None
    wire.connection.close()
    assert wire.connection._timer is None


def test_repr_tells_the_state(make_wire: Any) -> None:
    async def check() -> None:
        wire = make_wire()
        wire.send()
        assert repr(wire.connection) == "<Connection to broker 1 (b:9092): open, 1 in flight>"

    run_virtual(check())


# --- time limits ------------------------------------------------------------------------------


@virtual_time
async def test_a_request_that_times_out_closes_the_connection(make_wire: Any) -> None:
    wire = make_wire(request_timeout_s=30.0)
    loop = asyncio.get_running_loop()
    wire.send("first", api="Metadata")
    await asyncio.sleep(10)
    wire.send("second")
    await asyncio.sleep(19.9)
    assert not wire.connection.closed
    await wire.connection.wait_closed()
    assert 30.0 <= loop.time() < 30.2
    (_, _, first), (_, _, second) = wire.done
    assert isinstance(first, RequestTimedOutError)
    assert "Metadata" in str(first)
    assert "broker 1 (b:9092)" in str(first)
    assert "30 s" in str(first)
    assert isinstance(second, BrokerConnectionError)
    assert wire.closed_with == [wire.closed_with[0]]


@virtual_time
async def test_a_request_may_have_its_own_limit(make_wire: Any) -> None:
    wire = make_wire(request_timeout_s=30.0)
    wire.send("long")
    wire.send("short", timeout_s=2.0)
    await wire.connection.wait_closed()
    assert 2.0 <= asyncio.get_running_loop().time() < 2.2
    assert isinstance(wire.done[0][2], BrokerConnectionError)
    assert isinstance(wire.done[1][2], RequestTimedOutError)


@virtual_time
async def test_each_request_has_its_whole_time(make_wire: Any) -> None:
    wire = make_wire(request_timeout_s=1.0)
    for _ in range(100):
        request = wire.send()
        await asyncio.sleep(0.9)
        wire.answer(request)
    assert not wire.connection.closed
    await asyncio.sleep(10)
    assert not wire.connection.closed
    assert wire.connection._timer is None


@virtual_time
async def test_a_million_sends_need_one_timer(make_wire: Any) -> None:
    wire = make_wire()
    loop: Any = asyncio.get_running_loop()
    for _ in range(1000):
        wire.answer(wire.send())
    assert len(loop._scheduled) == 1


@virtual_time
async def test_a_blocked_loop_expires_no_answered_request(make_wire: Any) -> None:
    wire = make_wire(request_timeout_s=5.0)
    loop: Any = asyncio.get_running_loop()
    request = wire.send()

    # The loop is blocked for 60 s. Then, as uvloop does, it runs the overdue timer before it
    # reads the socket, where the answer has been for long.
    loop._now += 60.0
    wire.connection._check_deadlines()
    wire.answer(request, b"late")
    await asyncio.sleep(100)
    assert wire.done == [(request, b"late", None)]
    assert not wire.connection.closed


@virtual_time
async def test_a_blocked_loop_does_not_hide_a_dead_broker(make_wire: Any) -> None:
    wire = make_wire(request_timeout_s=5.0)
    loop: Any = asyncio.get_running_loop()
    wire.send()
    loop._now += 60.0
    await wire.connection.wait_closed()
    assert loop.time() < 62
    assert isinstance(wire.done[0][2], RequestTimedOutError)


class ForgetfulTransport(asyncio.Transport):
    """As plain sockets' in CPython 3.12.0 to 3.12.8: writelines() looks at no limit."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.held = 0

    def writelines(self, buffers: Any) -> None:
        self.held += sum(map(len, buffers))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high, low) == (None, None)
        if self.held > 65536:
            self.protocol.pause_writing()


@virtual_time
async def test_a_transport_that_forgets_its_limits_is_asked_to_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With acks=0 there is no other back-pressure."""
    monkeypatch.setattr("kafkaclient.net.pipeline._WRITELINES_NEVER_PAUSES", True)
    connection = Connection(node="broker 1", client_id="c", request_timeout_s=30)
    transport = ForgetfulTransport(connection)
    connection.connection_made(transport)
    sent = 0
    while connection.writable and sent < 100:
        connection.send([b"header", bytes(10_000)], None)
        sent += 1
    assert sent == 7
    transport.held = 0
    connection.resume_writing()
    assert connection.writable


async def test_a_peer_that_does_not_read_pauses_its_writers() -> None:
    """Whatever Python this is."""
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    connection = Connection(node="broker 1", client_id="c", request_timeout_s=30)
    ours.setblocking(False)
    await loop.create_connection(lambda: connection, sock=ours)
    sent = 0
    while connection.writable and sent < 100:
        connection.send([b"header", bytes(1_000_000)], None)
        sent += 1
    assert sent < 10
    connection.abort()
    await connection.wait_closed()
    theirs.close()
