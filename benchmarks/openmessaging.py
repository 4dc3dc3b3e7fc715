"""The OpenMessaging Benchmark's own driver, with its worker in Java and with ours, in turns.

    python -m benchmarks.openmessaging [--benchmark build/openmessaging] [--rates 5000]
                                       [--slow-ms 0,20] [--repeat 2] [--out FILE]

``--benchmark`` is a checkout of https://github.com/openmessaging/benchmark, built in place (see
docs/figures/openmessaging.md). Each run has new local brokers, one worker that produces and one
that consumes, a topic with 12 partitions, records of 1 KB without key, a minute to warm up and a
minute that counts. Both clients get the same options: those of the benchmark's
``kafka-latency.yaml``, but the clients commit, not the workers, which do so differently. With
``--slow-ms`` the network in front of one broker takes so long. Latencies are the driver's, in
milliseconds. Java's client is the one of the brokers' version.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import urllib.error
import urllib.request
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import write_results
from kafkaclient.testing.broker import dies_with_parent, free_ports
from kafkaclient.testing.cluster import LocalCluster
from kafkaclient.testing.jars import JarCache, read_lock
from kafkaclient.testing.jvm import find_java
from kafkaclient.testing.settings import DEFAULT_VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

KINDS = ("java", "kafkaclient")
_ROOT = Path(__file__).parent.parent
_BROKERS = 3
_WORKERS = 2
"""The first produces, the second consumes."""
_START_S = 60.0
_DRIVER_S = 300.0
_KEPT_UP = 0.95
"""Of the rate that was asked for: a run below it is no result."""
_WORKLOAD = {
    "name": "12 partitions, 1 KB",
    "topics": 1,
    "partitionsPerTopic": 12,
    "keyDistributor": "NO_KEY",
    "messageSize": 1024,
    "useRandomizedPayloads": True,
    "randomBytesRatio": 0.5,
    "randomizedPayloadPoolSize": 100,
    "subscriptionsPerTopic": 1,
    "consumerPerSubscription": 1,
    "producersPerTopic": 1,
    "warmupDurationMinutes": 1,
    "testDurationMinutes": 1,
}
DRIVER = """name: Kafka
driverClass: io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver
replicationFactor: 3
topicConfig: |
  min.insync.replicas=2
commonConfig: |
  bootstrap.servers={bootstrap}
producerConfig: |
  acks=all
  linger.ms=1
  batch.size=131072
consumerConfig: |
  auto.offset.reset=earliest
  enable.auto.commit=true
  max.partition.fetch.bytes=10485760
"""


class Benchmark:
    """A built checkout of the benchmark, and Java's client of the brokers' version before its."""

    def __init__(self, checkout: Path) -> None:
        kafka = JarCache().ensure(read_lock(DEFAULT_VERSION))
        client = (jar for jar in kafka if jar.name.startswith("kafka-clients-"))
        jars = [
            *client,
            *checkout.glob("*/target/*.jar"),
            *sorted((checkout / "lib").glob("*.jar")),
        ]
        if not any(jar.name.startswith("benchmark-framework") for jar in jars):
            raise SystemExit(
                f"--benchmark {checkout}: there is no benchmark-framework-*.jar in its target "
                "folders; docs/figures/openmessaging.md says how it is built"
            )
        self._java = [str(find_java().path), "-cp", ":".join(map(str, jars))]

    def worker(self, kind: str, port: int) -> list[str]:
        if kind == "kafkaclient":
            return [sys.executable, "-m", "experiments.openmessaging", "--port", str(port)]
        name = "io.openmessaging.benchmark.worker.BenchmarkWorker"
        return [*self._java, name, "--port", str(port), "--stats-port", str(*free_ports(1))]

    def driver(self, driver: Path, workers: Sequence[str], workload: Path, out: Path) -> list[str]:
        name = "io.openmessaging.benchmark.Benchmark"
        words = ("--drivers", str(driver), "--workers", ",".join(workers), "--output", str(out))
        return [*self._java, name, *words, str(workload)]


@asynccontextmanager
async def _running(command: Sequence[str], log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command as a process, until the end of the block."""
    with log.open("wb") as written:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=written, stderr=written, preexec_fn=dies_with_parent(),
            cwd=log.parent, env={**os.environ, "PYTHONPATH": str(_ROOT)},
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _answers(url: str) -> None:
    """Return once the worker does. Raises TimeoutError."""
    async with asyncio.timeout(_START_S):
        while True:
            try:
                await asyncio.to_thread(urllib.request.urlopen, f"{url}/counters-stats", timeout=5)
            except (urllib.error.URLError, OSError):
                await asyncio.sleep(0.3)
            else:
                return


