"""Figures of experiments, and of benchmarks whose results are plain rows."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.figures.figure import Digest, Figure, aligned, rows_table
from benchmarks.produce.table import number
from experiments.partition_limits.published import THROUGHPUT_MBPS
from experiments.slow_broker.compared import compared_table, draw_compared
from experiments.slow_broker.pictures import NAMES, draw_pictures
from experiments.slow_broker.results import Results

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["CHAOS", "EXPERIMENTS"]

_SUMMARY = "summary.json"


def _draw_compared(folder: Path) -> None:
    draw_compared(folder / "slow-broker.svg", Results.read(folder))


def _draw_decisions(folder: Path) -> None:
    draw_pictures(folder, folder)


def _object_store(found: Any) -> str:
    rates, runs = found["plan"]["rates"], found["runs"]
    rows = []
    for client, setting in dict.fromkeys((run["client"], run["setting"]) for run in runs):
        row = [NAMES[client], setting]
        for rate in rates:
            wanted = (client, setting, rate)
            of = [r for r in runs if (r["client"], r["setting"], r["rate"]) == wanted]
            row += [
                f"{median(run[name] for run in of):,.0f}" if of else ""
                for name in ("records_per_s", "avg_ms", "p99_ms")
            ]
        rows.append(row)
    columns = (f"{what} at {r:,g}/s" for r in rates for what in ("records/s", "avg ms", "p99 ms"))
    return aligned(("client", "options", *columns), rows, 2)


_limits = rows_table(
    {
        "partitions on each broker": "{partitions:,}",
        "replicas": "{replication}",
        "kafkaclient, Mbit/s": "{kafkaclient:,.0f}",
        "Java, Mbit/s": "{java:,.0f}",
        "KIP-578, Mbit/s": "{published:g}",
        "answered after, s": "{answered_s:.1f}",
        "all led after, s": "{led_s:.1f}",
        "all directories there after, s": "{directories_s:.1f}",
        "the last gone after, s": "{removed_s:.1f}",
    }
)


def _partition_limits(found: Any) -> str:
    return _limits(
        {
            "kafkaclient": None,
            "java": None,
            "published": THROUGHPUT_MBPS.get(cell["replication"], {}).get(cell["partitions"]),
            **{sent["client"]: sent["mbps"] for sent in cell["sent"]},
            **cell,
        }
        for cell in found["runs"]
    )


_scrapes = rows_table(
    {
        "partitions with series": "{limit:,}",
        "page, KB": "{page_kb:,}",
        "event loop busy, ms": "{loop_median_ms:.1f}",
        "at most": "{loop_most_ms:.1f}",
        "a timer late at most, ms": "{late_most_ms:.1f}",
        "without scrapes": "{quiet_most_ms:.1f}",
    }
)
_moves = rows_table(
    {
        "scenario": lambda run: run["scenario"] + (", with load" if run["load"] else ""),
        "dictated, MB/s": lambda run: f"{run['dictated'] / 1e6:.1f}",
        "rate, MB/s": lambda run: f"{run['rate'] / 1e6:.2f}",
        "share": "{share:.0%}",
        "took, s": "{seconds:.1f}",
        "expected, s": "{expected_s:.1f}",
        "MoveTime by KIP-73, s": "{move_time_s:.1f}",
        "clients' p99, ms: no move": "{quiet[p99_ms]:,.0f}",
        "move": "{throttled[p99_ms]:,.0f}",
        "way back, no quota": "{unthrottled[p99_ms]:,.0f}",
    }
)
_report = rows_table(
    {
        "producers": "{producers:,}",
        "batches": "{batches:,}",
        "files": "{files:,}",
        "seconds": "{seconds:.0f}",
        "Python workers, MB": "{python_mb:,}",
        "JVM, MB": "{jvm_mb:,}",
    }
)
_STEPS = {
    "start": "the first starts",
    "join-2": "the second joins",
    "join-3": "the third joins",
    "crash": "the third is killed",
    "restart": "the second is restarted",
}


def _megabytes(name: str) -> Any:
    return lambda run: "" if run[name] is None else f"{run[name] / 1e6:,.0f}"


_handover = rows_table(
    {
        "step": lambda run: _STEPS[run["step"]],
        "longest gap, s": "{longest_gap_s:.2f}",
        "of tasks that stay, s": "{longest_gap_staying_s:.2f}",
        "balanced after, s": "{time_to_balance_s:.1f}",
        "rebalances": "{rebalances}",
        "evictions": "{evictions}",
        "followed, MB": _megabytes("warmup_bytes"),
        "restored, MB": _megabytes("restored_bytes"),
    }
)
_rebalance = rows_table(
    {
        "tasks": "{tasks:,}",
        "instances": "{instances}",
        "all run after the start, s": "{started_s:.1f}",
        "balanced after the join, s": "{balanced_s:.1f}",
        "after the last warm-up, s": "{after_warmup_s:.1f}",
        "tasks that moved": "{moved}",
        "rebalances": "{rebalances}",
        "evictions": "{evictions}",
        "wrong counts": "{wrong:,}",
        "MB of an instance at most": "{rss_mb:,.0f}",
    },
    names=0,
)


def _many_topics(found: Any) -> str:
    many, one = found["loads"]
    calls = found["longest_callback_ms"]
    rows = [
        (what, *(number(load[name]) for load in (many, one)))
        for what, name in (
            ("batches/s", "batches_per_s"),
            ("records in a batch", "records_per_batch"),
            ("CPU of a batch, µs", "us_per_batch"),
        )
    ]
    rows += [
        ("times the CPU of one topic", number(many["us_per_batch"] / one["us_per_batch"]), "1"),
        ("longest callback of the event loop, ms", number(calls["load"]), ""),
        ("the same while all leaders move, ms", number(calls["leaders move"]), ""),
    ]
    return aligned(("", f"{many['topics']:,} topics", "one topic"), rows)


def _situations(found: Any) -> str:
    return aligned(
        ("situation", "measured", "kafkaclient", "compared", "with"),
        [
            (
                situation,
                what,
                *(number(median(values)) if values else "" for values in both),
                beside,
            )
            for situation, what, *both, beside in _of_situations(found["situations"])
        ],
        2,
    )


def _of_situations(found: Any) -> Iterator[tuple[str, str, list[float], list[float], str]]:
    """Situation, what was measured, its values, those it is compared with, and what these are."""
    kip794 = "`kip794`"
    for situation, name, rates in (
        ("a new producer's first 2 s, broker 0 20 ms late", "fresh", ("2048/s ", "8192/s ")),
        ("another broker 50 ms late every 1.5 s, 4,096/s", "rotating", ("",)),
        ("brokers 2, 10 and 40 ms late, 8,192/s", "different", ("",)),
    ):
        for rate in rates:
            ours, java = (
                [run[f"{rate}{way}"] for run in found[name]] for way in ("late", "kip794")
            )
            label = f"{situation}, {int(rate[:4]):,}/s" if rate else situation
            for what in ("avg", "p99"):
                values = ([run[f"{what}_ms"] for run in runs] for runs in (ours, java))
                yield label, "average, ms" if what == "avg" else "p99, ms", *values, kip794
    for situation, name in (
        ("equal brokers, mostly idle", "equal"),
        ("equal brokers, maximum throughput", "saturated"),
    ):
        for at, partitions in enumerate((3, 30)):
            values = [100 * (run[at]["max_over_min"] - 1) for run in found[name]]
            yield (
                f"{situation}, {partitions} partitions",
                "most over fewest bytes, %",
                values,
                [],
                "",
            )
    far = [run["mb_per_s"] for run in found["far"]]
    for other, what in (("kip794", kip794), ("late, window held at 5", "a window held at 5")):
        others = [run[other] for run in far]
        yield "50 ms of network, maximum throughput", "MB/s", [r["late"] for r in far], others, what
    for level, change in (("to_30_ms", "1 to 30 ms"), ("to_1_ms", "30 to 1 ms")):
        reached = [run[level]["reached_after_s"] for run in found["step"]]
        values = [value for value in reached if value is not None]
        what = "s until 0.9 of the new rate"
        yield f"the network's round trip changes from {change}", what, values, [], ""
    paused, before = (
        [run[name] for run in found["pause"]] for name in ("p99_of_the_others_ms", "p99_before_ms")
    )
    yield "a broker stops for 3 s", "p99 of the others, ms", paused, before, "before"
    blocked = [run["overdue"] for run in found["blocked"]]
    yield "the application blocks its event loop", "brokers excluded", blocked, [], ""
    hot, idle = ([run[load]["p99_ms"] for run in found["topics"]] for load in ("hot", "idle"))
    yield "1,000 topics, one of them hot", "p99 of a quiet topic, ms", hot, idle, "no hot topic"


def _openmessaging(found: Any) -> str:
    rows = []
    for slow, rate, worker in dict.fromkeys((r["slow_ms"], r["rate"], r["worker"]) for r in found):
        of = [r for r in found if (r["slow_ms"], r["rate"], r["worker"]) == (slow, rate, worker)]
        rows.append(
            (
                f"a broker {slow} ms late" if slow else "all brokers alike",
                f"{rate:,}",
                worker,
                *(
                    number(median(run[name] for run in of))
                    for name in (
                        *("publishRate", "consumeRate", "publish_avg_ms", "publish_p99_ms"),
                        *("delay_p99_ms", "end_to_end_avg_ms", "end_to_end_p99_ms"),
                    )
                ),
            )
        )
    head = (
        *("brokers", "asked for, records/s", "worker", "published/s", "consumed/s"),
        *("publish avg ms", "publish p99 ms", "late before it was sent, p99 ms"),
        *("end to end avg ms", "end to end p99 ms"),
    )
    return aligned(head, rows, 3)


_CAMPAIGNS = {
    "chaos": (7, "--seconds=300"),
    "chaos-unkeyed": (7, "--seconds=300", "--brokers=5", "--kinds=unkeyed"),
    "chaos-peers": (
        *(6, "--seconds=180", "--brokers=5", "--kinds=unkeyed,keyed", "--rate=1500"),
        "--peers=confluent,java",
    ),
    "chaos-drop-in": (4, "--seconds=90", "--api=aiokafka"),
    "chaos-outage": (4, "--seconds=90", "--outage=30"),
}
_WRONG = ("lost", "duplicated", "reordered", "misplaced", "unexpected")


def _chaos(*campaigns: Any) -> str:
    rows = []
    for found in campaigns:
        plan = found["plan"]
        kinds = "all kinds" if len(plan["kinds"]) == 3 else " and ".join(plan["kinds"])
        what = f"{plan['brokers']} brokers, {plan['seconds']:g} s, {kinds}, {plan['rate']:,g}/s"
        for outage in found["outages"]:
            after = number(outage["first_ack_after_leaders_s"])
            what += f", all brokers away once, first record {after} s after the leaders"
        ours = "drop-in" if plan["api"] == "aiokafka" else "kafkaclient"
        for client, of in {ours: found, **found["peers"]}.items():
            latency, memory = of["latency_ms"], (of["resources"] or {}).get("rss_mb")
            free, keyed = latency.get("unkeyed", {}), latency.get("keyed", {})
            rows.append(
                (
                    what,
                    client,
                    f"{of['sent']:,}",
                    f"{sum(of[name] for name in _WRONG):,}",
                    f"{of['failed_total'] + of['unresolved']:,}",
                    f"{found['down_share']:.0%}",
                    *(number(free.get(name)) for name in ("p50", "p99", "p999")),
                    number(keyed.get("p99")),
                    f"{memory['early']:.0f}, {memory['late']:.0f}" if memory else "-",
                )
            )
    head = (
        *("campaign", "client", "records", "lost, duplicated, reordered or misplaced"),
        *("failed or without outcome", "some broker away", "without key: p50 ms", "p99 ms"),
        *("p99.9 ms", "with key: p99 ms", "memory early, late, MB"),
    )
    return aligned(head, rows, 2)


CHAOS = Digest("chaos", "figures/chaos.md", tuple(_CAMPAIGNS), _chaos, told=True)


def _all() -> Iterator[Figure]:
    def experiment(
        name: str, page: str, minutes: int, words: tuple[str, ...], render: Any, **more: Any
    ) -> Figure:
        command = ("experiments", *words, "--out=FOLDER")
        blocks = {name: render} if render else {}
        return Figure(name, page, minutes, command, blocks, summary=_SUMMARY, **more)

    yield experiment(
        "slow-broker-rates",
        "figures/slow-broker.md",
        11,
        (
            *("slow-broker", "--settings=compared", "--no-decisions", "--seconds=8"),
            *("--rates=50,512,2048,8192,16384", "--producers=1,30,300"),
        ),
        lambda found: compared_table(Results.of(found)),
        pictures={"slow-broker.svg": "pictures/slow-broker.svg"},
        draw=_draw_compared,
    )
    yield experiment(
        "decisions",
        "concepts/partition-choice.md",
        3,
        (
            *("slow-broker", "--peers=none", "--rates=2048", "--seconds=10"),
            "--settings=default,linger 0,kip794 adaptive linger 5,sticky linger 5",
        ),
        None,
        pictures={"decisions.svg": "pictures/decisions.svg"},
        draw=_draw_decisions,
    )
    yield experiment(
        "object-store",
        "figures/object-store.md",
        6,
        (
            *("object-store", "--no-decisions", "--peers=java,confluent,franz-go"),
            *("--settings=default,java:large,franz-go:large,confluent:large", "--repeat=2"),
            *("--rates=8192,20480", "--seconds=8", "--max-message-bytes=8000000"),
        ),
        _object_store,
    )
    yield experiment(
        "partition-limits",
        "figures/partition-limits.md",
        5,
        ("partition-limits", "--partitions=10,1000"),
        _partition_limits,
    )
    yield experiment(
        "replication-quota",
        "figures/replication-quota.md",
        9,
        ("replication-quota",),
        lambda found: _moves(found["runs"]),
    )
    yield experiment(
        "task-handover",
        "figures/task-handover.md",
        6,
        ("task-handover", "--modes=kip441"),
        lambda found: _handover(found["runs"]),
    )
    yield experiment(
        "rebalance-1000",
        "figures/task-handover.md",
        3,
        ("rebalance-1000",),
        lambda found: _rebalance(found["runs"]),
    )
    for name, (minutes, *words) in _CAMPAIGNS.items():
        yield experiment(name, "figures/chaos.md", minutes, ("chaos", "--seed=1", *words), None)
    yield Figure(
        "openmessaging",
        "figures/openmessaging.md",
        22,
        ("benchmarks.openmessaging", "--out=OUT"),
        {"openmessaging": _openmessaging},
    )
    yield Figure(
        "prometheus",
        "figures/prometheus.md",
        1,
        ("benchmarks.prometheus_scrape", "--out=OUT"),
        {"prometheus": _scrapes},
    )
    yield Figure(
        "report",
        "figures/report.md",
        4,
        ("benchmarks.report_time", "--scale=0.1", "--out=OUT"),
        {"report": _report},
    )
    yield Figure(
        "many-topics",
        "figures/benchmark.md",
        4,
        ("benchmarks.many_topics", "--seconds=3", "--out=OUT"),
        {"many-topics": _many_topics},
    )
    yield Figure(
        "situations",
        "figures/partition-choice.md",
        10,
        ("benchmarks.partition_choice", "--repeat=2", "--out=OUT"),
        {"situations": _situations},
    )


EXPERIMENTS = tuple(_all())
