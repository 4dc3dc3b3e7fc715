"""Spark's jobs: their errors as one error of this package, their progress, garbage collection."""

from __future__ import annotations

import gc
import re
import sys
import threading
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAX_LINES = 3
_FRAME = re.compile(r"\s*at |\s*\.\.\.|Traceback \(|  ")
_POLL_INTERVAL_S = 0.25

_modules = 0  # imported at the last freeze_objects


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
    lines = (line for line in text.splitlines() if line.strip() and not _FRAME.match(line))
    return " ".join(line.strip() for line in islice(lines, _MAX_LINES))


@contextmanager
def report_progress(spark: Any, report: Callable[[int, int], None]) -> Iterator[None]:
    """Call ``report(tasks done, all tasks)`` for the active stages every 0.25 s, on a thread.

    Sessions of Spark Connect do not know their stages, so there are no calls. The
    calls end when the JVM ends.
    """
    context = getattr(spark, "_sc", None)
    if context is None:
        yield
        return
    tracker = context.statusTracker()
    stopped = threading.Event()

    def follow() -> None:
        with suppress(*_spark_error_types(), ConnectionError):  # the caller's job fails, too
            while not stopped.wait(_POLL_INTERVAL_S):
                found = map(tracker.getStageInfo, tracker.getActiveStageIds())
                stages = [stage for stage in found if stage is not None]
                if stages:
                    done = sum(stage.numCompletedTasks for stage in stages)
                    report(done, sum(stage.numTasks for stage in stages))

    thread = threading.Thread(target=follow, name="kafkaclient-spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def freeze_objects() -> None:
    """Exclude all current objects from garbage collection, if modules were imported since the last
    call. Then this call also collects garbage, including frozen objects.

    Spark's daemon makes workers collect garbage after each task (``pyspark.daemon``). Scanning
    everything that PySpark, pandas, PyArrow and this package define takes longer than a small task.
    """
    global _modules  # noqa: PLW0603 - sys.modules is global, too
    if len(sys.modules) > _modules:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)
