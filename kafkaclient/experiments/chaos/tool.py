"""Java's producer in a campaign: its own load tool, which sends records without key only.

The tool numbers its values and tells latencies as four percentiles at its end. Which records failed
it does not say, only how many were acknowledged: what is lost is counted as far as that allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import KafkaError
from kafkaclient.experiments.chaos.ledger import Verdict
from kafkaclient.experiments.chaos.plan import JAVA
from kafkaclient.experiments.chaos.results import ClientResult, Latencies
from kafkaclient.experiments.java import JavaLine, parse_line
from kafkaclient.experiments.readback import read_topic

if TYPE_CHECKING:
    from kafkaclient.experiments.chaos.plan import Plan
    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["JavaLoad"]

_PERF_TEST = "org.apache.kafka.tools.ProducerPerformance"
_TOLD = 600


@dataclass(slots=True)
class JavaLoad:
    """``await run()`` while the faults go on, then ``await judge()``."""

    cluster: ClusterHandle
    plan: Plan
    line: JavaLine | None = field(default=None)

    @property
    def records(self) -> int:
        return int(self.plan.rate * self.plan.seconds)

    async def run(self) -> None:
        """Raises KafkaError when the tool fails, with the end of what it wrote."""
        result = await self.cluster.run_tool(
            _PERF_TEST,
            *("--bootstrap-server", self.cluster.proxied_bootstrap),
            *("--topic", self.plan.topic(JAVA, "unkeyed"), "--payload-monotonic"),
            *("--num-records", str(self.records), "--throughput", str(self.plan.rate)),
            *("--command-property", "acks=all", "enable.idempotence=true"),
            "partitioner.availability.timeout.ms=100",
        )
        lines = [line for line in map(parse_line, result.stdout.splitlines()) if line is not None]
        if result.returncode or not lines:
            told = (result.stderr or result.stdout).strip()[-_TOLD:] or "nothing"
            raise KafkaError(
                f"Java's ProducerPerformance ended with status {result.returncode} and no result; "
                f"it wrote: {told}"
            )
        self.line = lines[-1]

    async def judge(self) -> ClientResult:
        """Read back what it sent."""
        assert self.line is not None
        copies = bytearray(self.records)
        unexpected = 0

        def take(message: Any) -> None:
            nonlocal unexpected
            text = message.value
            if text.isdigit() and int(text) < len(copies):
                copies[int(text)] = min(255, copies[int(text)] + 1)
            else:
                unexpected += 1

        await read_topic(self.cluster.bootstrap, self.plan.topic(JAVA, "unkeyed"), take)
        acked, there = self.line.records, len(copies) - copies.count(0)
        return ClientResult(
            client=JAVA,
            verdict=Verdict(
                sent=self.records,
                acked=acked,
                failed=self.records - acked,
                unresolved=0,
                lost=max(0, acked - there),
                duplicated=sum(copies) - there,
                reordered=0,
                misplaced=0,
                unexpected=unexpected,
            ),
            latencies=Latencies(
                {
                    "unkeyed": {
                        "p50": self.line.p50_ms,
                        "p99": self.line.p99_ms,
                        "p999": self.line.p999_ms,
                        "max": self.line.max_ms,
                    }
                },
                1.0,
                {},
            ),
            causes={"not told": self.records - acked} if acked < self.records else {},
        )
