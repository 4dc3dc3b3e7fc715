"""A run of a load through a client, and the JSON record that describes a run in all files."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from kafkaclient.perf.clients import LoadClient
    from kafkaclient.perf.latency import Summary
    from kafkaclient.perf.load import Load, LoadOutcome
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
    path.write_text(json.dumps({**more, "runs": list(runs)}, indent=2) + "\n", encoding="utf-8")
