"""The options of clients: one typed declaration each, validation and the generated reference."""

from __future__ import annotations

from kafkaclient.config.client import ClientConfig
from kafkaclient.config.producer import ProducerConfig
from kafkaclient.config.reader import ReaderConfig
from kafkaclient.config.reference import render_reference

__all__ = ["ClientConfig", "ProducerConfig", "ReaderConfig", "render_reference"]
