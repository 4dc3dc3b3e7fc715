"""A load through many producers, each in a Spark task, which start at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kafkaclient.errors import ConfigError, KafkaError
from kafkaclient.event_loop import loop_factory
from kafkaclient.perf.clients import make_client
from kafkaclient.perf.latency import Distribution, Summary
from kafkaclient.perf.load import Load, LoadSpec, Outcome
from kafkaclient.perf.run import Labels, Run, measure, record_of
from kafkaclient.perf.traffic import merged_traffic
from kafkaclient.spark.jobs import SparkJobError, spark_failures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kafkaclient.perf.payload import KeyValue

BARRIER_SETTINGS = {
    # A load that fails must not be sent again.
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.speculation": "false",
    # Wait a minute for executors that are starting; Spark's default is ten minutes.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "60",
}
"""Settings of a Spark session for :func:`run_together`."""


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    """The load of a producer of the fleet."""

    client: str
    topic: str
    config: Mapping[str, str]
    spec: LoadSpec
    labels: Labels
    records: Callable[[], Iterable[KeyValue]]
    """Called in the task; must be picklable."""


def shares(whole: ProducerPlan, producers: int) -> list[ProducerPlan]:
    """The load in equal shares of records, rate and warm-up.

    Client ids and transactional ids get a number. Raises ConfigError if there are fewer records
    than producers.
    """
    spec = whole.spec
    if spec.num_records < producers:
        raise ConfigError(f"{spec.num_records} records cannot be shared by {producers} producers")
    return [
        replace(
            whole,
            config={
                name: f"{value}-{number}" if name in ("client.id", "transactional.id") else value
                for name, value in whole.config.items()
            },
            spec=replace(
                spec,
                num_records=_share(spec.num_records, number, producers),
                rate=None if spec.rate is None else spec.rate / producers,
                warmup_records=_share(spec.warmup_records, number, producers),
            ),
        )
        for number in range(producers)
    ]


def run_together(spark: Any, plans: Sequence[ProducerPlan]) -> list[Run]:
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
        results: list[Run | KafkaError] = tasks.mapPartitions(_work).collect()
    for number, found in enumerate(results):
        if isinstance(found, KafkaError):
            raise type(found)(f"producer {number}: {found}")
    return [found for found in results if isinstance(found, Run)]


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


def merged(runs: Sequence[Run], client: str, spec: LoadSpec, labels: Labels) -> Run:
    """The runs of all producers as one run, which lasts as long as the longest."""
    outcomes = [run.outcome for run in runs]
    steady = [found.steady_state for found in outcomes if found.steady_state is not None]
    errors: Counter[str] = sum((found.errors for found in outcomes), Counter())
    outcome = Outcome(
        summary=_merged_summary([found.summary for found in outcomes]),
        steady_state=_merged_summary(steady) if steady else None,
        errors=errors,
    )
    traffic = merged_traffic([run.traffic for run in runs if run.traffic is not None])
    return Run(outcome, traffic, record_of(client, spec.rate, outcome, traffic, labels))


def _merged_summary(parts: Sequence[Summary]) -> Summary:
    records = sum(part.records for part in parts)
    total_ms = sum(part.avg_ms * part.records for part in parts if part.avg_ms is not None)
    return Summary(
        records=records,
        nbytes=sum(part.nbytes for part in parts),
        seconds=max(part.seconds for part in parts),
        avg_ms=total_ms / records if records else None,
        distribution=Distribution.merged(part.distribution for part in parts),
    )


def _share(total: int, number: int, producers: int) -> int:
    return total // producers + (number < total % producers)


def _work(plans: Iterable[ProducerPlan]) -> Iterator[Run | KafkaError]:
    (plan,) = plans
    # Before anything can fail: a task that does not reach the barrier blocks the others.
    import_module("pyspark").BarrierTaskContext.get().barrier()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            yield runner.run(_measured(plan))
    except ConfigError as error:
        yield ConfigError(str(error))
    except (KafkaError, OSError) as error:
        yield SparkJobError(str(error))


async def _measured(plan: ProducerPlan) -> Run:
    client = make_client(plan.client, plan.config, plan.topic)
    return await measure(client, Load(client, plan.spec), plan.records(), plan.labels)
