"""Spark's errors as one error of this package."""

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

_MAX_LINES = 3
_FRAME = re.compile(r"\s*at |\s*\.\.\.|Traceback \(|  ")


class SparkJobError(KafkaError):
    """A Spark job failed. The message starts with Spark's; ``__cause__`` is Spark's error."""


@contextmanager
def spark_failures(what: str) -> Iterator[None]:
    """Raise SparkJobError for errors of PySpark or of its JVM. ``what``: what was being done.

    Errors of this package are raised unchanged.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, _spark_error_types()):
            raise SparkJobError(f"{what}: {_first_lines(str(error))}") from error
        raise


def _spark_error_types() -> tuple[type[Exception], ...]:
    try:
        return (
            import_module("pyspark.errors").PySparkException,
            import_module("py4j.protocol").Py4JError,
        )
    except ImportError:  # without PySpark it is not a Spark error
        return ()


def _first_lines(text: str) -> str:
    """The first lines of the message, without stack traces of the JVM or a Python worker."""
    said = (line for line in text.splitlines() if line.strip() and not _FRAME.match(line))
    return " ".join(line.strip() for line in islice(said, _MAX_LINES))
