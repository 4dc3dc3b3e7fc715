"""Says which packages Spark's Python workers lack.

Without this, a read fails in PySpark's own code, with a traceback that names pyarrow and no remedy.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from kafkaclient.errors import ConfigError
from kafkaclient.spark.jobs import spark_failures

NEEDED = ("kafkaclient", "kafka", "crc32c", "lz4", "cramjam", "pyarrow")
"""Modules that a task imports, apart from PySpark's."""

REMEDY = (
    "run pip install 'kafkaclient[spark]' with that Python, or set PYSPARK_PYTHON to one that has "
    "it before the session starts"
)

_PROBES = 256  # rows: some for each core of a small cluster


def check_workers(spark: Any) -> None:
    """Run a small job, which looks for these modules in the Python of the workers it runs in.

    Raises ConfigError that names the modules, the interpreter and the remedy; SparkJobError if
    the interpreter cannot be started.
    """
    # Pickled by value: a function that workers import by name would need this package there.
    needed = NEEDED

    def missing(_: int) -> str:
        import socket  # noqa: PLC0415 - in the worker
        import sys  # noqa: PLC0415
        from importlib.util import find_spec  # noqa: PLC0415

        names = ", ".join(name for name in needed if find_spec(name) is None)
        return f"{sys.executable} on {socket.gethostname()} has no {names}" if names else ""

    with spark_failures("Spark's Python workers cannot be checked"):
        udf = import_module("pyspark.sql.functions").udf(missing, "string", useArrow=False)
        found = {row[0] for row in spark.range(_PROBES).select(udf("id")).collect()} - {""}
    if found:
        raise ConfigError(
            f"the Python of Spark's workers lacks packages: {'; '.join(sorted(found))}: {REMEDY} "
            f"(this program's is {sys.executable})"
        )
