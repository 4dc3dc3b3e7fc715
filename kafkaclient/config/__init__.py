"""The producer's options: one typed declaration each, validation and the generated reference."""

from __future__ import annotations

from kafkaclient.config.producer import ProducerConfig
from kafkaclient.config.reference import render_reference

__all__ = ["ProducerConfig", "render_reference"]
