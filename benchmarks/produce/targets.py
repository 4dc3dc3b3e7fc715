"""What is hoped for, as ratios of medians within one benchmark, and what was reached."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.produce.entries import CONFLUENT, DROP_IN, JAVA, OURS, PEER, RAW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Values = Mapping[str, float]
    Medians = Mapping[str, Values]

__all__ = ["Line", "judge", "medians"]

_RSS_FACTOR = 3
_GROWTH = 0.25
_RAW_ALLOWANCE_MS = 0.040


@dataclass(frozen=True, slots=True)
class Line:
    """One target. ``value`` is compared with ``target``; None where a run is missing."""

    what: str
    ours: float | None
    other: float | None
    unit: str
    value: float | None
    target: float
    sense: Literal["at least", "at most"]
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.value is None:
            return None
        if self.sense == "at least":
            return self.value >= self.target
        return self.value <= self.target

    def as_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "ours": self.ours,
            "other": self.other,
            "unit": self.unit,
            "value": self.value,
            "sense": self.sense,
            "target": self.target,
            "met": self.met,
            "note": self.note,
        }


def medians(runs: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """By ``client: setting`` the median of each number over the runs that were good."""
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run.get("failed") or run.get("unavailable"):
            continue
        for name, value in run.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                values[f"{run['client']}: {run['setting']}"][name].append(value)
        growth = _rss_growth(run)
        if growth is not None:
            values[f"{run['client']}: {run['setting']}"]["rss_growth_mb"].append(growth)
    return {
        entry: {name: median(found) for name, found in fields.items()}
        for entry, fields in values.items()
    }


def _rss_growth(run: Mapping[str, Any]) -> float | None:
    """By how much memory at most in the last third is above that in the second third."""
    samples: list[float] = [mb for _seconds, mb in run.get("rss_over_time_mb") or ()]
    third = len(samples) // 3
    if not third:
        return None
    return max(samples[2 * third :]) - max(samples[third : 2 * third])


def judge(runs: Sequence[Mapping[str, Any]]) -> list[Line]:
    """One line for each target."""
    found = _Found(medians(runs))
    rate = found.ratio("records_per_s", "records/s")
    lines = [
        rate("send_nowait", "send_nowait", (f"{CONFLUENT}: produce",), 1.5),
        rate("send_nowait", "send_nowait", (f"{JAVA}: perf tool",), 3.0),
        rate("send_nowait", "send_nowait", (f"{PEER}: send", f"{PEER}: send, futures awaited"), 9),
        rate("send_nowait", "send_nowait", (f"{RAW}: batches as send_nowait's",), 0.8),
        found.cpu("send_nowait", 0.3),
        found.cpu("send_many", 0.08),
        found.cpu("send_arrow", 0.06),
        rate("1 KB values", "send_nowait, 1 KB", (f"{CONFLUENT}: produce, 1 KB",), 1.0),
        rate("1 KB values", "send_nowait, 1 KB", (f"{RAW}: batches as send_nowait's, 1 KB",), 0.95),
        found.one_task(),
        found.cpu("send_and_wait, 1 task, linger 0", 75),
        rate(
            "send_and_wait, 1000 tasks",
            "send_and_wait, 1000 tasks",
            (f"{PEER}: send_and_wait, 1000 tasks",),
            4.5,
        ),
        found.keys(),
        found.header(),
        found.handed_over(),
        *(
            rate(
                f"flights, {codec}",
                f"send_nowait, flights, {codec}",
                (f"{CONFLUENT}: produce, flights, {codec}",),
                1.2,
            )
            for codec in ("lz4", "zstd")
        ),
        found.lag("lag_p99_ms", "p99", 5.0),
        found.lag("lag_p999_ms", "p99.9", 20.0),
        *found.memory(),
        found.many_partitions(),
        found.idle(),
        *_drop_in(medians(runs)),
    ]
    return lines


def _drop_in(medians: Medians) -> Iterable[Line]:
    """The drop-in against aiokafka, way by way."""
    found = _Found(medians, DROP_IN)
    rate = found.ratio("records_per_s", "records/s")
    yield found.cpu("send", 1.5, "CPU, drop-in send")
    for setting, target in (
        ("send", 4.0),
        ("send_and_wait, 1000 tasks", 2.5),
        ("FastStream publish, 1000 tasks", 1.5),
    ):
        yield rate(f"drop-in, {setting}", setting, (f"{PEER}: {setting}",), target)


class _Found:
    """The medians, asked for what a target compares."""

    def __init__(self, medians: Medians, client: str = OURS) -> None:
        self._medians = medians
        self._client = client

    def _get(self, entry: str, name: str) -> float | None:
        return self._medians.get(entry, {}).get(name)

    def _ours(self, setting: str, name: str) -> float | None:
        return self._get(f"{self._client}: {setting}", name)

    def ratio(self, name: str, unit: str) -> Callable[[str, str, Sequence[str], float], Line]:
        """Ours against the best of the others, where more is better."""

        def line(what: str, setting: str, others: Sequence[str], target: float) -> Line:
            ours = self._ours(setting, name)
            known = {other: value for other in others if (value := self._get(other, name))}
            best = max(known, key=lambda other: known[other], default=None)
            other = None if best is None else known[best]
            value = None if ours is None or other is None else ours / other
            return Line(
                what, ours, other, unit, value, target, "at least", f"x {best or others[0]}"
            )

        return line

    def cpu(self, setting: str, target: float, what: str | None = None) -> Line:
        ours = self._ours(setting, "cpu_us_per_record")
        return Line(what or f"CPU, {setting}", ours, None, "µs/record", ours, target, "at most")

    def one_task(self) -> Line:
        """Two ways to meet it; told is the one that is met, or else the first."""
        name = "p50_ms"
        ours = self._ours("send_and_wait, 1 task, linger 0", name)
        peer = self._get(f"{PEER}: send_and_wait, 1 task, linger 0", name)
        raw = self._get(f"{RAW}: round trip of 1 record", name)
        what = "send_and_wait, 1 task, p50"
        value = ours / peer if ours is not None and peer else None
        first = Line(what, ours, peer, "ms", value, 0.8, "at most", f"x {PEER}")
        if first.met or ours is None or raw is None:
            return first
        above = Line(
            what, ours, raw, "ms", ours - raw, _RAW_ALLOWANCE_MS, "at most", "ms above the raw trip"
        )
        return above if above.met or value is None else first

    def keys(self) -> Line:
        keyed = self._ours("send_nowait, keyed", "cpu_us_per_record")
        plain = self._ours("send_nowait", "cpu_us_per_record")
        more = None if keyed is None or plain is None else 1000 * (keyed - plain)
        return Line("CPU of a key", keyed, plain, "µs/record", more, 80, "at most", "ns more")

    def header(self) -> Line:
        return self._times_plain("CPU with a header", "send_nowait, one header", 1.6)

    def handed_over(self) -> Line:
        return self._times_plain("CPU of send", "send, handles dropped", 1.5)

    def _times_plain(self, what: str, setting: str, target: float) -> Line:
        ours = self._ours(setting, "cpu_us_per_record")
        plain = self._ours("send_nowait", "cpu_us_per_record")
        value = ours / plain if ours is not None and plain else None
        return Line(what, ours, plain, "µs/record", value, target, "at most", "x send_nowait")

    def lag(self, name: str, percentile: str, target: float) -> Line:
        busy = self._ours("event loop, send_nowait", name)
        idle = self._ours("event loop, idle beside a busy producer", name)
        more = None if busy is None or idle is None else busy - idle
        what = f"event loop's lag, {percentile}"
        return Line(what, busy, idle, "ms", more, target, "at most", "ms above an idle process")

    def memory(self) -> Iterable[Line]:
        entry = "overload, 1 KB"
        start, peak = self._ours(entry, "rss_start_mb"), self._ours(entry, "rss_peak_mb")
        buffer = self._ours(entry, "buffer_memory_mb")
        more = None if start is None or peak is None else peak - start
        limit = _RSS_FACTOR * (buffer or 32)
        yield Line("memory, overload", peak, start, "MB", more, limit, "at most", "MB above start")
        growth = self._ours(entry, "rss_growth_mb")
        limit = _GROWTH * (buffer or 32)
        yield Line(
            "memory, flat",
            growth,
            None,
            "MB",
            growth,
            limit,
            "at most",
            "MB more in the last third",
        )

    def many_partitions(self) -> Line:
        name = "cpu_us_per_record"
        many, few = self._ours("10,000 partitions", name), self._ours("6 partitions", name)
        value = many / few if many is not None and few else None
        return Line(
            "10,000 partitions", many, few, "µs/record", value, 1.3, "at most", "x 6 partitions"
        )

    def idle(self) -> Line:
        share = self._ours("10,000 partitions", "idle_cpu_share")
        percent = None if share is None else 100 * share
        return Line(
            "10,000 partitions, idle", percent, None, "% of a core", percent, 1.0, "at most"
        )
