"""The one JSON record that describes a measured run, wherever it was measured."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["RunRecord", "reading_results", "write_records", "write_runs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What one run measured; ``None`` stands for what is not known.

    Times are in milliseconds unless the name says seconds; ``mb_per_s`` counts 1024 * 1024 bytes
    of record values, as Kafka's own tool does. Lists are in the order of broker ids.
    """

    client: str
    setting: str
    rate: float | None
    """Target records per second; None when sending as fast as possible."""
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
        values = asdict(self)
        return {field.name: _rounded(values[field.name]) for field in fields(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The record that :meth:`as_json` wrote; other fields beside its own are ignored."""
        known = {field.name: values[field.name] for field in fields(cls) if field.name in values}
        for name in ("bytes_per_broker", "requests_per_broker"):
            if known.get(name) is not None:
                known[name] = tuple(known[name])
        return cls(**known)


def _rounded(value: Any) -> Any:
    # Six decimals keep microseconds in every unit used here and spare readers the noise.
    return round(value, 6) if isinstance(value, float) else value


def write_runs(path: Path, runs: Sequence[dict[str, Any]], **more: Any) -> None:
    """Write ``{"runs": [...]}``; the folder is made when it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**more, "runs": list(runs)}, indent=2) + "\n", encoding="utf-8")


def write_records(path: Path, records: Sequence[RunRecord]) -> None:
    """Write the last record, with all of them under ``runs``.

    A reader that wants one run reads the top level; one that wants every repetition, or that
    also reads a ``summary.json``, reads ``runs``.
    """
    runs = [record.as_json() for record in records]
    write_runs(path, runs, **runs[-1])


@contextmanager
def reading_results(folder: Path, experiment: str, *files: str) -> Iterator[None]:
    """Raises ConfigError for whatever is wrong with an experiment's files while they are read."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{folder} does not hold the results of `kafkaclient experiment {experiment}` "
            f"({', '.join(files)}): {error}"
        ) from error
