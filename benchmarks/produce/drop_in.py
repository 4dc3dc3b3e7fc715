"""``kafkaclient.aiokafka``: this package's producer behind aiokafka's API."""

from __future__ import annotations

from benchmarks.produce.aiokafka_api import ways
from kafkaclient.aiokafka import install

__all__ = ["WAYS"]

WAYS = ways(install)
