"""What Spark raises, as one error of this package's."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SparkJobError", "spark_failures"]

_LINES = 3


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
    """Without the JVM's stack traces."""
    lines = [line.strip() for line in text.splitlines()]
    said = [line for line in lines if line and not line.startswith(("at ", "..."))]
    return " ".join(said[:_LINES])
