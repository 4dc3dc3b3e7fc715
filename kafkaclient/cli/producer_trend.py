"""What changed from one scrape of producers to the next: rates, shares and percentiles; no I/O."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.prometheus.histogram import Counts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkaclient.cli.producer_status import BrokerStatus, ProducerStatus

_WINDOW_S = 10.0  # seconds that shares and percentiles cover
_HISTORY = 60  # scrapes that the history of a rate covers


class BrokerTrend(NamedTuple):
    """A broker: its state, and the last 10 seconds. None: not known."""

    status: BrokerStatus
    share: float | None
    """Of the bytes that the producer sent, from 0 to 1."""
    bytes_per_s: float | None
    """Since the scrape before."""
    p50_s: float | None
    """Median latency of Produce requests in seconds."""
    p99_s: float | None
    history: tuple[float, ...]
    """``bytes_per_s`` of the last scrapes, 60 at most, the latest last."""


class ProducerTrend(NamedTuple):
    """A producer: its state, and the last 10 seconds. None: not known."""

    status: ProducerStatus
    records_per_s: float | None
    """Since the scrape before."""
    bytes_per_s: float | None
    buffer_used: float | None
    """The part of ``buffer.memory`` that is in use, from 0 to 1."""
    queue_p50_s: float | None
    """Median seconds that a batch waited in the producer."""
    queue_p99_s: float | None
    brokers: tuple[BrokerTrend, ...]


class Trends:
    """Remembers what was seen of each producer in the last 10 seconds.

    After the first scrape, shares and percentiles are since the producer's start, and rates are not
    known.
    """

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, ProducerStatus]]] = {}
        self._histories: dict[tuple[str, int], deque[float]] = {}

    def add(self, now: float, found: Iterable[ProducerStatus]) -> tuple[ProducerTrend, ...]:
        """The trends at ``now``, seconds of a monotonic clock. A producer that is not in ``found``
        is forgotten."""
        statuses = list(found)
        ids = {status.client_id for status in statuses}
        self._seen = {id_: seen for id_, seen in self._seen.items() if id_ in ids}
        self._histories = {key: h for key, h in self._histories.items() if key[0] in ids}
        return tuple(self._trend(now, status) for status in statuses)

    def _trend(self, now: float, status: ProducerStatus) -> ProducerTrend:
        seen = self._seen.setdefault(status.client_id, deque())
        if seen and _began_again(seen[-1][1], status):
            seen.clear()
        last_at, last = seen[-1] if seen else (now, None)
        while len(seen) > 1 and now - seen[1][0] >= _WINDOW_S:
            seen.popleft()
        first = seen[0][1] if seen else None
        seen.append((now, status))
        elapsed_s = now - last_at
        before = {} if last is None else {broker.broker: broker for broker in last.brokers}
        begun = {} if first is None else {broker.broker: broker for broker in first.brokers}
        sent = {b.broker: b.produced_bytes - _produced(begun, b.broker) for b in status.brokers}
        total = sum(sent.values())
        brokers = []
        for broker in status.brokers:
            node_id = broker.broker
            rate = _rate(broker.produced_bytes, _produced(before, node_id), elapsed_s)
            history = self._histories.setdefault(
                (status.client_id, node_id), deque(maxlen=_HISTORY)
            )
            if rate is not None:
                history.append(rate)
            latencies = (
                _since(broker.latencies, begun[node_id].latencies)
                if (node_id in begun)
                else broker.latencies
            )
            brokers.append(
                BrokerTrend(
                    broker,
                    share=sent[node_id] / total if total else None,
                    bytes_per_s=rate,
                    p50_s=percentile(latencies, 0.5),
                    p99_s=percentile(latencies, 0.99),
                    history=tuple(history),
                )
            )
        rates = [broker.bytes_per_s for broker in brokers if broker.bytes_per_s is not None]
        queue_times = _since(status.queue_times, None if first is None else first.queue_times)
        return ProducerTrend(
            status,
            records_per_s=(
                None if last is None else _rate(status.records_sent, last.records_sent, elapsed_s)
            ),
            bytes_per_s=sum(rates) if rates else None,
            buffer_used=_used(status),
            queue_p50_s=percentile(queue_times, 0.5),
            queue_p99_s=percentile(queue_times, 0.99),
            brokers=tuple(brokers),
        )


def percentile(counts: Counts | None, part: float) -> float | None:
    """The value that ``part`` of the values do not exceed, interpolated in its bucket as
    PromQL's ``histogram_quantile`` does; None without values."""
    total = 0 if counts is None else sum(counts.counts)
    if counts is None or not total:
        return None
    rank, below, lower = part * total, 0, 0.0
    for bound, count in zip(counts.bounds, counts.counts, strict=False):
        if count and below + count >= rank:
            return lower + (bound - lower) * (rank - below) / count
        below += count
        lower = bound
    return lower  # above all bounds: not known more exactly


def _since(now: Counts | None, before: Counts | None) -> Counts | None:
    if now is None or before is None or now.bounds != before.bounds:
        return now
    counts = tuple(n - b for n, b in zip(now.counts, before.counts, strict=True))
    return Counts(now.bounds, counts, now.sum - before.sum)


def _began_again(before: ProducerStatus, now: ProducerStatus) -> bool:
    """Whether the counters fell: a new producer, or one that cannot be read."""
    return now.records_sent < before.records_sent or before.up != now.up


def _produced(brokers: dict[int, BrokerStatus], node_id: int) -> float:
    return brokers[node_id].produced_bytes if node_id in brokers else 0.0


def _rate(now: float, before: float, elapsed_s: float) -> float | None:
    return max(now - before, 0.0) / elapsed_s if elapsed_s > 0 else None


def _used(status: ProducerStatus) -> float | None:
    free, size = status.buffer_available_bytes, status.buffer_size_bytes
    return None if free is None or not size else 1.0 - free / size
