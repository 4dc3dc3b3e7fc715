from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from experiments.java import parse_line, run_java
from kafkaclient.errors import KafkaError
from kafkaclient.perf.load import LoadSpec
from kafkaclient.perf.run import Labels
from kafkaclient.testing.cluster import ToolResult

if TYPE_CHECKING:
    from experiments.java import JavaOutcome

# As Kafka 4.3.1 printed them.
STDOUT = """\
Warmup first 2048 records. Steady state results will print after the complete test summary.
3072 records sent, 614.3 records/sec (0.30 MB/sec), 31.4 ms avg latency, 612.0 ms max latency.
6144 records sent, 1667.299864 records/sec (0.81 MB/sec), 1271.82 ms avg latency, \
1911.00 ms max latency, 1347 ms 50th, 1743 ms 95th, 1896 ms 99th, 1910 ms 99.9th.
4096 steady state records sent, 1522.676580 records/sec (0.74 MB/sec), 1135.34 ms avg latency, \
1673.00 ms max latency, 1159 ms 50th, 1610 ms 95th, 1661 ms 99th, 1673 ms 99.9th.
"""
KIP = (
    "122880 records sent, 2045.477245 records/sec (1.00 MB/sec), 40.06 ms avg latency, "
    "817.00 ms max latency, 7 ms 50th, 141 ms 95th, 154 ms 99th, 220 ms 99.9th."
)
NONE_SENT = (
    "0 records sent, 0.000000 records/sec (0.00 MB/sec), NaN ms avg latency, 0.00 ms max latency, "
    "0 ms 50th, 0 ms 95th, 0 ms 99th, 0 ms 99.9th."
)
SPEC = LoadSpec(6144, rate=2048.0, warmup_records=2048)


class Cluster:
    """A cluster that knows what the tool will print."""

    proxied_bootstrap = "127.0.0.1:1"

    def __init__(self, stdout: str, returncode: int = 0, stderr: str = "") -> None:
        self.result = ToolResult(returncode, stdout, stderr)
        self.words: tuple[str, ...] = ()

    async def run_tool(self, main_class: str, *arguments: str) -> ToolResult:
        self.words = (main_class, *arguments)
        return self.result


async def run(cluster: Any, **options: str) -> JavaOutcome:
    return await run_java(cluster, "t", options, SPEC, 512)


def test_the_final_line_of_the_tool() -> None:
    line = parse_line(KIP)
    assert line is not None
    assert (line.records, line.steady_state) == (122_880, False)
    assert line.seconds == pytest.approx(60.074, abs=1e-3)
    assert (line.avg_ms, line.p50_ms, line.p95_ms, line.p99_ms) == (40.06, 7, 141, 154)
    assert (line.p999_ms, line.max_ms) == (220, 817)
    assert line.points()[-1] == (100.0, 817.0)


def test_a_run_that_sent_nothing_has_a_line_too() -> None:
    line = parse_line(NONE_SENT)
    assert line is not None
    assert (line.records, line.seconds, line.avg_ms) == (0, 0.0, 0.0)


@pytest.mark.parametrize("line", [*STDOUT.splitlines()[:2], "", "java.lang.Error"])
def test_other_lines_are_none(line: str) -> None:
    assert parse_line(line) is None


async def test_the_whole_run_and_its_steady_state() -> None:
    outcome = await run(Cluster(STDOUT))
    assert outcome.steady_state is not None
    assert (outcome.whole.records, outcome.steady_state.records) == (6144, 4096)
    record = outcome.whole.record(SPEC, Labels("adaptive linger 5", 5.0, 2), 512, 6145)
    assert (record.client, record.setting, record.run) == ("java", "adaptive linger 5", 2)
    assert (record.rate, record.linger_ms, record.errors) == (2048, 5, 1)
    assert record.mb_per_s == pytest.approx(0.8141, abs=1e-4)
    assert record.lost is None


async def test_guarantees_are_level_and_the_settings_come_on_top() -> None:
    cluster = Cluster(STDOUT)
    await run(cluster, **{"linger.ms": "0"})
    words = " ".join(cluster.words)
    assert "--bootstrap-server 127.0.0.1:1 --topic t --num-records 6144 --record-size 512" in words
    assert "--throughput 2048.0 --warmup-records 2048 --command-property" in words
    assert {"acks=all", "enable.idempotence=true", "linger.ms=0"} < set(cluster.words)


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        (Cluster("", 1, "Exception: no such option"), "status 1.*no such option"),
        (Cluster("nothing of note"), "no result for topic t; it wrote: nothing of note"),
        (Cluster(""), "it wrote: nothing"),
    ],
)
async def test_a_tool_without_a_result_is_an_error(cluster: Cluster, told: str) -> None:
    with pytest.raises(KafkaError, match=told):
        await run(cluster)
