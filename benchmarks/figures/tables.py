"""The figures, and how their results become tables."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.figures.campaigns import CAMPAIGNS
from benchmarks.figures.experiments import CHAOS, EXPERIMENTS
from benchmarks.figures.figure import Digest, Figure, aligned
from benchmarks.produce.table import number
from benchmarks.produce.targets import medians
from benchmarks.stalled_load import QUIET_S, WARM_UP_S
from experiments.slow_broker.pictures import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["DIGESTS", "FIGURES", "late_ms"]

_LOADS: Mapping[str, Sequence[str]] = {
    "100 bytes": (
        "kafkaclient: send_nowait",
        "kafkaclient: send_many",
        "kafkaclient: send_arrow",
        "raw socket: batches as send_nowait's",
        "franz-go: the same load",
        "confluent: produce",
        "java: perf tool",
        "drop-in: send",
        "aiokafka: send",
        "confluent AIOProducer: produce",
        "kafka-python: send",
    ),
    "100 bytes, keyed": ("kafkaclient: send_nowait, keyed", "confluent: produce, keyed"),
    "1 KB": (
        "kafkaclient: send_nowait, 1 KB",
        "raw socket: batches as send_nowait's, 1 KB",
        "franz-go: the same load, 1 KB",
        "confluent: produce, 1 KB",
        "java: perf tool, 1 KB",
        "aiokafka: send, 1 KB",
    ),
    "flights, lz4": (
        "kafkaclient: send_nowait, flights, lz4",
        "confluent: produce, flights, lz4",
    ),
    "flights, zstd": (
        "kafkaclient: send_nowait, flights, zstd",
        "confluent: produce, flights, zstd",
    ),
}
_TASKS = (
    ("1, linger 0", "1 task, linger 0", ("kafkaclient", "aiokafka")),
    ("1", "1 task", ("kafkaclient",)),
    ("100", "100 tasks", ("kafkaclient", "aiokafka")),
    (
        "1,000",
        "1000 tasks",
        ("kafkaclient", "drop-in", "aiokafka", "confluent AIOProducer"),
    ),
)


def _spread(values: Sequence[float]) -> str:
    """The median, and half of the way from the lowest to the highest."""
    middle = median(values)
    return f"{number(middle)} ± {50 * (max(values) - min(values)) / middle:.0f} %"


def _ratio(value: float, base: float) -> str:
    return f"{value / base:.2f}"


def _good(runs: Iterable[Mapping[str, Any]], entry: str, name: str) -> list[float]:
    return [
        run[name]
        for run in runs
        if f"{run['client']}: {run['setting']}" == entry
        and not (run.get("failed") or run.get("unavailable"))
    ]


def _produce(found: Any) -> str:
    runs, middle = found["runs"], medians(found["runs"])
    rows = []
    for load, entries in _LOADS.items():
        base = middle[entries[0]]["records_per_s"]
        for entry in (entry for entry in entries if entry in middle):
            client, _, way = entry.partition(": ")
            values = middle[entry]
            rows.append(
                (
                    load,
                    client,
                    f"`{way.partition(',')[0]}`"
                    if way.startswith(("send", "produce"))
                    else way.partition(",")[0],
                    _ratio(values["records_per_s"], base),
                    _spread(_good(runs, entry, "records_per_s")),
                    f"{values['cpu_us_per_record']:.2f}",
                )
            )
    head = ("values", "client", "way", "ratio", "records/s", "CPU µs a record")
    return aligned(head, rows, 3)


def _awaited(found: Any) -> str:
    middle = medians(found["runs"])
    rows = []
    for tasks, setting, clients in _TASKS:
        base = middle[f"kafkaclient: send_and_wait, {setting}"]
        for client in clients:
            values = middle.get(f"{client}: send_and_wait, {setting}")
            if values is not None:
                rows.append(
                    (
                        tasks,
                        client,
                        _ratio(values["records_per_s"], base["records_per_s"]),
                        number(values["records_per_s"]),
                        number(values["p50_ms"]),
                        number(values["p99_ms"]),
                        number(values["cpu_us_per_record"]),
                    )
                )
    head = ("tasks", "client", "ratio", "records/s", "p50 ms", "p99 ms", "CPU µs a record")
    return aligned(head, rows, 2)


def _goals(found: Any) -> str:
    rows = [
        (
            f"{goal['what']}{' (' + goal['note'] + ')' if goal['note'] else ''}",
            f"{goal['sense']} {goal['target']:g}",
            "not run" if goal["value"] is None else number(goal["value"]),
            {True: "yes", False: "**no**", None: ""}[goal["met"]],
        )
        for goal in found["targets"]
    ]
    return aligned(("what", "goal", "found", "reached"), rows)


_CONSUMERS = {
    "kafkaclient": "kafkaclient, `async for record`",
    "kafkaclient-batches": "kafkaclient, `batches()`",
    "kafkaclient-arrow": "kafkaclient, `batches()` as Arrow",
    "reader": "kafkaclient, `Reader`, record by record",
    "reader-arrow": "kafkaclient, `Reader` as Arrow",
    "aiokafka": "aiokafka, `async for record`",
    "aiokafka-getmany": "aiokafka, `getmany()`",
    "confluent-consume": "confluent-kafka, `consume(500)`",
    "confluent-poll": "confluent-kafka, `poll()`",
}


def _consume(found: Any) -> str:
    rows = []
    for client, sizes in found.items():
        row: list[object] = [_CONSUMERS[client]]
        for size in ("small", "large"):
            rates = [run["records_per_s"] for run in sizes[size]]
            base = median(run["records_per_s"] for run in found["aiokafka"][size])
            row += [_ratio(median(rates), base), _spread(rates)]
            row.append(f"{median(run['cpu_us_per_record'] for run in sizes[size]):.2f}")
        rows.append(row)
    columns = ("ratio", "records/s", "CPU µs")
    head = ("client", *(f"{column}, {b} B" for b in (100, 1000) for column in columns))
    return aligned(head, rows)


_SLOW = {
    "java": "adaptive linger 5",
    "confluent": "linger 5",
    "aiokafka": "random linger 0",
    "franz-go": "linger 5",
}
"""The setting of each peer: its default partitioner and linger, or 5 ms."""


def _late_runs(found: Any, client: str, name: str) -> list[float]:
    """Of the client's first setting at the lowest rate, without the first seconds of each run."""
    lowest = min(run["rate"] for run in found["steady_state"])
    at_it = [run for run in found["steady_state"] if run["rate"] == lowest]
    of = [run for run in at_it if run["client"] == client]
    return [run[name] for run in of if run["setting"] == of[0]["setting"]]


