"""Ports for brokers."""

from __future__ import annotations

import contextlib
import random
import socket
import sys

import pytest

from kafkaclient.testing.broker import free_ports, port_range, ports_from


def test_they_lie_below_the_ports_of_outgoing_connections() -> None:
    assert port_range("32768\t60999\n") == range(20_000, 32_768)


def test_a_kernel_that_uses_nearly_all_ports() -> None:
    assert port_range("1024\t65535\n") == range(20_000, 32_768)


def test_they_are_distinct_and_can_be_bound() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))


def test_a_taken_port_is_passed_over() -> None:
    (first,) = free_ports(1, random.Random(7))
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", first))
        assert first not in free_ports(5, random.Random(7))


@pytest.mark.skipif(sys.platform != "linux", reason="ports are held on Linux only")
def test_held_ports_are_chosen_by_nobody_else_and_can_be_listened_on_again_and_again() -> None:
    with contextlib.ExitStack() as hold:
        (held,) = free_ports(1, random.Random(8), hold)
        for _ in range(2):
            assert held not in free_ports(5, random.Random(8))
            assert ports_from(held, 1) is None
            with socket.create_server(("127.0.0.1", held)) as server:  # with SO_REUSEADDR
                with socket.create_connection(server.getsockname()):
                    accepted, _ = server.accept()
                accepted.close()  # after the client: no TIME_WAIT on this side
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", held))
    assert held in free_ports(1, random.Random(8))


@pytest.mark.skipif(sys.platform != "linux", reason="ports are held on Linux only")
def test_fixed_ports_are_held_too_also_if_connections_to_them_are_in_time_wait() -> None:
    first = next(port for port in port_range() if ports_from(port, 2))
    listener = socket.create_server(("127.0.0.1", first))
    with listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        accepted.close()  # before the client: this side is in TIME_WAIT
    with contextlib.ExitStack() as hold:
        assert ports_from(first, 2, hold) == [first, first + 1]
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", first + 1))
        with socket.create_server(("127.0.0.1", first)):
            assert ports_from(first, 2) is None
        assert ports_from(first + 1, 1) is None
    assert ports_from(first, 2) == [first, first + 1]


def test_ports_from_a_port_are_those_after_it_unless_one_is_in_use() -> None:
    first = next(port for port in port_range() if ports_from(port, 3))
    assert ports_from(first, 3) == [first, first + 1, first + 2]
    with socket.create_server(("127.0.0.1", first + 2)) as server:
        assert ports_from(first, 3) is None
        assert ports_from(first, 2) == [first, first + 1]
        with socket.create_connection(server.getsockname()):
            accepted, _ = server.accept()
    accepted.close()  # closed by the server first: this side's connection is in TIME_WAIT
    assert ports_from(first, 3) == [first, first + 1, first + 2]
