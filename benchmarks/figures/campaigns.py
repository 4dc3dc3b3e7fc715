"""Tables of what takes too long for ``make figures``: campaigns of faults, and Spark.

Their own commands measure them, and their results are kept in benchmarks/results as they are.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.figures.figure import Digest, aligned, rows_table

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CAMPAIGNS"]

_PROTOCOLS = {"classic": "classic, cooperative-sticky", "consumer": "consumer (KIP-848)"}
_CONSUMER = tuple(
    f"consumer-chaos-{protocol}-{seed}" for seed in (1, 2, 3) for protocol in _PROTOCOLS
)


def _consumer_chaos(*campaigns: Any) -> str:
    rows = []
    for name, found in zip(_CONSUMER, campaigns, strict=True):
        (run,), plan = found["runs"], found["plan"]
        who = f"{_PROTOCOLS[plan['protocol']]}, seed {plan['seed']}"
        counts = (run[c] for c in ("records", "stints", "repeating_stints", "repeated", "zombie"))
        rows.append(
            (
                f"[{who}](../../benchmarks/results/{name}.json)",
                *(f"{count:,}" for count in counts),
                f"{run['longest_gap_s']:.1f}",
            )
        )
    head = (
        *("protocol", "records", "partitions given to a member"),
        *("of these, began with repeated records", "repeated records"),
        *("taken by zombies", "longest gap, s"),
    )
    return aligned(head, rows)


def _killed_member(found: Any) -> str:
    names = {"kafkaclient": "kafkaclient", "java": "Java"}
    rows = [
        (
            names[run["client"].lower()],
            run["protocol"],
            run["partitions"],
            *(
                f"{run[f'{what}_median_s']:.1f} ({run[f'{what}_max_s']:.1f})"
                for what in ("given", "first_record")
            ),
        )
        for run in found["runs"]
    ]
    head = (
        *("client", "protocol", "partitions"),
        *("given to the other member after, s", "its first record after, s"),
    )
    return aligned(head, rows, 2)


def _spark_chaos(found: Any) -> str:
    def settings(combination: dict[str, str]) -> Iterator[str]:
        yield combination["guarantee"]
        yield combination["transactions"]
        yield f"PySpark {combination['spark']}"
        yield "own driver" if combination["session"] == "classic" else "Spark Connect"
        yield f"speculation {combination['speculation']}"
        yield f"adaptive {combination['adaptive']}"

    rows = [
        (
            f"{run['number']}: {', '.join(settings(run['combination']))}",
            f"{run['seconds']:.0f}",
            f"{run['rows']:,}",
            f"{run['repeated']:,}",
            sum(not struck["note"] for struck in run["struck"]),
            run["batches"],
        )
        for run in found["runs"]
    ]
    return aligned(("combination", "seconds", "rows", "repeated", "faults", "batches"), rows)


def _streams_chaos(found: Any) -> str:
    (run,) = found["runs"]
    rows = [
        (
            gap["kind"],
            gap["faults"] or "",
            "never alone" if (alone := gap["longest_gap_alone_s"]) is None else f"{alone:.2f}",
        )
        for gap in run["gaps"]
    ]
    return aligned(("fault", "how often", "longest gap that no other fault overlaps, s"), rows)


def _streams_counts(*campaigns: Any) -> str:
    rows = []
    for found in campaigns:
        (run,), plan = found["runs"], found["plan"]
        guarantee = plan.get("guarantee", "exactly_once_v2").removesuffix("_v2").replace("_", " ")
        counts = (run["records"], sum(gap["faults"] for gap in run["gaps"]))
        results = (run["wrong"], run.get("repeated", 0), run["rebalances"], run["evictions"])
        rows.append(
            (
                f"{guarantee}, {plan['seconds']:g} s, seed {plan['seed']}",
                *(f"{count:,}" for count in (*counts, *results)),
                f"{run['longest_gap_s']:.1f}",
            )
        )
    head = ("campaign", "records", "faults", "wrong counts", "counted again", "rebalances")
    return aligned((*head, "evictions", "longest gap, s"), rows)


def _spark(found: Any) -> str:
    ours, peer = "kafkaclient", "kafka"
    runs = found["runs"]

    def seconds(job: str, client: str) -> float:
        return median(r["seconds"] for r in runs if (r["job"], r["client"]) == (job, client))

    rows = []
    for job, what in (
        ("make", "creating the rows, without Kafka"),
        ("write", "write"),
        ("read", "read into an aggregate"),
    ):
        count = next(run["rows"] for run in runs if run["job"] == job)
        speeds = [count / seconds(job, client) for client in (ours, peer)]
        shown = (f"{round(speed, -3):,.0f} rows/s" for speed in speeds)
        rows.append((what, *shown, f"{speeds[0] / speeds[1]:.1f}"))
    streams: dict[float, dict[str, str]] = {}
    for run in runs:
        if run["job"] == "stream":
            latency = f"p50 {run['p50_ms'] / 1000:.2f} s, p99 {run['p99_ms'] / 1000:.2f} s"
            streams.setdefault(round(run["offered_per_s"], -4), {})[run["client"]] = latency
    for rate, found_of in streams.items():
        latencies = (found_of.get(client, "not measured") for client in (ours, peer))
        rows.append((f"a stream from topic to topic, {rate:,.0f} rows/s", *latencies, ""))
    first = [seconds("first", client) for client in (ours, peer)]
    times = (f"{time:.1f} s" for time in first)
    rows.append(("first batch of a query in a fresh Spark", *times, f"{first[1] / first[0]:.1f}"))
    return aligned(("", "kafkaclient", "spark-sql-kafka", "times the peer"), rows)


def _spark_wide(found: Any) -> str:
    rows = [
        (
            f"{run['job']} {run['rows']:,} rows",
            f"{run['seconds']:.0f}",
            f"{run['python_mb']:,}",
            f"{run['jvm_mb']:,}",
        )
        for run in found["rows"]
    ]
    return aligned(("", "seconds", "Python workers, MB", "JVM, MB"), rows)


def _source(run: Any) -> str:
    return "spark-sql-kafka" if run["client"] == "kafka" else "kafkaclient"


_at_once = rows_table(
    {
        "source": _source,
        "rows/s": lambda run: f"{round(run['offered_per_s'], -4):,.0f}",
        "copied": lambda run: f"{run['copied']:,} of {run['rows']:,}",
        "p50, s": lambda run: f"{run['p50_ms'] / 1000:.2f}",
        "p99, s": lambda run: f"{run['p99_ms'] / 1000:.2f}",
    }
)
_triggers = rows_table(
    {
        "source": _source,
        "partitions": "{partitions:,}",
        "triggers": "{triggers}",
        "planning, ms": "{planning_ms:,}",
        "at most": "{planning_most_ms:,}",
        "a trigger with its rows, s": lambda run: f"{run['trigger_ms'] / 1000:.0f}",
    }
)
_word_count = rows_table(
    {
        "client": lambda found: _COUNTERS.get(found["client"], found["client"]),
        "words/s": "{words_per_s:,.0f}",
        "of StreamsApp's": lambda found: f"{1 / found['ours_is']:.2f}",
        "CPU a word, µs": "{cpu_us_per_word:.1f}",
        "memory, MB": "{rss_mb:.0f}",
        "wrong counts": "{wrong:,}",
    }
)
_COUNTERS = {
    "kafkaclient": "`StreamsApp`",
    "quixstreams": "Quix Streams",
    "kafka-streams": "Kafka Streams (Java, uses both cores)",
}

CAMPAIGNS = (
    Digest("consumer-chaos", "figures/consumer-chaos.md", _CONSUMER, _consumer_chaos),
    Digest("killed-member", "figures/consumer-chaos.md", ("killed-member",), _killed_member),
    Digest("spark-chaos", "figures/spark-chaos.md", ("spark-chaos",), _spark_chaos),
    Digest("streams-chaos", "figures/streams-chaos.md", ("streams-chaos",), _streams_chaos),
    Digest(
        "streams-counts",
        "figures/streams-chaos.md",
        ("streams-chaos", "streams-chaos-at-least-once"),
        _streams_counts,
    ),
    Digest("spark", "figures/spark.md", ("spark",), _spark),
    Digest(
        "word-count",
        "concepts/stream-processors.md",
        ("word-count",),
        lambda found: _word_count(found["medians"]),
    ),
    Digest(
        "spark-at-once",
        "figures/spark.md",
        ("spark-at-once",),
        lambda found: _at_once(run for run in found["runs"] if run["job"] == "stream"),
    ),
    Digest("spark-wide", "figures/spark.md", ("spark-wide",), _spark_wide),
    Digest(
        "spark-triggers",
        "figures/spark.md",
        ("spark-wide",),
        lambda found: _triggers(found["triggers"]),
    ),
)
