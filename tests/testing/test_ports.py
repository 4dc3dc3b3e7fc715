"""Ports for brokers."""

from __future__ import annotations

import random
import socket

from kafkaclient.testing.ports import free_ports, port_range


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
