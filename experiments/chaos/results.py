"""The results of a campaign, as ``summary.json``: the tables and the report show nothing else."""

from __future__ import annotations

import json
from array import array
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from experiments.chaos.fault_runner import down_share
from experiments.clients import OURS
from experiments.experiment import SUMMARY, BaseResults
from kafkaclient.perf.latency import Distribution

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from experiments.chaos.fault_runner import Outage, Struck
    from experiments.chaos.ledger import Verdict
    from experiments.chaos.outcomes import Outcome
    from experiments.chaos.streams import Stream
    from experiments.chaos.worker import Sample

__all__ = ["ClientResult", "Latencies", "Resources", "Results", "resources"]

_MOST_BINS = 300
_COLD_S, _COLD_PART = 10.0, 0.1
_RSS_SLACK, _COUNT_SLACK = 16.0, 5.0


def warm_s(seconds: float) -> float:
    """Seconds of a load of ``seconds`` after which brokers that have just started are fast."""
    return min(_COLD_S, _COLD_PART * seconds)


@dataclass(frozen=True, slots=True)
class Latencies:
    """The latencies of a client's acknowledged records, by kind."""

    ms: dict[str, dict[str, float | None]]
    """Kind -> ``p50``, ``p99``, ``p999``, ``max``, of records sent from :func:`warm_s` on."""
    bin_s: float
    timeline: dict[str, list[float | None]]
    """Kind -> the p99 in ms of the records sent in each bin; None where none was acknowledged."""

    @classmethod
    def of(
        cls, streams: Sequence[Stream], outcomes: Iterable[Outcome], seconds: float
    ) -> Latencies:
        """The latencies in these outcomes of a client that sent for ``seconds``."""
        warm = warm_s(seconds)
        bin_s = max(1.0, seconds / _MOST_BINS)
        kinds = [stream.kind for stream in streams]
        whole: defaultdict[str, array[float]] = defaultdict(lambda: array("f"))
        bins: defaultdict[tuple[str, int], array[float]] = defaultdict(lambda: array("f"))
        for outcome in outcomes:
            if outcome.acked:
                kind = kinds[outcome.stream]
                latencies = whole[kind]
                if outcome.sent_at >= warm:
                    latencies.append(outcome.latency)
                bins[kind, int(outcome.sent_at / bin_s)].append(outcome.latency)
        last = max((place for _kind, place in bins), default=-1)
        return cls(
            ms={kind: _percentiles(Distribution(found)) for kind, found in whole.items()},
            bin_s=bin_s,
            timeline={
                kind: [_p99(bins.get((kind, place))) for place in range(last + 1)] for kind in whole
            },
        )


def _percentiles(found: Distribution) -> dict[str, float | None]:
    figures = {
        name: found.percentile_ms(percentile)
        for name, percentile in (("p50", 50.0), ("p99", 99.0), ("p999", 99.9))
    }
    return {
        name: None if value is None else round(value, 3)
        for name, value in {**figures, "max": found.max_ms}.items()
    }


def _p99(latencies: array[float] | None) -> float | None:
    if not latencies:
        return None
    ordered = sorted(latencies)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1e3, 1)


@dataclass(frozen=True, slots=True)
class Resources:
    """What a process used while it sent: early, late, and the most at any moment.

    Early and late are the 10th percentile of the samples of the run's 10 to 30 % and of its last
    20 %. A backlog fills memory while brokers are behind; a leak remains after the backlog.
    """

    rss_mb: tuple[float, float, float]
    tasks: tuple[float, float, float]
    files: tuple[float, float, float]
    waiting: tuple[float, float, float]
    """Records without an outcome; their growth is not a leak."""

    @property
    def flat(self) -> bool:
        """Whether memory, tasks and files have not grown beyond their usual changes."""
        slack = ((self.rss_mb, _RSS_SLACK), (self.tasks, _COUNT_SLACK), (self.files, _COUNT_SLACK))
        return all(late <= early * 1.1 + least for (early, late, _most), least in slack)

    def as_json(self) -> dict[str, Any]:
        names = ("early", "late", "most")
        figures = {
            name: dict(zip(names, values, strict=True)) for name, values in asdict(self).items()
        }
        return {**figures, "flat": self.flat}


