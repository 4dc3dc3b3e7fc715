"""Clients without brokers for tests: :class:`MockProducer`, :class:`MockConsumer`."""

from __future__ import annotations

from kafkaclient.testing.mock.consumer import MockConsumer, MockConsumerCall
from kafkaclient.testing.mock.producer import MockProducer
from kafkaclient.testing.mock.records import MockCall, MockRecord

__all__ = ["MockCall", "MockConsumer", "MockConsumerCall", "MockProducer", "MockRecord"]