def late_ms(found: Any) -> dict[str, float]:
    """By client: the average latency with one late broker."""
    clients = dict.fromkeys(run["client"] for run in found["steady_state"])
    return {client: median(_late_runs(found, client, "avg_ms")) for client in clients}


def _slow(found: Any) -> str:
    base = late_ms(found)["kafkaclient"]
    rows = []
    known = late_ms(found)
    for client, label in ((c, label) for c, label in NAMES.items() if c in known):
        runs = _late_runs(found, client, "avg_ms")
        others = [median(_late_runs(found, client, f"{p}_ms")) for p in ("p50", "p99", "p999")]
        setting = next(r["setting"] for r in found["steady_state"] if r["client"] == client)
        cells = [f"{median(runs):.1f} ± {50 * (max(runs) - min(runs)) / median(runs):.0f} %"]
        cells += [f"{value:.1f}" for value in others]
        rows.append((label, setting, _ratio(median(runs), base), *cells))
    head = ("client", "setting", "ratio", "average ms", "p50 ms", "p99 ms", "p99.9 ms")
    return aligned(head, rows, 2)


def _mixed(found: Any) -> str:
    rows = []
    for client, runs in found["runs"].items():
        of = [[run[kind] for run in runs] for kind in ("keyed", "unkeyed")]
        percents = ("p50_ms", "p99_ms", "p99.9_ms")
        cells = [f"{median(run[p] for run in kind):.1f}" for kind in of for p in percents]
        rows.append([NAMES[client], *cells])
    columns = [f"{kind} {p}" for kind in ("with key:", "without:") for p in ("p50", "p99", "p99.9")]
    return aligned(("client", *columns), rows)


