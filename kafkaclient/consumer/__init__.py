"""Consumes topics as a member of a group, or partitions by hand (docs/how-to/consume.md)."""

from __future__ import annotations

from kafkaclient.consumer.consumer import Consumer
from kafkaclient.consumer.records import Record
from kafkaclient.consumer.subscription import RebalanceListener

__all__ = ["Consumer", "RebalanceListener", "Record"]
