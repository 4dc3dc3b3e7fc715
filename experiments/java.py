"""Java's producer, driven by Kafka's ``kafka-producer-perf-test`` from the local cluster's jars."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.clients import JAVA, client_config
from kafkaclient.errors import KafkaError
from kafkaclient.perf.run import RunRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.perf.load import LoadSpec
    from kafkaclient.perf.run import Labels
    from kafkaclient.testing.cluster import ClusterHandle, ToolResult

__all__ = [
    "JavaLine",
    "JavaOutcome",
    "load_words",
    "outcome",
    "parse_line",
    "run_java",
    "run_perf_test",
]

_PERF_TEST = "org.apache.kafka.tools.ProducerPerformance"
_LEVEL = {"acks": "all", "enable.idempotence": "true"}

_NUMBER = r"([\d.]+|NaN)"
_LINE = re.compile(
    rf"(\d+)( steady state)? records sent, {_NUMBER} records/sec \({_NUMBER} MB/sec\), "
    rf"{_NUMBER} ms avg latency, {_NUMBER} ms max latency, "
    r"(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th\."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaLine:
    """A line of the tool about a whole run; percentiles are whole milliseconds, rounded down."""

    steady_state: bool
    records: int
    records_per_s: float
    avg_ms: float
    max_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float

    @property
    def seconds(self) -> float:
        return self.records / self.records_per_s if self.records_per_s else 0.0

    def points(self) -> list[tuple[float, float]]:
        """The known points of the distribution: (percentile, ms), the maximum at 100."""
        return [
            (50.0, self.p50_ms),
            (95.0, self.p95_ms),
            (99.0, self.p99_ms),
            (99.9, self.p999_ms),
            (100.0, self.max_ms),
        ]

    def record(
        self, spec: LoadSpec, labels: Labels, value_bytes: int, due: int, client: str = JAVA
    ) -> RunRecord:
        """The line as a run's record; records missing from ``due`` count as errors."""
        return RunRecord(
            client=client,
            setting=labels.setting,
            rate=spec.rate,
            linger_ms=labels.linger_ms,
            run=labels.run,
            records=self.records,
            seconds=self.seconds,
            records_per_s=self.records_per_s,
            # The tool prints this figure with two decimals.
            mb_per_s=self.records_per_s * value_bytes / (1024 * 1024),
            avg_ms=self.avg_ms,
            p50_ms=self.p50_ms,
            p95_ms=self.p95_ms,
            p99_ms=self.p99_ms,
            p999_ms=self.p999_ms,
            max_ms=self.max_ms,
            errors=due - self.records,
        )


@dataclass(frozen=True, slots=True)
class JavaOutcome:
    """The tool's last lines: about the whole run, and about the part after the warm-up."""

    whole: JavaLine
    steady_state: JavaLine | None


def parse_line(line: str) -> JavaLine | None:
    """The line, if it is about a whole run; None for any other line of the tool."""
    match = _LINE.fullmatch(line.strip())
    if match is None:
        return None
    records, steady, rate, _mb, avg, highest, p50, p95, p99, p999 = match.groups()
    return JavaLine(
        steady_state=steady is not None,
        records=int(records),
        records_per_s=_float(rate),
        avg_ms=_float(avg),
        max_ms=_float(highest),
        p50_ms=float(p50),
        p95_ms=float(p95),
        p99_ms=float(p99),
        p999_ms=float(p999),
    )


def _float(text: str) -> float:
    return 0.0 if text == "NaN" else float(text)  # NaN: the average of no records


async def run_java(
    cluster: ClusterHandle,
    topic: str,
    options: Mapping[str, str],
    spec: LoadSpec,
    record_size: int,
    *,
    bootstrap: str | None = None,
) -> JavaOutcome:
    """The outcome of the load ``spec``, with acks=all and idempotence.

    The tool connects to ``bootstrap``, by default to the cluster's proxies. Raises as
    :func:`run_perf_test`.
    """
    return await run_perf_test(
        cluster,
        topic,
        client_config(bootstrap or cluster.proxied_bootstrap, options),
        *load_words(spec, record_size),
    )


def load_words(spec: LoadSpec, record_size: int) -> tuple[str, ...]:
    """The tool's words for a load."""
    return (
        *("--num-records", str(spec.num_records), "--record-size", str(record_size)),
        *("--throughput", str(spec.rate) if spec.rate else "-1"),
        *(("--warmup-records", str(spec.warmup_records)) if spec.warmup_records else ()),
    )


async def run_perf_test(
    cluster: ClusterHandle, topic: str, config: Mapping[str, str], *words: str
) -> JavaOutcome:
    """The outcome of the tool with further ``words``, and with acks=all and idempotence.

    Raises KafkaError, with the end of the tool's output, if it fails or prints no result.
    """
    properties = {**_LEVEL, **config}
    bootstrap = properties.pop("bootstrap.servers")
    result = await cluster.run_tool(
        _PERF_TEST,
        *("--bootstrap-server", bootstrap, "--topic", topic),
        *words,
        *("--command-property", *(f"{name}={value}" for name, value in properties.items())),
    )
    return outcome("Java's ProducerPerformance", topic, result)


def outcome(tool: str, topic: str, result: ToolResult) -> JavaOutcome:
    """What a tool with this output has told. Raises KafkaError if it has failed or told nothing."""
    lines = [line for line in map(parse_line, result.stdout.splitlines()) if line is not None]
    whole = [line for line in lines if not line.steady_state]
    if result.returncode or not whole:
        output = (result.stderr or result.stdout).strip()[-600:] or "nothing"
        raise KafkaError(
            f"{tool} ended with status {result.returncode} and no result for topic {topic}; "
            f"it wrote: {output}"
        )
    steady = [line for line in lines if line.steady_state]
    return JavaOutcome(whole[-1], steady[-1] if steady else None)