_STALLED = {
    "kafkaclient-send": "kafkaclient, `send` in a task for each record",
    "kafkaclient-nowait": "kafkaclient, `send_nowait`",
    "kafkaclient-many": "kafkaclient, `send_many` in a task for each 10 ms",
    "kafkaclient-waiting": "kafkaclient, `send` in 100 tasks, one record at a time",
    "kafkaclient-drop-in": "kafkaclient, the drop-in for aiokafka, a task for each record",
    "kafkaclient-sync-1": "kafkaclient, `SyncProducer`, one thread",
    "kafkaclient-sync-8": "kafkaclient, `SyncProducer`, eight threads",
    "aiokafka": "aiokafka, a task for each record",
    "confluent": "librdkafka (confluent-kafka)",
}


def _stalled(found: Any) -> str:
    stall = found["options"]["stall"]
    rows = []
    for client, run in found["runs"].items():
        before, during = run["before, well"], run["during, well"]
        rate, then = before["acked"] / (QUIET_S - WARM_UP_S), during["acked"] / stall
        rows.append(
            (
                _STALLED[client],
                f"{rate:,.0f}, {before['p99_ms']:,.0f} ms",
                f"{then:,.0f}, {during['p99_ms']:,.0f} ms",
                f"{100 * then / rate:.0f} %",
                f"{during['failed']:,}",
                f"{run['peak_mb']}",
                f"{run['caught_up_s']}",
            )
        )
    head = ("client", "records/s for the others, p99: before", f"for {stall:g} s", "kept")
    return aligned((*head, "refused for them", "MB at most", "caught up after, s"), rows)


def _sync(found: Any) -> str:
    rows = [
        (f"`{way}`", *(f"{median(cost[column] for cost in costs):.2f}" for column in range(3)))
        for way, costs in found.items()
    ]
    return aligned(("client", "the call", "until acknowledged", "CPU of the process"), rows)


def _first_record(found: Any) -> str:
    rows = [
        (client, *(f"{median(run[column] for run in runs):.0f}" for column in range(3)))
        for client, runs in found.items()
    ]
    return aligned(("client", "import and create, ms", "start", "first record acknowledged"), rows)


def _tracing(found: Any) -> str:
    return aligned(
        ("way", "in the call, µs", "with its outcome, µs", "more than without spans"),
        [
            (
                row["way"],
                number(row["call_us"]),
                number(row["whole_us"]),
                f"{number(row['whole_more_us'])} µs ({row['whole_ratio']:.2f} times)"
                if row["whole_ratio"] != 1
                else "",
            )
            for row in found
        ],
    )


def _serializers(found: Any) -> str:
    rows = [(row["way"], f"{row['by_hand_us']:.2f}", f"{row['added_us']:+.2f}") for row in found]
    return aligned(("serializer", "by hand, µs", "as an option, µs"), rows)


