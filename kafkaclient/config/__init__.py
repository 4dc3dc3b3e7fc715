"""The options of clients: one typed declaration each, and their validation."""

from __future__ import annotations

from kafkaclient.config.client import ClientConfig
from kafkaclient.config.producer import ProducerConfig
from kafkaclient.config.reader import ReaderConfig

__all__ = ["ClientConfig", "ProducerConfig", "ReaderConfig"]
