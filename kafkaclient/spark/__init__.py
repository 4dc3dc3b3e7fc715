"""Kafka data source for PySpark, without the JVM's connector. Needs ``kafkaclient[spark]``."""

from __future__ import annotations

from kafkaclient.spark.progress import QueryProgress, SourceProgress, count_bytes, progress
from kafkaclient.spark.session import register, spark_session

__all__ = [
    "QueryProgress",
    "SourceProgress",
    "count_bytes",
    "progress",
    "register",
    "spark_session",
]
