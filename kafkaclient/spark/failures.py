"""What Spark raises, as one error of this package's."""

from __future__ import annotations

import re
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING

from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SparkJobError", "spark_failures"]

_LINES = 3
_FRAME = re.compile(r"\s*at |\s*\.\.\.|Traceback \(|  ")


class SparkJobError(KafkaError):
    """A Spark job failed; the message has what Spark said first, ``__cause__`` all of it."""


@contextmanager
def spark_failures(what: str) -> Iterator[None]:
    """Raise SparkJobError for what PySpark, or the JVM behind it, raises; ``what`` says doing what.

    Errors of this package's pass.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, _kinds()):
            raise SparkJobError(f"{what}: {_first_lines(str(error))}") from error
        raise


def _kinds() -> tuple[type[Exception], ...]:
    try:
        return (
            import_module("pyspark.errors").PySparkException,
            import_module("py4j.protocol").Py4JError,
        )
    except ImportError:  # then it is not Spark's
        return ()


def _first_lines(text: str) -> str:
    """Without stack traces, of the JVM or of a Python worker."""
    said = (line for line in text.splitlines() if line.strip() and not _FRAME.match(line))
    return " ".join(line.strip() for line in islice(said, _LINES))
