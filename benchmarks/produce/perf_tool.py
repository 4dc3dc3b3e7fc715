"""Kafka's own ``kafka-producer-perf-test``, and the same load by franz-go: their steady states.

Either program says every half second what it has sent; what it says while the JVM still compiles
its code is left out, for the clock and for the CPU.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from benchmarks.produce.entries import FRANZ
from benchmarks.produce.result import Measured, UnavailableError
from experiments.franz import franz_command
from experiments.java import parse_line
from kafkaclient.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.produce.entry import Job
    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["Window", "parse_window", "run_perf_tool", "steady"]

_PERF_TEST = "org.apache.kafka.tools.ProducerPerformance"
_REPORT_MS = 500
_WARM_UP_S = 5.0
_EXPECTED_PER_S = 400_000
_EXPECTED_BYTES_PER_S = 100e6
_HEAP_MB = 512
_KEPT = 600

_WINDOW = re.compile(
    r"(\d+) records sent, ([\d.]+) records/sec \([\d.]+ MB/sec\), "
    r"[\d.]+ ms avg latency, [\d.]+ ms max latency\.?"
)


@dataclass(frozen=True, slots=True)
class Window:
    """What the tool did since its line before; CPU seconds of its process so far."""

    records: int
    seconds: float
    cpu_s: float


def parse_window(line: str) -> tuple[int, float] | None:
    """Records and seconds of one of the tool's lines on the way; None for any other line."""
    match = _WINDOW.fullmatch(line.strip())
    if match is None:
        return None
    records, rate = int(match[1]), float(match[2])
    return (records, records / rate) if rate else None


def steady(windows: Sequence[Window], warm_up_s: float = _WARM_UP_S) -> tuple[int, float, float]:
    """Records, seconds and CPU seconds after the warm-up, which is at most half of the run.

    Raises ValueError for less than two windows.
    """
    if len(windows) < 2:
        raise ValueError("the run was too short to tell the steady state from the warm-up")
    limit = min(warm_up_s, sum(window.seconds for window in windows) / 2)
    elapsed, first = 0.0, 0
    while elapsed < limit and first < len(windows) - 1:
        elapsed += windows[first].seconds
        first += 1
    kept = windows[first:]
    return (
        sum(window.records for window in kept),
        sum(window.seconds for window in kept),
        kept[-1].cpu_s - windows[first - 1].cpu_s,
    )


def _records(job: Job) -> int:
    """The tool counts records, not seconds."""
    if job.records is not None:
        return max(1, job.records // job.entry.slow)
    rate = min(_EXPECTED_PER_S, _EXPECTED_BYTES_PER_S / job.entry.value_bytes)
    return int(rate * (_WARM_UP_S + job.seconds))


async def run_perf_tool(cluster: ClusterHandle, job: Job) -> Measured:
    """Run the program on the brokers' direct addresses, with acks=all and idempotence on.

    Raises KafkaError with the end of what it wrote when it fails, UnavailableError without Go.
    """
    number = _records(job)
    linger_ms = f"{job.entry.linger_ms:g}"
    words = (
        *("--num-records", str(number), "--record-size", str(job.entry.value_bytes)),
        *("--throughput", "-1", "--reporting-interval", str(_REPORT_MS)),
    )
    if job.entry.client == FRANZ:
        properties = {"bootstrap.servers": job.bootstrap, "linger.ms": linger_ms}
        try:  # Go may have to build the program
            command = await asyncio.to_thread(franz_command, job.topic, properties, *words)
        except ConfigError as error:
            raise UnavailableError(str(error)) from None
    else:
        command = cluster._running.launch.jvm.command(
            _PERF_TEST,
            (
                *("--bootstrap-server", job.bootstrap, "--topic", job.topic, *words),
                *("--command-property", "acks=all", "enable.idempotence=true"),
                f"linger.ms={linger_ms}",
            ),
            heap_mb=_HEAP_MB,
            properties={"log4j2.level": "OFF"},
        )
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        windows, last = await _read(process)
    except BaseException:
        process.kill()
        raise
    finally:
        told = (await process.communicate())[1].decode("utf-8", "replace")
    whole = parse_line(last)
    if process.returncode or whole is None:
        end = (told or last)[-_KEPT:]
        raise KafkaError(f"{job.entry.client}: exit status {process.returncode}: {end}")
    try:
        records, seconds, cpu_s = steady(windows)
    except ValueError as error:
        raise UnavailableError(str(error)) from None
    return Measured(
        records=records,
        seconds=seconds,
        cpu_seconds=cpu_s,
        value_bytes=job.entry.value_bytes,
        written=number,
        errors=number - whole.records,
        extras={"records_with_warm_up": whole.records},
    )


async def _read(process: asyncio.subprocess.Process) -> tuple[list[Window], str]:
    """The windows, and the last line of all."""
    assert process.stdout is not None
    watched = psutil.Process(process.pid)
    windows: list[Window] = []
    last = ""
    async for raw in process.stdout:
        line = raw.decode("utf-8", "replace").strip()
        window = parse_window(line)
        if window is not None:
            used = watched.cpu_times()
            windows.append(Window(*window, used.user + used.system))
        last = line or last
    return windows, last
