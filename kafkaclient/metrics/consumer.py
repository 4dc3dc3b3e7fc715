"""The consumer's metrics under Java's names.

Sources in Java: ``FetchMetricsManager``, ``ConsumerCoordinatorMetrics``,
``ConsumerRebalanceMetricsManager``, ``KafkaConsumerMetrics``. Values are recorded for each batch or
request, not for each record, and on the event loop.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.metrics.snapshot import Group
from kafkaclient.metrics.stats import Windowed, Windows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.errors import KafkaError
    from kafkaclient.metrics.snapshot import Values
    from kafkaclient.types import TopicPartition

_WINDOWS = Windows(30.0, 2)
_HEARTBEATS = ("HEARTBEAT", "CONSUMER_GROUP_HEARTBEAT")


class ConsumerMetricsSnapshot(NamedTuple):
    """All metrics of a consumer at one moment. Averages and maxima without values are NaN. A name
    that ends in ``-total`` counts since the consumer was started. Rates, averages and maxima are of
    the last minute."""

    consumer: Values
    """Of the whole consumer."""
    topics: dict[str, Values]
    """By topic, in order."""
    partitions: dict[TopicPartition, Values]
    """By partition that is assigned now, in order."""
    brokers: dict[int, Values]
    """By node id, in order (``consumer-node-metrics``)."""


class ConsumerMetrics:
    """Counts what a consumer's parts report; a :class:`~kafkaclient.net.pipeline.Meter`. ``clock``
    gives monotonic seconds; times are recorded in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._asked_at = clock()
        group = self._group = Group(_WINDOWS)
        self._records = group.meter("records-consumed")
        self._bytes = group.meter("bytes-consumed")
        self._dropped = group.meter("dropped-records")
        self._idle_ratio = group.average("poll-idle-ratio-avg")
        self._idle_since: float | None = None
        """Since when the application waits for records; None: it has some."""
        self._taken_at = self._asked_at
        self._calls = {
            "FETCH": self._call("fetch", "fetch-latency"),
            "OFFSET_COMMIT": self._call("commit", "commit-latency"),
            "JOIN_GROUP": self._call("join", "join-time"),
            "SYNC_GROUP": self._call("sync", "sync-time"),
            **dict.fromkeys(_HEARTBEATS, self._call("heartbeat", "heartbeat-response-time")),
        }
        self._fetch_size = group.spread("fetch-size")
        fetches = self._calls["FETCH"]
        group.read_by(
            "records-per-request-avg",
            lambda now: self._records.rate(now) / (fetches.frequency(now) or math.nan),
        )
        self._rebalance_s = group.rebalances()
        self._failed_rebalances = group.meter("failed-rebalance")
        self._opened = group.meter("connection-creation")
        self._closed = group.meter("connection-close")
        self._last: dict[str, float] = {}
        for what in ("heartbeat", "poll", "rebalance"):
            group.read_by(f"last-{what}-seconds-ago", lambda now, what=what: self._ago(what, now))  # type: ignore[misc]
        self._rebalancing_since: float | None = None
        self._by_node: defaultdict[int, tuple[Group, Windowed]] = defaultdict(_node)
        self._by_topic: defaultdict[str, Values] = defaultdict(
            lambda: {"records-consumed-total": 0, "bytes-consumed-total": 0}
        )

    def _call(self, name: str, latency: str) -> Windowed:
        seconds = self._group.duration(latency)
        self._group.read_by(f"{name}-rate", seconds.frequency)
        self._group.read_by(f"{name}-total", lambda _now: seconds.events)
        return seconds

    def _ago(self, what: str, now: float) -> float:
        """-1 before the first, as in Java."""
        return now - self._last[what] if what in self._last else -1.0

    # --- what the parts report --------------------------------------------------------------------

    def polled(self) -> None:
        """A loop asks for records that are not there yet: about once per batch."""
        now = self._last["poll"] = self._clock()
        if self._idle_since is None:
            self._idle_since = now

    def taken(self) -> None:
        """A member's loop goes on, though it may have found its records fetched already."""
        self._last["poll"] = self._clock()

    def asked(self) -> None:
        """An application asks for records, and waits until there are some."""
        self._asked_at = self._clock()

    @property
    def waited_s(self) -> float:
        """The time since the last :meth:`asked`."""
        return self._clock() - self._asked_at

    def consumed(self, topic: str, records: int, nbytes: int) -> None:
        """Records are handed out that were not counted before. ``nbytes``: the bytes of their keys
        and values."""
        now = self._clock()
        self._records.record(records, now)
        self._bytes.record(nbytes, now)
        if self._idle_since is not None:
            if now > self._taken_at:
                self._idle_ratio.record((now - self._idle_since) / (now - self._taken_at), now)
            self._idle_since, self._taken_at = None, now
        self._by_topic[topic]["records-consumed-total"] += records
        self._by_topic[topic]["bytes-consumed-total"] += nbytes

    def dropped(self) -> None:
        """A record could not be deserialized, and was skipped or given to ``on_error``."""
        self._dropped.record(1, self._clock())

    def joining(self) -> None:
        """The member joins its group: a rebalance begins."""
        self._rebalancing_since = self._clock()

    def rebalance_began(self) -> None:
        """The member joins again, or begins to give up or take partitions. May be called again
        before the end."""
        if self._rebalancing_since is None:
            self._rebalancing_since = self._clock()

    def rebalance_ended(self) -> None:
        """The assignment is applied. Does nothing if no rebalance has begun."""
        since, self._rebalancing_since = self._rebalancing_since, None
        if since is not None:
            now = self._last["rebalance"] = self._clock()
            self._rebalance_s.record(now - since, now)

    @property
    def rebalancing_s(self) -> float:
        """For how long a rebalance goes on; 0 if there is none."""
        since = self._rebalancing_since
        return 0.0 if since is None else self._clock() - since

    def membership_lost(self) -> None:
        """The partitions were lost."""
        self._failed_rebalances.record(1, self._clock())

    def connection_opened(self, _node_id: int) -> None:
        self._opened.record(1, self._clock())

    def connection_closed(self, _node_id: int) -> None:
        self._closed.record(1, self._clock())

    def request_sent(self, _node_id: int, _nbytes: int) -> None:
        pass

    def request_done(
        self, node_id: int, api: str, nbytes: int, latency_s: float, error: KafkaError | None
    ) -> None:
        """A response was read; a request without a response does not count."""
        if error is not None:
            return
        now = self._clock()
        self._by_node[node_id][1].record(latency_s, now)
        seconds = self._calls.get(api)
        if seconds is None:
            return
        seconds.record(latency_s, now)
        if api == "FETCH":
            self._fetch_size.record(nbytes, now)
        elif api in _HEARTBEATS:
            self._last["heartbeat"] = now

    # --- reading ----------------------------------------------------------------------------------

    def snapshot(self, lags: Mapping[TopicPartition, int | None]) -> ConsumerMetricsSnapshot:
        """The values of all metrics now. ``lags``: of the assigned partitions, None: not known."""
        known = [lag for lag in lags.values() if lag is not None]
        now = self._clock()
        values = self._group.snapshot(now) | {
            "assigned-partitions": len(lags),
            "connection-count": self._opened.total - self._closed.total,
            "records-lag": sum(known) if known else math.nan,
            "records-lag-max": max(known, default=math.nan),
        }
        partitions: dict[TopicPartition, Values] = {
            where: {"records-lag": math.nan if lag is None else lag}
            for where, lag in sorted(lags.items())
        }
        topics = {
            topic: dict(sorted(each.items())) for topic, each in sorted(self._by_topic.items())
        }
        brokers = {
            node_id: group.snapshot(now) for node_id, (group, _) in sorted(self._by_node.items())
        }
        return ConsumerMetricsSnapshot(dict(sorted(values.items())), topics, partitions, brokers)


def _node() -> tuple[Group, Windowed]:
    group = Group(_WINDOWS)
    return group, group.duration("request-latency")
