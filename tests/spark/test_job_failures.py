from __future__ import annotations

import pytest
from py4j.protocol import Py4JError

from kafkaclient.errors import ConfigError
from kafkaclient.spark.jobs import SparkJobError, spark_failures

SAID = """An error occurred while calling o30.parquet.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.jobAbortedError(Errors.scala:496)
\t... 42 more
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""


IN_A_WORKER = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "counting.py", line 90, in read_batches
    with pq.ParquetFile(path) as file:
         ^^^^^^^^^^^^^^^^^^^^
kafkaclient.spark.session.SparkJobError: /facts/batches-a.parquet cannot be read
"""


def test_a_python_workers_error_has_no_frames() -> None:
    with pytest.raises(SparkJobError) as raised, spark_failures("the report"):
        raise Py4JError(IN_A_WORKER)
    assert str(raised.value) == (
        "the report: An exception was thrown from the Python worker. Please see the stack trace "
        "below. kafkaclient.spark.session.SparkJobError: /facts/batches-a.parquet cannot be read"
    )


def test_the_message_has_the_first_lines_of_spark() -> None:
    with pytest.raises(SparkJobError) as raised, spark_failures("the report"):
        raise Py4JError(SAID)
    message = str(raised.value)
    assert message.startswith("the report: An error occurred while calling")
    assert "No space left on device" in message
    assert "Errors.scala" not in message
    assert isinstance(raised.value.__cause__, Py4JError)


@pytest.mark.parametrize("error", [ConfigError("wrong"), OSError("gone"), ValueError("defect")])
def test_other_errors_pass(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, spark_failures("the report"):
        raise error
    assert raised.value is error
