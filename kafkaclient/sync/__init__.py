"""A producer for code without an event loop: Django, Celery, scripts."""

from kafkaclient.sync.producer import SyncProducer

__all__ = ["SyncProducer"]
