"""Ports that stay free until a broker binds them, and whether something answers there."""

from __future__ import annotations

import asyncio
import random
import socket
from pathlib import Path
from typing import NamedTuple

from kafkaclient.testing.errors import LocalClusterError
from kafkaclient.testing.settings import HOST
from kafkaclient.wire.metadata import MetadataCall

# --- Chooses ports that stay free until a broker binds them ---------------------------------------

_LOWEST = 20_000  # the first port to choose from
_EPHEMERAL_START = 32_768  # the first port for outgoing connections, by Linux's default
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def port_range(ephemeral: str | None = None) -> range:
    """The ports to choose from, which are below the kernel's range for outgoing connections.

    A broker that restarts needs its port again. An outgoing connection may use a port of the
    ephemeral range: even a client that connects to the dead broker, which the kernel may connect to
    itself.
    """
    if ephemeral is None:
        try:
            ephemeral = _EPHEMERAL.read_text("ascii")
        except OSError:
            ephemeral = str(_EPHEMERAL_START)
    end = int(ephemeral.split()[0])
    return range(_LOWEST, end) if end >= _LOWEST + 1000 else range(_LOWEST, _EPHEMERAL_START)


def free_ports(count: int, chooser: random.Random | None = None) -> list[int]:
    """Distinct random ports on 127.0.0.1 without a listener.

    The choice is random, so that clusters that start at the same time choose different ports. The
    caller must still handle a port that another process binds first.
    """
    candidates = list(port_range())
    (chooser or random.SystemRandom()).shuffle(candidates)
    ports: list[int] = []
    for port in candidates:
        if _is_free(port):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise LocalClusterError(f"there are fewer than {count} free ports on {HOST} in {port_range()}")


def ports_from(first: int, count: int) -> list[int] | None:
    """``first`` and the ports after it; None if another process listens on one of them."""
    ports = list(range(first, first + count))
    return ports if all(_is_free(port, after_use=True) for port in ports) else None


def _is_free(port: int, *, after_use: bool = False) -> bool:
    """``after_use``: a port is free even if connections to an ended listener are in TIME_WAIT."""
    with socket.socket() as probe:
        if after_use:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


# --- Requests from a broker the members of its cluster --------------------------------------------

_CALL = MetadataCall(topics=(), allow_auto_topic_creation=False)
_VERSION = 4
_TIMEOUT_S = 2.0
_MAX_FRAME = 1 << 20


class Membership(NamedTuple):
    """The cluster's id and the brokers that are up (registered and not fenced)."""

    cluster_id: str | None
    brokers: frozenset[int]


async def membership(port: int) -> Membership | None:
    """The answer of the broker at this port on 127.0.0.1; None if it does not answer."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(_CALL.encode(_VERSION, 0, ""))
                size = int.from_bytes(await reader.readexactly(4), signed=True)
                if not 0 < size < _MAX_FRAME:
                    return None
                return parse_membership(await reader.readexactly(size))
            finally:
                writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return None


def parse_membership(response: bytes) -> Membership:
    """Parse a Metadata response of version 4, starting at its correlation id."""
    found = _CALL.decode(_VERSION, response[4:])
    return Membership(found.cluster_id, frozenset(broker.node_id for broker in found.brokers))
