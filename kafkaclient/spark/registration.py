"""Registers ``format("kafkaclient")`` with a session."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kafkaclient.errors import ConfigError

__all__ = ["register"]


def register(spark: Any) -> None:
    """Register the data source ``kafkaclient`` with a ``SparkSession``.

    Only needed for a session that started before this package was installed. Later sessions of
    Spark 4.2 and newer find the source by themselves (``pyspark_kafkaclient``).

    Raises ConfigError if PySpark cannot be imported or is too old.
    """
    try:
        source = import_module("kafkaclient.spark.data_source").KafkaDataSource
    except ImportError as error:
        raise ConfigError(
            f"the data source needs PySpark 4.2 or newer and pyarrow ({error}): "
            "pip install 'kafkaclient[spark]'"
        ) from error
    spark.dataSource.register(source)
