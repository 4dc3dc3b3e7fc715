"""A TCP proxy in front of one broker that injects faults: :class:`FaultProxy`."""

from __future__ import annotations

from kafkaclient.testing.proxy.fault_proxy import FaultProxy
from kafkaclient.testing.proxy.faults import Frame, FrameFault, ProxyCounters

__all__ = ["FaultProxy", "Frame", "FrameFault", "ProxyCounters"]