async def run(benchmark: Benchmark, kind: str, rate: int, slow_ms: int) -> dict[str, Any]:
    """One run of the driver. Raises RuntimeError with its last words if it has no result."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        driver, workload, out = (folder / each for each in ("kafka.yaml", "load.yaml", "out.json"))
        workload.write_text(json.dumps(_WORKLOAD | {"producerRate": rate}))  # JSON is YAML
        try:
            async with AsyncExitStack() as stack:
                cluster = LocalCluster(brokers=_BROKERS, long_lived=True)
                await stack.enter_async_context(cluster)
                bootstrap = cluster.bootstrap
                if slow_ms:
                    await cluster.delay_produce(0, slow_ms / 1e3)
                    bootstrap = cluster.proxied_bootstrap
                driver.write_text(DRIVER.format(bootstrap=bootstrap))
                ports = free_ports(_WORKERS, hold=stack.enter_context(ExitStack()))
                urls = [f"http://127.0.0.1:{port}" for port in ports]
                for port in ports:
                    running = _running(benchmark.worker(kind, port), folder / f"worker-{port}.log")
                    await stack.enter_async_context(running)
                await asyncio.gather(*map(_answers, urls))
                command = benchmark.driver(driver, urls, workload, out)
                process = await stack.enter_async_context(_running(command, folder / "driver.log"))
                async with asyncio.timeout(_DRIVER_S):
                    await process.wait()
            found = json.loads(out.read_text("utf-8"))
        except (OSError, TimeoutError) as error:
            said = _last_words(folder)
            raise RuntimeError(f"{kind} at {rate}/s: no result ({error!r}):\n{said}") from error
    figures = _figures(found)
    slower = min(figures["publishRate"], figures["consumeRate"])
    if figures["publishErrorRate"] or slower < rate * _KEPT_UP:
        raise RuntimeError(f"{kind} did not keep up at {rate}/s, or records failed: {figures}")
    return {"worker": kind, "rate": rate, "slow_ms": slow_ms, **figures}


def _last_words(folder: Path) -> str:
    logs = (log.read_text("utf-8", "replace") for log in sorted(folder.glob("*.log")))
    return "\n".join(log[-1500:] for log in logs)


def _figures(result: dict[str, Any]) -> dict[str, float]:
    """What is kept of the driver's result: means over its periods, and latencies of the minute."""
    names = ("publishRate", "publishErrorRate", "consumeRate")
    rates = {name: round(sum(result[name]) / len(result[name]), 1) for name in names}
    latencies = {
        f"{short}_{what}_ms": round(result[f"aggregated{long}Latency{of}"] / scale, 3)
        for short, long, scale in (
            ("publish", "Publish", 1),
            ("delay", "PublishDelay", 1000),
            ("end_to_end", "EndToEnd", 1),
        )
        for what, of in (("avg", "Avg"), ("p50", "50pct"), ("p99", "99pct"), ("p999", "999pct"))
    }
    return {**rates, "backlog": result["backlog"][-1], **latencies}


async def measure(given: argparse.Namespace) -> None:
    benchmark, found = Benchmark(given.benchmark.resolve()), []
    for slow_ms in map(int, given.slow_ms.split(",")):
        for rate in map(int, given.rates.split(",")):
            for number in range(given.repeat):
                for kind in KINDS if number % 2 == 0 else KINDS[::-1]:
                    found.append(await run(benchmark, kind, rate, slow_ms))
                    print(found[-1], file=sys.stderr)
                    if given.out is not None:
                        write_results(found, given.out)
    if given.out is None:
        write_results(found, None)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--benchmark", type=Path, default=Path("build/openmessaging"))
    parser.add_argument("--rates", default="5000", help="records per second")
    parser.add_argument("--slow-ms", default="0,20", help="of broker 0")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--out", type=Path, help="a file for the results")
    given = parser.parse_args()
    asyncio.run(measure(given))


if __name__ == "__main__":
    main()
