"""The data source behind ``format("kafkaclient")``.

Spark creates it from the options wherever it needs one, and sends copies to workers. So no
connection is opened before a read is planned or a task runs. Each planning step imports this module
in a new process, and so does every session that uses any Python data source. Methods therefore
import what only they need.
"""

from __future__ import annotations

import logging
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark import __version__ as spark_version
from pyspark.sql.datasource import DataSource

from kafkaclient.errors import ConfigError
from kafkaclient.spark.given_options import without_effect
from kafkaclient.spark.jobs import freeze_objects
from kafkaclient.spark.options import (
    ENDING,
    SUBSCRIPTIONS,
    TRIGGER,
    ReadOptions,
    WriteOptions,
    read_schema,
)
from kafkaclient.spark.session import REMEDY

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

    from kafkaclient.spark.given_options import Mode
    from kafkaclient.spark.rows import WriteColumns

_log = logging.getLogger(__name__)


class KafkaDataSource(DataSource):
    """``format("kafkaclient")``, with the columns and options of spark-sql-kafka
    (docs/how-to/spark.md)."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        if find_spec("pyarrow") is None:  # PySpark's own code fails next, without a remedy
            raise ConfigError(
                f"the Python of Spark's workers lacks a package: {sys.executable} has no pyarrow: "
                f"{REMEDY}"
            )

    @classmethod
    def name(cls) -> str:
        return "kafkaclient"

    def schema(self) -> StructType:
        """The columns of a read. ``load()`` calls it, and fails here for most invalid options."""
        if not any(name in self.options for name in SUBSCRIPTIONS):
            return read_schema(headers=False)  # a write, or a read whose reader() will raise
        for name in without_effect(self.options):  # here, because ``load()`` calls this only once
            _log.warning(
                "option %s has no effect: this source uses no consumer group. The option "
                "commitOffsetsToGroup shows the lag of a query",
                name,
            )
        # The kind of read is not known yet, and only a batch read may have an end. If a batch read
        # has none, the errors of other options that are only for streams come from reader().
        has_end = any(name in self.options for name in ENDING)
        options = ReadOptions.parse(self.options, "batch" if has_end else "streaming")
        return read_schema(headers=options.include_headers, columns=options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        from kafkaclient.spark.source import batch_reader  # noqa: PLC0415

        options = self._read_options(schema, "batch")
        for name in TRIGGER:
            if name in self.options:
                _log.warning("option %s is ignored: it is for streaming reads", name)
        return batch_reader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        _require_streams()
        from kafkaclient.spark.stream import KafkaStreamReader  # noqa: PLC0415

        return KafkaStreamReader(self._read_options(schema, "streaming"))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from kafkaclient.spark.sink import KafkaWriter  # noqa: PLC0415

        if overwrite:
            raise ConfigError("a topic cannot be overwritten: use .mode('append')")
        return KafkaWriter(*self._write_options(schema, "batch"))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        _require_streams()
        freeze_objects()  # two processes per micro-batch call this and then collect garbage
        # ``overwrite`` is the output mode complete: all result rows, appended like other rows.
        options, columns = self._write_options(schema, "streaming")
        if options.exactly_once:
            from kafkaclient.spark.exactly_once import ExactlyOnceWriter  # noqa: PLC0415

            return ExactlyOnceWriter(options, columns)
        from kafkaclient.spark.sink import KafkaStreamWriter  # noqa: PLC0415

        return KafkaStreamWriter(options, columns)

    def _read_options(self, schema: StructType, mode: Mode) -> ReadOptions:
        options = ReadOptions.parse(self.options, mode)
        fixed = read_schema(headers=options.include_headers, columns=options.columns)
        if [(f.name, f.dataType) for f in schema] != [(f.name, f.dataType) for f in fixed]:
            raise ConfigError(
                f"the columns of this read are {fixed.simpleString()}: give no schema, choose "
                "columns with the option columns, and parse the column value"
            )
        return options

    def _write_options(self, schema: StructType, mode: Mode) -> tuple[WriteOptions, WriteColumns]:
        from kafkaclient.spark.rows import WriteColumns  # noqa: PLC0415

        options = WriteOptions.parse(self.options, mode)
        return options, WriteColumns.check(schema, options.topic)


def _require_streams() -> None:
    """Older versions cannot limit a batch, or tell a source where a query with
    ``Trigger.AvailableNow`` ends."""
    if find_spec("pyspark.sql.streaming.datasource") is None:
        raise ConfigError(
            f"streams need Spark 4.2 or newer, and this is Spark {spark_version}: use read and "
            "write instead of readStream and writeStream, or a newer Spark"
        )
