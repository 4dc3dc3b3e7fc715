"""Streaming writes, at least once. Apart from :mod:`kafkaclient.spark.sink`, because Spark 4.0 has no
class for them."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from kafkaclient.spark.sink import TopicWriter


class KafkaStreamWriter(TopicWriter, DataSourceStreamArrowWriter):
    """A streaming write. Each micro-batch is written like a batch."""
