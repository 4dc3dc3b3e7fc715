"""Streaming writes, at least once. Not in :mod:`kafkaclient.spark.sink`, because Spark 4.0 does not
have their base class."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from kafkaclient.spark.sink import TopicWriter


class KafkaStreamWriter(TopicWriter, DataSourceStreamArrowWriter):
    """A streaming write. Each micro-batch is written like a batch."""
