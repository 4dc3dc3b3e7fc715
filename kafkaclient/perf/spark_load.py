"""A load through many producers, each in a Spark task, which start at the same time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kafkaclient.errors import ConfigError
from kafkaclient.perf.run import all_runs, outcome_of
from kafkaclient.spark.jobs import SparkJobError, spark_failures

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kafkaclient.errors import KafkaError
    from kafkaclient.perf.run import LoadRun, ProducerPlan

BARRIER_SETTINGS = {
    # A load that fails must not be sent again.
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.speculation": "false",
    # Wait a minute for executors that are starting; Spark's default is ten minutes.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "60",
}
"""Settings of a Spark session for :func:`run_together`."""


def run_together(spark: Any, plans: Sequence[ProducerPlan]) -> list[LoadRun]:
    """Run each plan in a Spark task, which has an event loop and a client; all start together.

    Raises SparkJobError or ConfigError for the first plan that failed.
    """
    if getattr(spark, "_sc", None) is None:
        raise ConfigError(
            "tasks start together by barriers of Spark's RDDs, and Spark Connect has none: "
            "give the master's own URL"
        )
    tasks = spark.sparkContext.parallelize(plans, len(plans)).barrier()
    with spark_failures(f"the load of {len(plans)} producers"):
        results: list[LoadRun | KafkaError] = tasks.mapPartitions(_work).collect()
    return all_runs(results)


def check_slots(master: str, producers: int) -> None:
    """Raises ConfigError if a ``local[n]`` master has fewer task slots than producers."""
    scheme, _, rest = master.partition("[")
    slots = rest.rstrip("]").partition(",")[0]
    if urlsplit(master).scheme or scheme != "local" or not (slots.isdigit() or not slots):
        return
    if producers > int(slots or 1):
        raise ConfigError(
            f"{producers} producers start together, and {master} runs {slots or 1} tasks at once: "
            f"--spark-master 'local[{producers}]'"
        )


def _work(plans: Iterable[ProducerPlan]) -> Iterator[LoadRun | KafkaError]:
    (plan,) = plans
    # Before anything can fail: a task that does not reach the barrier blocks the others.
    import_module("pyspark").BarrierTaskContext.get().barrier()
    yield outcome_of(plan, SparkJobError)
