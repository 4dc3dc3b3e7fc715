"""Kafka from PySpark, without the JVM's connector. Needs the extra ``kafkaclient[spark]``."""

from __future__ import annotations

from kafkaclient.spark.session import spark_session

__all__ = ["spark_session"]
