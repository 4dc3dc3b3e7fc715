"""Producers side by side on one local broker: this one, its peers, and a bare socket.

Every entry runs in a process of its own, one after the other and round after round, so that
whatever else the machine does meets all alike. Writes OUT/summary.json after every run, and
OUT/produce.svg at the end; Ctrl-C ends it and keeps what was measured.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from benchmarks.produce.bench import Limits, run_all
from benchmarks.produce.entries import ALL, choose
from benchmarks.produce.picture import draw
from benchmarks.produce.table import number, runs_table, targets_table
from benchmarks.produce.targets import judge
from experiments.machine import machine_facts
from kafkaclient.perf.run import write_runs
from kafkaclient.testing.jvm import find_java
from kafkaclient.testing.settings import DEFAULT_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.produce.bench import Outcome
    from benchmarks.produce.entry import Entry

_SUMMARY = "summary.json"
_PICTURE = "produce.svg"
_PIPE_WIDTH = 200
_INTERRUPTED = 130


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.produce", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="folder for results")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="PATTERN",
        help="entries whose client, setting, or both as 'client: setting', is this; with * and ?",
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run (5)")
    parser.add_argument(
        "--overload-seconds", type=float, default=60.0, help="of the run for memory (60)"
    )
    parser.add_argument("--records", type=int, help="end a run sooner, at about so many records")
    parser.add_argument("--repeat", type=int, default=3, help="rounds (3)")
    parser.add_argument("--json", action="store_true", help="summary.json on stdout, no tables")
    parser.add_argument("--list", action="store_true", help="name the entries, run nothing")
    return parser.parse_args()


async def _run(given: argparse.Namespace, entries: Sequence[Entry], runs: list[Any]) -> None:
    total = given.repeat * len(entries)
    facts = machine_facts(
        kafka=DEFAULT_VERSION, java=find_java().banner.splitlines()[0], **_versions()
    )
    limits = Limits(given.seconds, given.overload_seconds, given.records)
    async for outcome in run_all(entries, given.repeat, limits):
        runs.append(outcome.as_json())
        _write(given.out, facts, runs)
        sys.stderr.write(f"{len(runs)}/{total} round {outcome.run} {_told(outcome)}\n")


def _told(outcome: Outcome) -> str:
    name, fields = outcome.entry.name, outcome.fields
    if outcome.failed:
        return f"{name}: FAILED: {outcome.failed}"
    if fields is None:
        return f"{name}: not available: {outcome.unavailable}"
    told = [
        f"{number(fields[field])} {unit}"
        for field, unit in (
            ("records_per_s", "records/s"),
            ("cpu_us_per_record", "µs of CPU each"),
            ("p50_ms", "ms p50"),
            ("lag_p99_ms", "ms p99 of the loop's lag"),
            ("rss_peak_mb", "MB at most"),
        )
        if fields.get(field)
    ]
    return f"{name}: {', '.join(told)}"


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("kafka-python", "pyarrow")}


def _write(out: Path, facts: dict[str, Any], runs: Sequence[dict[str, Any]]) -> None:
    targets = [line.as_json() for line in judge(runs)]
    write_runs(out / _SUMMARY, runs, machine=facts, targets=targets)


def _show(given: argparse.Namespace, runs: Sequence[dict[str, Any]]) -> None:
    try:
        drawn = draw(given.out / _PICTURE, runs)
    except ModuleNotFoundError as error:
        drawn = False
        sys.stderr.write(f"no picture: {error.name} is not installed\n")
    if given.json:
        sys.stdout.write((given.out / _SUMMARY).read_text("utf-8"))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    console.print(runs_table(runs))
    console.print()
    console.print(targets_table(judge(runs)))
    files = [given.out / _SUMMARY, *([given.out / _PICTURE] if drawn else [])]
    console.print(", ".join(map(str, files)), style="dim", soft_wrap=True)


def main() -> None:
    """The exit status is 1 when a run failed, 130 after Ctrl-C."""
    given = _arguments()
    entries = choose(given.only)
    if given.list or not entries:
        sys.stdout.writelines(f"{entry.name}\n" for entry in (entries or ALL))
        sys.exit(0 if given.list else "no entry is called so; these are all")
    # What it retries is nobody's business here; what comes to nothing is told with the run.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    runs: list[dict[str, Any]] = []
    try:
        asyncio.run(_run(given, entries, runs))
    except KeyboardInterrupt:
        sys.stderr.write("ended early\n")
        sys.exit(_INTERRUPTED)
    finally:
        if runs:
            _show(given, runs)
    sys.exit(any(run.get("failed") for run in runs))


if __name__ == "__main__":
    main()
