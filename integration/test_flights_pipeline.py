"""The pipeline of the example, killed in the middle and started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pyarrow.dataset
import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "flights_pipeline.py"

pytestmark = [pytest.mark.full, pytest.mark.local_cluster, pytest.mark.timeout(600)]


async def _start(*arguments: str) -> asyncio.subprocess.Process:
    # A session of its own: Spark's JVM and Python's workers go with it when it is killed.
    command = (sys.executable, str(EXAMPLE), *arguments)
    return await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, stderr=PIPE, start_new_session=True
    )


async def test_killed_in_the_middle_it_loses_and_repeats_nothing(
    kafka_cluster, tmp_path, read_topic
):
    async def run(*more: str) -> None:
        process = await _start(kafka_cluster.bootstrap, "--out", str(tmp_path), *more)
        output, errors = await process.communicate()
        assert process.returncode == 0, (output + errors).decode()[-4000:]

    # From January to March, and a batch for about ten days.
    await run("--only", "publish", "--flights", "80000")
    small = ("--only", "process", "--per-trigger", "9000")
    victim = await _start(kafka_cluster.bootstrap, "--out", str(tmp_path), *small)
    third = tmp_path / "checkpoint" / "offsets" / "3"
    async with asyncio.timeout(300):
        while not third.exists() and victim.returncode is None:
            await asyncio.sleep(0.05)
    os.killpg(victim.pid, signal.SIGKILL)
    await victim.communicate()
    assert not (tmp_path / "checkpoint" / "commits" / "9").exists()
    await run(*small)
    await run("--only", "report")  # ends with 1 if a window is missing or there twice
    assert "0 windows missing, 0 too many" in (tmp_path / "report.html").read_text()
    table = pyarrow.dataset.dataset(tmp_path / "delays", format="parquet").to_table()
    days = table.to_pylist()
    assert sum(row["flights"] for row in days) == 80_000
    told = {record.key: json.loads(record.value) for record in await read_topic("delays")}
    assert sorted(row["flights"] for row in told.values()) == sorted(r["flights"] for r in days)
    assert len(told) == len(days)
