"""aiokafka's own producer, with acks=all and idempotence on."""

from __future__ import annotations

from benchmarks.produce.aiokafka_api import ways
from kafkaclient.aiokafka import uninstall

__all__ = ["WAYS"]

WAYS = ways(uninstall)
