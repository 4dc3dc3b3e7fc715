"""A producer and a consumer for code without an event loop: Django, Celery, scripts."""

from kafkaclient.sync.consumer import SyncConsumer
from kafkaclient.sync.producer import SyncProducer

__all__ = ["SyncConsumer", "SyncProducer"]
