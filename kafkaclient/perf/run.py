"""A run of a load through one client or many producers, and the JSON record that describes it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from multiprocessing import get_context
from threading import Thread
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import ConfigError, KafkaError
from kafkaclient.perf.clients import make_client
from kafkaclient.perf.latency import Distribution, Summary
from kafkaclient.perf.load import Load, LoadOutcome, LoadSpec
from kafkaclient.perf.traffic import merged_traffic
from kafkaclient.time_limit import loop_factory
from kafkaclient.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

    from kafkaclient.perf.clients import LoadClient
    from kafkaclient.perf.traffic import KeyValue, Traffic


_GIVE_UP_AFTER_S = 1.0


@dataclass(frozen=True, slots=True)
class Labels:
    """The fields of a record that distinguish a run from others."""

    setting: str
    linger_ms: float | None
    run: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The figures of a run; ``None``: not known.

    Times are in milliseconds unless the name says seconds; ``mb_per_s`` counts 1024 * 1024 bytes
    of keys and values. Kafka's own tool, whose records have no keys, counts values. Lists are in
    the order of broker ids.
    """

    client: str
    setting: str
    rate: float | None
    """Target records per second; None: as fast as possible."""
    linger_ms: float | None
    run: int
    """Number of the run among its repetitions, from 1."""
    records: int
    """Records acknowledged."""
    seconds: float
    records_per_s: float
    mb_per_s: float
    avg_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    max_ms: float | None
    bytes_per_broker: tuple[int, ...] | None = None
    requests_per_broker: tuple[int, ...] | None = None
    requests_per_s: float | None = None
    errors: int = 0
    """Records that the client reported as failed."""
    lost: int | None = None
    duplicated: int | None = None
    reordered: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The record as plain JSON values, fields in their documented order."""
        # Six decimals are microseconds in seconds; further decimals are noise.
        return {
            name: round(value, 6) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True, slots=True)
class LoadRun:
    """The results of a run."""

    outcome: LoadOutcome
    traffic: Traffic | None
    record: RunRecord


async def measure(
    client: LoadClient, load: Load, records: Iterable[KeyValue], labels: Labels
) -> LoadRun:
    """Run the load, then stop the client, also after an error. Raises what the load raises."""
    try:
        outcome = await load.run(records)
    except BaseException:
        # Raise the first error, even if stopping fails because of it.
        await asyncio.gather(client.stop(_GIVE_UP_AFTER_S), return_exceptions=True)
        raise
    await client.stop()
    traffic = client.traffic()
    record = record_of(client.name, load.spec.rate, outcome, traffic, labels)
    return LoadRun(outcome, traffic, record)


def record_of(
    client: str, rate: float | None, outcome: LoadOutcome, traffic: Traffic | None, labels: Labels
) -> RunRecord:
    """The record of a load's outcome; ``rate`` is the target, None: as fast as possible."""
    record = summary_record(client, rate, outcome.summary, labels)
    record = replace(record, errors=outcome.errors.total())
    if traffic is None:
        return record
    requests = traffic.requests_per_broker
    return replace(
        record,
        bytes_per_broker=traffic.bytes_per_broker,
        requests_per_broker=requests,
        requests_per_s=sum(requests) / record.seconds if requests and record.seconds else None,
    )


def summary_record(client: str, rate: float | None, summary: Summary, labels: Labels) -> RunRecord:
    """The record of a summary, without the errors and the traffic."""
    percentile = summary.distribution.percentile_ms
    same = ("records", "seconds", "records_per_s", "mb_per_s", "avg_ms", "max_ms")
    return RunRecord(
        **{name: getattr(summary, name) for name in same},
        **asdict(labels),
        client=client,
        rate=rate,
        p50_ms=percentile(50),
        p95_ms=percentile(95),
        p99_ms=percentile(99),
        p999_ms=percentile(99.9),
    )


def write_runs(path: Path, runs: Sequence[dict[str, Any]], **more: Any) -> None:
    """Write a JSON object of ``runs`` and ``more``; creates the folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps({**more, "runs": list(runs)}, indent=2) + "\n")


# --- A load through many producers on this machine, each in its own process -----------------------

_together: Barrier | None = None
"""In a producer's process: where it waits until all processes have started."""


