"""A run: a load through a client, and its record."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafkaclient.perf.record import RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkaclient.perf.clients import LoadClient
    from kafkaclient.perf.latency import Summary
    from kafkaclient.perf.load import Load, Outcome
    from kafkaclient.perf.payload import KeyValue
    from kafkaclient.perf.traffic import Traffic

__all__ = ["Labels", "Run", "measure", "record_of"]

_GIVE_UP_AFTER_S = 1.0


@dataclass(frozen=True, slots=True)
class Labels:
    """The fields of a record that distinguish a run from others."""

    setting: str
    linger_ms: float | None
    run: int = 1


@dataclass(frozen=True, slots=True)
class Run:
    """The results of a run."""

    outcome: Outcome
    traffic: Traffic | None
    record: RunRecord
    steady_state: RunRecord | None = None
    """The figures after the warm-up, without counts by broker; None without a warm-up."""


async def measure(
    client: LoadClient, load: Load, records: Iterable[KeyValue], labels: Labels
) -> Run:
    """Run the load, then stop the client, also after an error. Raises what the load raises."""
    try:
        outcome = await load.run(records)
    except BaseException:
        # Raise the first error, even if stopping fails because of it.
        await asyncio.gather(client.stop(_GIVE_UP_AFTER_S), return_exceptions=True)
        raise
    await client.stop()
    traffic = client.traffic()
    rate = load.spec.rate
    steady = outcome.steady_state
    return Run(
        outcome,
        traffic,
        record_of(client.name, rate, outcome, traffic, labels),
        None if steady is None else _record(client.name, rate, steady, labels),
    )


def record_of(
    client: str, rate: float | None, outcome: Outcome, traffic: Traffic | None, labels: Labels
) -> RunRecord:
    """The record of a load's outcome; ``rate`` is the target, None: as fast as possible."""
    record = _record(client, rate, outcome.summary, labels)
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


def _record(client: str, rate: float | None, summary: Summary, labels: Labels) -> RunRecord:
    percentile = summary.distribution.percentile_ms
    return RunRecord(
        client=client,
        setting=labels.setting,
        rate=rate,
        linger_ms=labels.linger_ms,
        run=labels.run,
        records=summary.records,
        seconds=summary.seconds,
        records_per_s=summary.records_per_s,
        mb_per_s=summary.mb_per_s,
        avg_ms=summary.avg_ms,
        p50_ms=percentile(50),
        p95_ms=percentile(95),
        p99_ms=percentile(99),
        p999_ms=percentile(99.9),
        max_ms=summary.max_ms,
    )
