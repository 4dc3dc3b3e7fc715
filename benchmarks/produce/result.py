"""What a run gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.produce.entry import Job
    from benchmarks.produce.meter import Meter
    from benchmarks.produce.supply import Supply

__all__ = ["WARM_UP", "Measured", "UnavailableError", "run_fields"]

WARM_UP = 1024
"""Records that a client sends before its clock starts."""

_MB = 1024 * 1024


class UnavailableError(Exception):
    """The entry cannot be run here; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run. ``written``: records of the run and all around it, which the topic must have."""

    records: int
    seconds: float
    cpu_seconds: float
    value_bytes: float
    """The average."""
    written: int
    errors: int = 0
    extras: dict[str, Any] = field(default_factory=dict)
    """Further fields of the run's record, by name."""

    @classmethod
    def of(
        cls,
        supply: Supply,
        meter: Meter,
        extras: dict[str, Any] | None = None,
        *,
        errors: int = 0,
    ) -> Measured:
        """A run that has sent what it took of the supply, after its warm-up."""
        return cls(
            records=supply.records,
            seconds=meter.seconds,
            cpu_seconds=meter.cpu_seconds,
            value_bytes=supply.value_bytes,
            written=supply.records + WARM_UP,
            errors=errors,
            extras=extras or {},
        )


def run_fields(job: Job, measured: Measured, run: int) -> dict[str, Any]:
    """The record of a run, with the fields that every measured run has and some more."""
    entry = job.entry
    records = measured.records
    rate = records / measured.seconds if measured.seconds else 0.0
    known = {
        "client": entry.client,
        "setting": entry.setting,
        "rate": None,
        "linger_ms": entry.linger_ms,
        "run": run,
        "records": records,
        "seconds": measured.seconds,
        "records_per_s": rate,
        "mb_per_s": rate * measured.value_bytes / _MB,
        **dict.fromkeys(("avg_ms", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms")),
        "bytes_per_broker": None,
        "requests_per_broker": None,
        "requests_per_s": None,
        "errors": measured.errors,
        "lost": None,
        "duplicated": None,
        "reordered": None,
        "value_bytes": measured.value_bytes,
        "keyed": entry.keyed,
        "compression": entry.compression,
        "loop": entry.loop,
        "tasks": entry.tasks,
        "partitions": entry.partitions,
        "cpu_us_per_record": 1e6 * measured.cpu_seconds / measured.records
        if measured.records
        else None,
        "cpu_cores": measured.cpu_seconds / measured.seconds if measured.seconds else 0.0,
        "batch_bytes_avg": None,
        "records_per_request": None,
    }
    return {name: _rounded(value) for name, value in (known | measured.extras).items()}


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value
