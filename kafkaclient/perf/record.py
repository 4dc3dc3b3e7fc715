"""The JSON record that describes a run in every file of results."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["RunRecord", "write_runs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The figures of a run; ``None``: not known.

    Times are in milliseconds unless the name says seconds; ``mb_per_s`` counts 1024 * 1024 bytes
    of record values, as Kafka's own tool does. Lists are in the order of broker ids.
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
        return {name: _rounded(value) for name, value in asdict(self).items()}


def _rounded(value: Any) -> Any:
    # Six decimals are microseconds in seconds; further decimals are noise.
    return round(value, 6) if isinstance(value, float) else value


def write_runs(path: Path, runs: Sequence[dict[str, Any]], **more: Any) -> None:
    """Write a JSON object of ``runs`` and ``more``; creates the folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**more, "runs": list(runs)}, indent=2) + "\n", encoding="utf-8")
