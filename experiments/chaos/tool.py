"""Java's producer in a campaign: its load tool, which sends records without key only.

The tool numbers its values, and prints four percentiles of the latency at its end. It prints how
many records were acknowledged, but not which: records are counted as lost if the log has fewer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from experiments.chaos.ledger import Verdict
from experiments.chaos.results import ClientResult, Latencies
from experiments.clients import JAVA, client_config
from experiments.java import JavaLine, run_perf_test
from experiments.readback import read_topic

if TYPE_CHECKING:
    from experiments.chaos.plan import Plan
    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["JavaLoad"]


@dataclass(slots=True)
class JavaLoad:
    """``await run()`` while faults strike, then ``await judge()``."""

    cluster: ClusterHandle
    plan: Plan
    line: JavaLine | None = field(default=None)

    @property
    def records(self) -> int:
        return int(self.plan.rate * self.plan.seconds)

    async def run(self) -> None:
        """Send all records. Raises as :func:`~experiments.java.run_perf_test`."""
        outcome = await run_perf_test(
            self.cluster,
            self.plan.topic(JAVA, "unkeyed"),
            client_config(
                self.cluster.proxied_bootstrap, {"partitioner.availability.timeout.ms": "100"}
            ),
            "--payload-monotonic",
            *("--num-records", str(self.records), "--throughput", str(self.plan.rate)),
        )
        self.line = outcome.whole

    async def judge(self) -> ClientResult:
        """The result, after the topic was read back."""
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
