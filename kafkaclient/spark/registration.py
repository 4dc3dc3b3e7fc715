"""Making ``format("kafkaclient")`` known to a session by hand."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kafkaclient.errors import ConfigError

__all__ = ["register"]


def register(spark: Any) -> None:
    """Register the data source ``kafkaclient`` with a ``SparkSession``.

    Sessions of Spark 4.2 and newer find it by themselves where the package is installed
    (``pyspark_kafkaclient``); this is for those that started before it was.

    Raises ConfigError when PySpark cannot be imported or is too old.
    """
    try:
        source = import_module("kafkaclient.spark.data_source").KafkaDataSource
    except ImportError as error:
        raise ConfigError(
            f"the data source needs PySpark 4.2 or newer and pyarrow ({error}): "
            "pip install 'kafkaclient[spark]'"
        ) from error
    spark.dataSource.register(source)
