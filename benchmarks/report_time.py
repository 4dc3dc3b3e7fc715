"""How long does ``kafkaclient report`` take, and how much memory?

    python -m benchmarks.report_time [--scale 1] [--folder FOLDER] [--out FILE]

Writes telemetry (``benchmarks.telemetry_facts``) of four shapes, one after the other, and reports
on each with two tasks at a time: a few producers that send much, and a fleet of 200 whose files are
small. The largest takes 6 GB on the disk. Memory is the most that Spark's Python workers together,
and its JVM, had at one time for themselves.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import write_results
from benchmarks.spark.wide import Memory

SHAPES = ((10_000_000, 4, 5000), (100_000_000, 4, 5000), (16_675_200, 200, 386))
SHAPES += ((33_350_400, 200, 386),)
"""Batches, producers, batches per second."""
_MASTER = "--master=local[2]"
_REPORT = "from kafkaclient.cli import main; main()"


async def _run(*words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, *words, stdout=sys.stderr)


async def _ended(process: asyncio.subprocess.Process) -> None:
    if await process.wait():
        raise SystemExit("the command failed; see what it wrote above")


async def measure(folder: Path, batches: int, producers: int, per_s: float) -> dict[str, Any]:
    facts = folder / "facts"
    shape = (f"--batches={batches}", f"--producers={producers}", f"--batches-per-s={per_s}")
    await _ended(await _run("-m", "benchmarks.telemetry_facts", str(facts), *shape, _MASTER))
    runs = sorted(str(run) for run in facts.iterdir())
    began = time.monotonic()
    reporting = await _run("-c", _REPORT, "report", *runs, f"--out={folder / 'report'}", _MASTER)
    async with Memory(reporting.pid) as memory:
        await _ended(reporting)
    found = {
        "batches": batches,
        "producers": producers,
        "files": sum(1 for _ in facts.rglob("*.parquet")),
        "seconds": round(time.monotonic() - began, 1),
        "python_mb": round(memory.python_mb),
        "jvm_mb": round(memory.jvm_mb),
    }
    sys.stderr.write(f"{found}\n")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report_time", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of batches (1)")
    parser.add_argument("--folder", type=Path, help="where the telemetry is written, and removed")
    parser.add_argument("--out", type=Path, help="a file for the results")
    given = parser.parse_args()
    found = []
    for batches, producers, per_s in SHAPES:
        with TemporaryDirectory(dir=given.folder) as folder:
            shape = (int(batches * given.scale), producers, per_s)
            found.append(asyncio.run(measure(Path(folder), *shape)))
    write_results(found, given.out)


if __name__ == "__main__":
    main()