def resources(samples: Sequence[Sample], seconds: float) -> Resources | None:
    """The resources of a process; None if an early or a late sample is missing."""
    sending = [sample for sample in samples if 0 <= sample.at <= seconds]
    early = [sample for sample in sending if 0.1 <= sample.at / seconds < 0.3]
    late = [sample for sample in sending if sample.at / seconds >= 0.8]
    if not early or not late:
        return None

    def figures(value: Callable[[Sample], float]) -> tuple[float, float, float]:
        return (
            round(_low(map(value, early)), 1),
            round(_low(map(value, late)), 1),
            round(max(map(value, sending)), 1),
        )

    return Resources(
        rss_mb=figures(lambda sample: sample.rss_bytes / 2**20),
        tasks=figures(lambda sample: sample.tasks),
        files=figures(lambda sample: sample.files),
        waiting=figures(lambda sample: sample.sent - sample.acked - sample.failed),
    )


def _low(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 10]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientResult:
    """The results of one client's load."""

    client: str
    verdict: Verdict
    latencies: Latencies
    causes: Mapping[str, int] = field(default_factory=dict)
    """Cause -> number of records that failed."""
    examples: Mapping[str, str] = field(default_factory=dict)
    resources: Resources | None = None
    retried: int | None = None
    first_ack_after: float | None = None
    """Seconds after the load began when the first record sent after the outage was acknowledged."""

    @property
    def is_clean(self) -> bool:
        """Whether every record was delivered once and in order."""
        return not (self.verdict.wrong or self.verdict.failed or self.verdict.unresolved)

    def as_json(self) -> dict[str, Any]:
        return {
            **self.verdict.as_json(),
            "failed": dict(self.causes),
            "failed_total": self.verdict.failed,
            "examples": dict(self.examples),
            "retried": self.retried,
            "latency_ms": self.latencies.ms,
            "resources": None if self.resources is None else self.resources.as_json(),
        }


@dataclass(slots=True)
class Results(BaseResults):
    """The results of all clients; in JSON ours are at the top level, and peers are in ``peers``."""

    struck: list[Struck] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    clients: list[ClientResult] = field(default_factory=list)
    logins: int | None = None
    """With Kerberos: the number of tickets that clients have logged in for."""

    @property
    def has_runs(self) -> bool:
        return bool(self.clients)

    @property
    def ours(self) -> ClientResult | None:
        return next((found for found in self.clients if found.client == OURS), None)

    @property
    def is_clean(self) -> bool:
        """Whether every record of our client was delivered once and in order."""
        return self.ours is not None and self.ours.is_clean

    @property
    def is_flat(self) -> bool:
        """Whether our client is known to use no more memory, tasks or files late than early."""
        ours = self.ours
        return ours is not None and ours.resources is not None and ours.resources.flat

    def as_json(self) -> dict[str, Any]:
        ours = self.ours
        return {
            "experiment": "chaos",
            "complete": ours is not None,
            **({} if ours is None else ours.as_json()),
            "plan": self.plan,
            "latency_from_s": warm_s(self.plan["seconds"]),
            "down_share": round(down_share(self.struck, self.plan["seconds"]), 3),
            "logins": self.logins,
            "outages": [asdict(outage) | self._recovery(outage) for outage in self.outages],
            "peers": {
                found.client: found.as_json() for found in self.clients if found.client != OURS
            },
            "machine": self.machine,
            "faults": [struck.as_json() for struck in self.struck],
        }

    def _recovery(self, outage: Outage) -> dict[str, Any]:
        ours = self.ours
        first = None if ours is None else ours.first_ack_after
        return {
            "first_ack": first,
            "first_ack_after_leaders_s": None
            if first is None or outage.leaders_elected is None
            else round(first - outage.leaders_elected, 3),
        }

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.as_json(), indent=2)
        (folder / SUMMARY).write_text(text + "\n", encoding="utf-8")
