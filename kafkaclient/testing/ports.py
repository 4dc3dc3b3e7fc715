"""Ports that stay free: for the time between choosing and binding, and while a broker is down."""

from __future__ import annotations

import random
import socket
from pathlib import Path

from kafkaclient.testing.errors import LocalClusterError
from kafkaclient.testing.settings import HOST

__all__ = ["free_ports", "port_range"]

_LOWEST = 20_000
_EPHEMERAL_START = 32_768
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def port_range(ephemeral: str | None = None) -> range:
    """The ports to choose from: below those that the kernel gives to outgoing connections.

    A broker's port must still be its own when it comes back. In the ephemeral range any
    connection may take it meanwhile: even a client's attempt to reach the dead broker, which the
    kernel may then connect to itself.
    """
    if ephemeral is None:
        try:
            ephemeral = _EPHEMERAL.read_text("ascii")
        except OSError:
            ephemeral = str(_EPHEMERAL_START)
    end = int(ephemeral.split()[0])
    return range(_LOWEST, end) if end >= _LOWEST + 1000 else range(_LOWEST, _EPHEMERAL_START)


def free_ports(count: int, chooser: random.Random | None = None) -> list[int]:
    """Distinct ports on 127.0.0.1 that nothing listens on, chosen at random.

    At random, so that clusters that start at the same time do not choose alike; whoever binds
    must still be ready to choose again.
    """
    candidates = list(port_range())
    (chooser or random.SystemRandom()).shuffle(candidates)
    ports: list[int] = []
    for port in candidates:
        if _is_free(port):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise LocalClusterError(f"fewer than {count} free ports on {HOST} in {port_range()}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
