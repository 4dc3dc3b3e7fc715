"""A producer without brokers for tests: :class:`MockProducer`."""

from __future__ import annotations

from kafkaclient.testing.mock.producer import MockProducer
from kafkaclient.testing.mock.records import MockCall, MockRecord

__all__ = ["MockCall", "MockProducer", "MockRecord"]