def _all() -> Iterator[Figure]:
    yield Figure(
        "produce",
        "figures/benchmark.md",
        10,
        (
            *("benchmarks.produce", "--seconds=1", "--repeat=2", "--overload-seconds=10"),
            "--out=FOLDER",
        ),
        {"produce": _produce, "awaited": _awaited, "goals": _goals},
        summary="summary.json",
        pictures={"produce.svg": "pictures/produce.svg"},
    )
    yield Figure(
        "consume",
        "figures/consume.md",
        5,
        ("benchmarks.consume", "--rounds=2", "--out=OUT"),
        {"consume": _consume},
    )
    yield Figure(
        "slow-broker",
        "figures/partition-choice.md",
        7,
        (
            *("experiments", "slow-broker", "--no-decisions", "--peers", ",".join(_SLOW)),
            *("--settings", ",".join(["default", *(f"{c}:{s}" for c, s in _SLOW.items())])),
            *("--rates=2048", "--repeat=3", "--seconds=10", "--out=FOLDER"),
        ),
        {"slow-broker": _slow},
        summary="summary.json",
    )
    yield Figure(
        "mixed-load",
        "figures/partition-choice.md",
        5,
        ("benchmarks.mixed_load", "--repeat=3", "--out=OUT"),
        {"mixed-load": _mixed},
    )
    yield Figure(
        "stalled-broker",
        "figures/partition-choice.md",
        12,
        ("benchmarks.stalled_broker", "--stall=30", "--out=OUT"),
        {"stalled-broker": _stalled},
    )
    yield Figure(
        "sync",
        "figures/sync.md",
        1,
        ("benchmarks.sync_send", "--rounds=5", "--out=OUT"),
        {"sync": _sync},
    )
    yield Figure(
        "first-record",
        "concepts/fast-path.md",
        1,
        ("benchmarks.first_record", "--out=OUT"),
        {"first-record": _first_record},
    )
    yield Figure(
        "tracing",
        "figures/opentelemetry.md",
        3,
        ("benchmarks.tracing", "--rounds=9", "--real", "--out=OUT"),
        {"tracing": _tracing},
    )
    yield Figure(
        "serializers",
        "figures/serializers.md",
        1,
        ("benchmarks.serializers", "--out=OUT"),
        {"serializers": _serializers},
    )


FIGURES = (*_all(), *EXPERIMENTS)


def _peers(slow: Any, stalled: Any, produce: Any, consume: Any) -> str:
    sent, late, stall = medians(produce["runs"]), late_ms(slow), stalled["options"]["stall"]

    def sending(name: str, *entries: str) -> list[str]:
        values = [sent.get(entry, {}).get(name) if entry else None for entry in entries]
        return ["" if value is None else number(value) for value in values]

    def taking(*clients: str) -> list[str]:
        found = [consume[client]["small"] if client else [] for client in clients]
        return [
            number(median(run["records_per_s"] for run in runs)) if runs else "" for runs in found
        ]

    clients = ("kafkaclient", "aiokafka", "confluent", "franz-go", "java", "")
    ways = ("kafkaclient-send", "aiokafka", "confluent", "", "", "")
    others = [
        stalled["runs"][way]["during, well"]["acked"] / stall if way else None for way in ways
    ]
    awaited = ("kafkaclient", "aiokafka", "", "", "", "")
    rows = (
        (
            "one of three brokers 20 ms late, without keys: average latency, ms",
            *(f"{late[client]:.1f}" if client in late else "" for client in clients),
        ),
        (
            "one of three brokers takes nothing, with keys, a task for each record: records/s for "
            "the others, of 2,000",
            *("" if rate is None else f"{rate:,.0f}" for rate in others),
        ),
        (
            "one broker: records/s sent, not awaited one by one",
            *sending(
                "records_per_s",
                *("kafkaclient: send_nowait", "aiokafka: send", "confluent: produce"),
                *("franz-go: the same load", "java: perf tool", "kafka-python: send"),
            ),
        ),
        (
            "one broker: records/s, each awaited by one of 1,000 tasks",
            *sending(
                "records_per_s",
                *(f"{c}: send_and_wait, 1000 tasks" if c else "" for c in awaited),
            ),
        ),
        (
            "one broker: one record awaited, p50 ms",
            *sending(
                "p50_ms", *(f"{c}: send_and_wait, 1 task, linger 0" if c else "" for c in awaited)
            ),
        ),
        (
            "one broker: records/s consumed, one by one (confluent-kafka: `consume(500)`)",
            *taking("kafkaclient", "aiokafka", "confluent-consume", "", "", ""),
        ),
    )
    head = ("", "kafkaclient", "aiokafka", "confluent-kafka", "franz-go", "Java", "kafka-python")
    return aligned(head, rows)


_OF = ("slow-broker", "stalled-broker", "produce", "consume")
DIGESTS = (
    *(Digest("peers", page, _OF, _peers) for page in ("../README.md", "index.md")),
    CHAOS,
    *CAMPAIGNS,
)