def run_in_processes(plans: Sequence[ProducerPlan]) -> list[LoadRun]:
    """Run each plan in a new process, which has an event loop and a client; all start together.
    The processes end at once when this process is interrupted or dies.

    Raises KafkaError or ConfigError for the first plan that failed.
    """
    context = get_context("spawn")  # a fork would inherit threads' locks
    barrier = context.Barrier(len(plans))
    # Nothing is written. The processes see when the last writer, this process, has closed it.
    reader, writer = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(len(plans), context, _prepare, (barrier, reader))
    with reader, pool:
        try:
            # No process is free for a second plan before all have reached the barrier.
            return all_runs(pool.map(_work, plans))
        except BrokenProcessPool as error:
            raise KafkaError("a producer's process was killed, so the load was given up") from error
        except BaseException:
            writer.close()
            raise


def _prepare(barrier: Barrier, parent: Connection) -> None:
    global _together  # noqa: PLW0603 - the only way to hand a barrier to the pool's processes
    _together = barrier
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent as well
    Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Connection) -> None:
    parent.poll(None)  # until the pipe is closed
    os._exit(1)


def _work(plan: ProducerPlan) -> LoadRun | KafkaError:
    assert _together is not None
    _together.wait()
    return outcome_of(plan, KafkaError)


# --- A load that many producers share: their plans, and their runs as one run ---------------------


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    """One producer's part of the load."""

    client: str
    topic: str
    config: Mapping[str, str]
    spec: LoadSpec
    labels: Labels
    records: Callable[[], Iterable[KeyValue]]
    """Called where the producer runs; must be picklable."""


def shares(whole: ProducerPlan, producers: int) -> list[ProducerPlan]:
    """The load in equal shares of records, rate and warm-up. Each producer sends other records.

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
            records=partial(_every, producers, number, whole.records),
        )
        for number in range(producers)
    ]


async def run_plan(plan: ProducerPlan) -> LoadRun:
    """Run one producer's plan in this event loop."""
    client = make_client(plan.client, plan.config, plan.topic)
    return await measure(client, Load(client, plan.spec), plan.records(), plan.labels)


def outcome_of(plan: ProducerPlan, failure: type[KafkaError]) -> LoadRun | KafkaError:
    """The run of a plan in an event loop of its own, or why it failed: ConfigError or ``failure``.
    Not every error can be pickled."""
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(run_plan(plan))
    except ConfigError as error:
        return ConfigError(str(error))
    except (KafkaError, OSError) as error:
        return failure(str(error))


def all_runs(results: Iterable[LoadRun | KafkaError]) -> list[LoadRun]:
    """The runs of all producers. Raises the first error, with the producer's number."""
    runs = []
    for number, found in enumerate(results):
        if isinstance(found, KafkaError):
            raise type(found)(f"producer {number}: {found}")
        runs.append(found)
    return runs


def merged(runs: Sequence[LoadRun], client: str, spec: LoadSpec, labels: Labels) -> LoadRun:
    """The runs of all producers as one run, which lasts as long as the longest."""
    outcomes = [run.outcome for run in runs]
    steady = [found.steady_state for found in outcomes if found.steady_state is not None]
    errors: Counter[str] = sum((found.errors for found in outcomes), Counter())
    outcome = LoadOutcome(
        summary=_merged_summary([found.summary for found in outcomes]),
        steady_state=_merged_summary(steady) if steady else None,
        errors=errors,
    )
    traffic = merged_traffic([run.traffic for run in runs if run.traffic is not None])
    return LoadRun(outcome, traffic, record_of(client, spec.rate, outcome, traffic, labels))


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


def _every(step: int, first: int, records: Callable[[], Iterable[KeyValue]]) -> Iterator[KeyValue]:
    return islice(records(), first, None, step)


def _share(total: int, number: int, producers: int) -> int:
    return total // producers + (number < total % producers)
