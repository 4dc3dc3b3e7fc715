"""Batches work with what PySpark 4.0 and 4.1 have. ``make spark-versions`` tries real ones."""

from __future__ import annotations

import subprocess
import sys

import pytest

# What 4.0 has not. 4.1 has all of pyspark.sql.datasource.
LATER = {"4.0": ("DataSourceStreamArrowWriter", "Filter"), "4.1": ()}
CODE = """
import sys
from pyspark.sql import datasource

for name in sys.argv[1].split():
    delattr(datasource, name)
sys.modules["pyspark.sql.streaming.datasource"] = None
import kafkaclient.spark.data_source, kafkaclient.spark.sink, kafkaclient.spark.source

print(kafkaclient.spark.sink.KafkaWriter.__mro__[-3].__name__)
"""


@pytest.mark.parametrize("version", LATER)
def test_batches_are_read_and_written_without_what_came_later(version: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, " ".join(LATER[version])],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "DataSourceWriter\n"), done.stderr
