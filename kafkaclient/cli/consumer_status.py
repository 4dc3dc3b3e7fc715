"""Reads the state of consumers back from the metric families of a page, and what changed since."""

from __future__ import annotations

from collections import defaultdict
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.prometheus.names import CONSUMER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric

_MOST_PARTITIONS = 10  # those that are furthest behind


class PartitionLag(NamedTuple):
    """How many records a consumer lacks of a partition."""

    topic: str
    partition: int
    lag: float


class ConsumerStatus(NamedTuple):
    """A consumer at one moment. Counts are since its start; None: not known."""

    client_id: str
    up: bool
    records_consumed: float
    lag: float | None
    lag_max: float | None
    assigned_partitions: float | None
    rebalances: float
    rebalance_s: float
    """The seconds of all rebalances."""
    memberships_lost: float
    last_poll_s: float | None
    """How long ago a loop asked for records; -1 before the first time."""
    partitions: tuple[PartitionLag, ...]
    """At most 10, those that are furthest behind first."""


class ConsumerTrend(NamedTuple):
    """A consumer, and what it does since the scrape before."""

    status: ConsumerStatus
    records_per_s: float | None


def consumer_statuses(families: Iterable[Metric]) -> tuple[ConsumerStatus, ...]:
    """The consumers on a page, in its order. A NaN or infinite value counts as not known."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    lags: dict[str, list[PartitionLag]] = defaultdict(list)
    for family in families:
        if not family.name.startswith(CONSUMER_PREFIX):
            continue
        for sample in family.samples:
            name, labels = sample.name.removeprefix(CONSUMER_PREFIX), sample.labels
            client_id = labels.get("client_id", "")
            values = found[client_id]
            if not isfinite(sample.value):
                continue
            if name == "partition_lag_records" and labels.get("partition", "").isdecimal():
                number = int(labels["partition"])
                lags[client_id].append(PartitionLag(labels.get("topic", ""), number, sample.value))
            elif labels.keys() <= {"client_id"}:
                values[name] = sample.value
    return tuple(
        ConsumerStatus(
            client_id,
            bool(values.get("up")),
            values.get("records_consumed_total", 0.0),
            values.get("lag_records"),
            values.get("lag_max_records"),
            values.get("assigned_partitions"),
            values.get("rebalances_total", 0.0),
            values.get("rebalance_seconds_total", 0.0),
            values.get("memberships_lost_total", 0.0),
            values.get("last_poll_age_seconds"),
            tuple(sorted(lags[client_id], key=lambda each: -each.lag)[:_MOST_PARTITIONS]),
        )
        for client_id, values in found.items()
    )


class ConsumerTrends:
    """Remembers the last scrape of each consumer."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, float]] = {}

    def add(self, now: float, found: Iterable[ConsumerStatus]) -> tuple[ConsumerTrend, ...]:
        """The trends at ``now``, seconds of a monotonic clock. A consumer that is not in ``found``
        is forgotten."""
        before, self._seen = self._seen, {}
        trends = []
        for status in found:
            at, consumed = before.get(status.client_id, (now, 0.0))
            rate = (status.records_consumed - consumed) / (now - at) if now > at else None
            trends.append(ConsumerTrend(status, None if rate is None or rate < 0 else rate))
            self._seen[status.client_id] = now, status.records_consumed
        return tuple(trends)
