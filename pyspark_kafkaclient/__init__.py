"""Lets Spark find ``format("kafkaclient")``: Spark imports top-level modules named ``pyspark_*``
and looks for ``DefaultSource``.

Every session that uses a Python data source does so. An import error must not break it: if
dependencies are missing, there is no ``DefaultSource``, and ``kafkaclient.spark.register`` reports
the reason.
"""

from __future__ import annotations

try:
    from kafkaclient.spark.data_source import KafkaDataSource as DefaultSource
except ImportError:
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
