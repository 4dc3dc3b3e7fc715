"""Tables of experiments, from results that the experiments' own classes make."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.figures.figure import RESULTS
from benchmarks.figures.tables import DIGESTS, FIGURES
from experiments.chaos.fault_runner import Outage
from experiments.chaos.ledger import Verdict
from experiments.chaos.plan import Plan as ChaosPlan
from experiments.chaos.results import ClientResult, Latencies, Resources
from experiments.chaos.results import Results as ChaosResults
from experiments.partition_limits.results import Cell, Sent
from experiments.rebalance.results import Joined
from experiments.replication_quota.results import Latency, MoveResult
from experiments.task_handover.results import Run
from kafkaclient.perf.run import RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCKS: dict[str, Callable[..., str]] = {
    **{name: render for figure in FIGURES for name, render in figure.blocks.items()},
    **{digest.name: digest.render for digest in DIGESTS},
}


def rows(name: str, *results: Any) -> list[list[str]]:
    """The cells of a table of results that have been through their file."""
    lines = BLOCKS[name](*(json.loads(json.dumps(each)) for each in results)).splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_object_store() -> None:
    runs = [
        RunRecord(
            client=client,
            setting=setting,
            rate=rate,
            linger_ms=5.0,
            run=run,
            records=1,
            seconds=1.0,
            records_per_s=rate - 100 * run,
            mb_per_s=1.0,
            avg_ms=440.0 + run,
            p50_ms=1.0,
            p95_ms=1.0,
            p99_ms=700.0,
            p999_ms=1.0,
            max_ms=1.0,
        ).as_json()
        for run in (1, 2)
        for rate in (8192.0, 20480.0)
        for client, setting in (("kafkaclient", "default"), ("java", "large"))
        if (client, rate) != ("java", 20480.0)
    ]
    found = {"plan": {"rates": [8192.0, 20480.0]}, "runs": runs}
    assert rows("object-store", found) == [
        ["kafkaclient", "default", "8,042", "442", "700", "20,330", "442", "700"],
        ["Java", "large", "8,042", "442", "700", "", "", ""],
    ]


def test_partition_limits() -> None:
    sent = Sent(
        client="kafkaclient", records=1, records_per_s=1.0, mbps=431.9, avg_ms=None, p99_ms=None
    )
    cell = Cell(
        replication=3,
        partitions=5000,
        topic_partitions=5000,
        answered_s=0.2,
        led_s=0.3,
        directories_s=39.04,
        sent=(sent,),
    )
    assert rows("partition-limits", {"runs": [cell.as_json()]}) == [
        ["5,000", "3", "432", "", "2.5", "0.2", "0.3", "39.0", ""]
    ]


def test_replication_quota() -> None:
    def latency(p99_ms: float) -> Latency:
        return Latency(records=1, failed=0, p50_ms=1.0, p99_ms=p99_ms, max_ms=1.0)

    def moved(load: float, **phases: Latency) -> dict[str, Any]:
        return MoveResult(
            scenario="one to two",
            load=load,
            quota=10_000_000,
            inbound=load * 1000,
            bytes_to_move=400_000_000,
            seconds=50.0,
            move_time_s=80.1,
            expected_s=40.1,
            samples=(),
            left=False,
            **phases,
        ).as_json()

    loaded = moved(2000.0, quiet=latency(19), throttled=latency(169), unthrottled=latency(1019))
    assert rows("replication-quota", {"runs": [moved(0.0), loaded]}) == [
        ["one to two", "10.0", "8.00", "80%", "50.0", "40.1", "80.1", "", "", ""],
        [
            *("one to two, with load", "8.0", "8.00", "100%", "50.0", "40.1", "80.1"),
            *("19", "169", "1,019"),
        ],
    ]


def test_handover_and_rebalance() -> None:
    run = Run("kip441", "join-2", 0.22, None, 15.4, 1_165_000_000, None, 3, 0, counts_exact=True)
    assert rows("task-handover", {"runs": [asdict(run)]}) == [
        ["the second joins", "0.22", "", "15.4", "3", "0", "1,165", ""]
    ]
    joined = Joined(
        tasks=1000,
        instances=11,
        started_s=11.0,
        balanced_s=37.0,
        after_warmup_s=2.4,
        most_warmups=100,
        moved=91,
        rebalances=20,
        evictions=0,
        records=1,
        wrong=0,
        examples=(),
        rss_mb=110.0,
    )
    assert rows("rebalance-1000", {"runs": [asdict(joined)]}) == [
        ["1,000", "11", "11.0", "37.0", "2.4", "91", "20", "0", "0", "110"]
    ]


def test_openmessaging() -> None:
    def run(worker: str, slow_ms: int, publish: float) -> dict[str, object]:
        rates = {"publishRate": 2000.2, "consumeRate": 1999.6, "delay_p99_ms": 0.52}
        publishing = {"publish_avg_ms": publish, "publish_p99_ms": 10 * publish}
        latencies = {"end_to_end_avg_ms": 4.0, "end_to_end_p99_ms": 12.0}
        asked = {"worker": worker, "rate": 2000, "slow_ms": slow_ms}
        return {**asked, **rates, **publishing, **latencies}

    found = [run("java", 0, 2.0), run("java", 0, 4.0), run("kafkaclient", 20, 5.0)]
    assert rows("openmessaging", found) == [
        ["all brokers alike", "2,000", "java", "2,000", "2,000", "3", "30", "0.52", "4", "12"],
        [
            *("a broker 20 ms late", "2,000", "kafkaclient", "2,000", "2,000"),
            *("5", "50", "0.52", "4", "12"),
        ],
    ]


def test_chaos() -> None:
    def result(client: str, resources: Resources | None = None, **counts: int) -> ClientResult:
        names = ("acked", "failed", "unresolved", "lost", "duplicated", "reordered")
        zero = dict.fromkeys((*names, "misplaced", "unexpected"), 0)
        ms = {"unkeyed": {"p50": 10.9, "p99": 148.2, "p999": 8100.0, "max": 9000.0}}
        return ClientResult(
            client=client,
            verdict=Verdict(**{**zero, "sent": 2_999_988, **counts}),
            latencies=Latencies(ms=ms, bin_s=1.0, timeline={}),
            resources=resources,
            first_ack_after=21.5,
        )

    memory = Resources((49.4, 50.2, 60.0), (5, 5, 5), (23, 23, 23), (0, 0, 0))
    plain = ChaosResults(ChaosPlan(seconds=600, peers=("confluent",)).as_json())
    plain.clients += [result("kafkaclient", memory), result("confluent", lost=2, unresolved=1)]
    outage = ChaosResults(
        ChaosPlan(seconds=90, outage=30, api="aiokafka", kinds=("unkeyed", "keyed")).as_json()
    )
    outage.clients.append(result("kafkaclient"))
    outage.outages.append(Outage(began=2.0, brokers_started=19.0, leaders_elected=20.25))
    latency = ["10.9", "148", "8,100", "-"]
    assert rows("chaos", plain.as_json(), outage.as_json()) == [
        [
            *("3 brokers, 600 s, all kinds, 5,000/s", "kafkaclient", "2,999,988", "0", "0", "0%"),
            *(*latency, "49, 50"),
        ],
        [
            *("3 brokers, 600 s, all kinds, 5,000/s", "confluent", "2,999,988", "2", "1", "0%"),
            *(*latency, "-"),
        ],
        [
            "3 brokers, 90 s, unkeyed and keyed, 5,000/s, all brokers away once, first record "
            "1.25 s after the leaders",
            *("drop-in", "2,999,988", "0", "0", "0%", *latency, "-"),
        ],
    ]


def test_many_topics() -> None:
    def load(topics: int, us_per_batch: float) -> dict[str, float]:
        load = {"batches_per_s": 8554, "records_per_batch": 23.4, "us_per_batch": us_per_batch}
        return {"topics": topics, **load, "cores": 1.5}

    found = {
        "loads": [load(1000, 200.0), load(1, 250.0)],
        "longest_callback_ms": {"load": 0.8, "leaders move": 4.3},
    }
    table = rows("many-topics", found)
    assert table[:2] == [["batches/s", "8,554", "8,554"], ["records in a batch", "23.4", "23.4"]]
    assert table[3:5] == [
        ["times the CPU of one topic", "0.8", "1"],
        ["longest callback of the event loop, ms", "0.8", ""],
    ]


def test_situations() -> None:
    ways = {way: {"avg_ms": 15.3, "p99_ms": 90.0} for way in ("late", "kip794")}
    even = [{"max_over_min": 1.004}, {"max_over_min": 1.02}]
    found = {
        "fresh": [{f"{rate}/s {way}": ways[way] for rate in (2048, 8192) for way in ways}],
        "rotating": [ways],
        "different": [ways],
        "equal": [even],
        "saturated": [even],
        "far": [{"mb_per_s": {"late": 23.3, "late, window held at 5": 18.8, "kip794": 8.3}}],
        "step": [{"to_30_ms": {"reached_after_s": 0.1}, "to_1_ms": {"reached_after_s": None}}],
        "pause": [{"p99_before_ms": 7.9, "p99_of_the_others_ms": 9.1}],
        "blocked": [{"overdue": 0}],
        "topics": [{"idle": {"p99_ms": 12.6}, "hot": {"p99_ms": 29.6}}],
    }
    table = rows("situations", {"situations": found})
    assert len(table) == 19
    for row in (
        ["brokers 2, 10 and 40 ms late, 8,192/s", "p99, ms", "90", "90", "`kip794`"],
        ["equal brokers, mostly idle, 30 partitions", "most over fewest bytes, %", "2", "", ""],
        ["a broker stops for 3 s", "p99 of the others, ms", "9.1", "7.9", "before"],
    ):
        assert row in table


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_each_file_of_results_is_on_a_page(path: Any) -> None:
    figures = {figure.name for figure in FIGURES}
    assert path.stem in figures.union(*(digest.of for digest in DIGESTS))
