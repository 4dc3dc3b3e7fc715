"""The pipeline of examples/flights_pipeline.py, with an executor killed on the way."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "flights_pipeline.py"

pytestmark = [pytest.mark.full, pytest.mark.local_cluster, pytest.mark.timeout(900)]


async def test_each_figure_is_as_in_pandas(tmp_path) -> None:
    """The program itself compares, and ends with an error if a figure is another one."""
    command = (sys.executable, str(EXAMPLE), str(tmp_path / "out"), "--kill")
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, stderr=STDOUT, start_new_session=True
    )
    try:
        output = (await process.communicate())[0].decode()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    assert process.returncode == 0, output[-5000:]
    assert "killed executor" in output
    assert "5,442 days and carriers, 336,776 flights: as in pandas" in output
    assert "publish: 336,777 records" in output  # and the one at the end
    # Some attempts of the streaming query were lost, and others repeated their rows.
    (written,) = re.findall(r"process: ([\d,]+) records", output)
    assert int(written.replace(",", "")) >= 5442
    assert (tmp_path / "out" / "report" / "report.html").exists()
