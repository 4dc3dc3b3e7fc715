"""The benchmark on the terminal: every entry's medians, then the targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from benchmarks.produce.targets import medians

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.produce.targets import Line

__all__ = ["number", "runs_table", "targets_table"]

_MET = {True: "[green]yes[/]", False: "[red]no[/]", None: "[dim]not run[/]"}
_COLUMNS = (
    ("records/s", "records_per_s"),
    ("MB/s", "mb_per_s"),
    ("CPU µs/record", "cpu_us_per_record"),
    ("cores", "cpu_cores"),
    ("batch B", "batch_bytes_avg"),
    ("records/request", "records_per_request"),
    ("p50 ms", "p50_ms"),
    ("p99 ms", "p99_ms"),
    ("lag p99 ms", "lag_p99_ms"),
)


def number(value: float | None) -> str:
    """Three digits that matter, and thousands apart."""
    if value is None:
        return "-"
    if abs(value) >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def runs_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """The medians of each entry over its good runs."""
    table = Table(title="medians of the good runs", title_justify="left", box=None)
    table.add_column("entry")
    table.add_column("runs", justify="right")
    for title, _name in _COLUMNS:
        table.add_column(title, justify="right")
    found = medians(runs)
    for entry in dict.fromkeys(f"{run['client']}: {run['setting']}" for run in runs):
        own = [run for run in runs if f"{run['client']}: {run['setting']}" == entry]
        good = [run for run in own if not (run.get("failed") or run.get("unavailable"))]
        missing = {run["unavailable"] for run in own if run.get("unavailable")}
        if missing and not good:
            table.add_row(entry, f"[dim]not available: {'; '.join(missing)}[/]")
            continue
        counted = f"{len(good)}" if len(good) == len(own) else f"[red]{len(good)} of {len(own)}[/]"
        values = found.get(entry, {})
        table.add_row(entry, counted, *(number(values.get(name)) for _title, name in _COLUMNS))
    return table


def targets_table(lines: Sequence[Line]) -> Table:
    """One line for each target."""
    table = Table(title="targets", title_justify="left", box=None)
    for title in ("what", "ours", "other", "unit", "found", "target", "met"):
        right = title in ("ours", "other", "found")
        table.add_column(title, justify="right" if right else "left")
    for line in lines:
        table.add_row(
            line.what,
            number(line.ours),
            number(line.other),
            line.unit,
            number(line.value),
            f"{line.sense} {line.target:g} {line.note}".rstrip(),
            _MET[line.met],
        )
    return table
