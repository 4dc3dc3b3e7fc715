"""Where Spark finds ``format("kafkaclient")``: it looks through the top-level modules whose name
begins with ``pyspark_`` for a ``DefaultSource``.

It does so in every session that uses any Python data source, so nothing may fail here: without
what the source needs there is no ``DefaultSource``, and ``kafkaclient.spark.register`` says why.
"""

from __future__ import annotations

try:
    from kafkaclient.spark.data_source import KafkaDataSource as DefaultSource
except ImportError:
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
