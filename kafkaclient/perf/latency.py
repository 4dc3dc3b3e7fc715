"""Latencies of acknowledged records, and the growth of memory and tasks in a run.

Recording is on the load's hot path, so it only adds to sums and to arrays, once for all records
with the same latency. The histogram is filled once, after the run.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

from hdrh.histogram import HdrHistogram

from kafkaclient.config import ReaderConfig
from kafkaclient.errors import KafkaError, MetadataTimeoutError
from kafkaclient.spark.client_cache import LoopThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kafkaclient.net.dialer import Dialer
    from kafkaclient.types import TopicPartition


# --- The number of records that arrive in a topic -------------------------------------------------

_EVERY_S = 0.5
_TIMEOUT_MS = 5_000


class TopicGrowth:
    """Counts the records that arrive in a topic from its start on, by the partitions' end offsets.

    ``config`` is a producer's, by Kafka's names; only the options that a reader also has are used.
    Everything appended counts: other producers' records, records of aborted transactions, and
    a marker for each partition of a transaction.
    """

    def __init__(
        self, config: Mapping[str, str], topic: str, *, dialer: Dialer | None = None
    ) -> None:
        own = (each for each in ReaderConfig.OPTIONS.values() if each.name != "max_block_ms")
        known = {spelling for option in own for spelling in option.spellings}
        options = {name: value for name, value in config.items() if name in known}
        from kafkaclient.reader import Reader  # noqa: PLC0415 - not for the help of perf-test

        self._reader = Reader({**options, "max.block.ms": _TIMEOUT_MS}, dialer=dialer)
        self._topic = topic
        self._starts: dict[TopicPartition, int] = {}

    async def start(self) -> None:
        """Connect, and read the end offsets; they count as 0 if the topic does not exist after 5 s.

        Raises what :meth:`kafkaclient.reader.Reader.start` and its ``offsets`` raise, and closes
        everything before.
        """
        try:
            await self._reader.start()
            with suppress(MetadataTimeoutError):
                self._starts = await self._reader.offsets(self._topic, at="latest")
        except BaseException:
            await self.close()
            raise

    async def records(self) -> int:
        """The number of records since the start.

        Raises what :meth:`kafkaclient.reader.Reader.offsets` raises; a retriable error after 5 s.
        """
        ends = await self._reader.offsets(self._topic, at="latest")
        return sum(end - self._starts.get(tp, 0) for tp, end in ends.items())

    async def close(self) -> None:
        await self._reader.close()


@contextmanager
def growth_followed(
    config: Mapping[str, str], topic: str, on_progress: Callable[[int], None]
) -> Iterator[None]:
    """Call ``on_progress`` on a thread, twice a second, with the number of records so far.

    It is not called while brokers do not answer, or while the topic does not exist, or if the topic
    cannot be described. The producers report such errors.
    """
    with LoopThread("kafkaclient-topic-growth") as loop:
        _following = loop.run(_begun(config, topic, on_progress))  # ends with the loop
        yield


async def _begun(
    config: Mapping[str, str], topic: str, on_progress: Callable[[int], None]
) -> asyncio.Task[None] | None:
    try:
        growth = TopicGrowth(config, topic)
        await growth.start()
    except (KafkaError, OSError):
        return None
    return asyncio.create_task(_follow(growth, on_progress))


async def _follow(growth: TopicGrowth, on_progress: Callable[[int], None]) -> None:
    try:
        while True:
            await asyncio.sleep(_EVERY_S)
            with suppress(KafkaError, OSError):
                on_progress(await growth.records())
    finally:
        await growth.close()


# --- Latencies of acknowledged records: windows during the run ------------------------------------

_MB = 1024.0 * 1024.0
_HIGHEST_US = 3_600_000_000
_SIGNIFICANT_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Window:
    """The records acknowledged in one reporting interval."""

    records: int
    nbytes: int
    seconds: float
    avg_ms: float
    max_ms: float

    def line(self) -> str:
        """The window as Kafka's ``kafka-producer-perf-test`` prints it."""
        return (
            f"{self.records} records sent, {_per(self.records, self.seconds):.1f} records/sec "
            f"({_per(self.nbytes, self.seconds) / _MB:.2f} MB/sec), "
            f"{self.avg_ms:.1f} ms avg latency, {self.max_ms:.1f} ms max latency."
        )


class Distribution:
    """Latencies in an HDR histogram: microseconds to an hour, three significant digits."""

    def __init__(self, latencies_s: array[float], counts: Iterable[int] = repeat(1)) -> None:
        """``counts``: the number of records with each of the latencies."""
        self.max_ms = max(latencies_s, default=0.0) * 1e3
        self._histogram = HdrHistogram(1, _HIGHEST_US, _SIGNIFICANT_DIGITS)
        records: Counter[int] = Counter()
        for latency, count in zip(latencies_s, counts, strict=False):
            records[int(latency * 1e6)] += count
        for microseconds, count in records.items():
            self._histogram.record_value(min(max(microseconds, 1), _HIGHEST_US), count)

    @classmethod
    def merged(cls, parts: Iterable[Distribution]) -> Distribution:
        """The distribution of all records of the parts."""
        whole = cls(array("f"))
        for part in parts:
            whole._histogram.add(part._histogram)
            whole.max_ms = max(whole.max_ms, part.max_ms)
        return whole

    def __reduce__(self) -> tuple[Any, ...]:
        # A histogram cannot be pickled, except in HdrHistogram's own format.
        return self._decoded, (self._histogram.encode(), self.max_ms)

    @classmethod
    def _decoded(cls, encoded: bytes, max_ms: float) -> Distribution:
        found = cls(array("f"))
        found._histogram = HdrHistogram.decode(encoded)
        found.max_ms = max_ms
        return found

    @property
    def count(self) -> int:
        return int(self._histogram.get_total_count())

    def percentile_ms(self, percentile: float) -> float | None:
        """The latency in ms that ``percentile`` percent of the records do not exceed."""
        if not self.count:
            return None
        value: int = self._histogram.get_value_at_percentile(percentile)
        return min(value / 1e3, self.max_ms)


@dataclass(frozen=True, slots=True)
class Summary:
    """A whole run: the figures of the last line of Kafka's tool, and their distribution."""

    records: int
    nbytes: int
    seconds: float
    avg_ms: float | None
    distribution: Distribution

    @property
    def records_per_s(self) -> float:
        return _per(self.records, self.seconds)

    @property
    def mb_per_s(self) -> float:
        return _per(self.nbytes, self.seconds) / _MB

    @property
    def max_ms(self) -> float | None:
        return self.distribution.max_ms if self.records else None

    def line(self, steady_state: bool = False) -> str:
        """The final line as Kafka's ``kafka-producer-perf-test`` prints it."""
        percentiles = ", ".join(
            f"{int(self.distribution.percentile_ms(percentile) or 0.0)} ms {label}"
            for percentile, label in ((50, "50th"), (95, "95th"), (99, "99th"), (99.9, "99.9th"))
        )
        avg = "NaN" if self.avg_ms is None else f"{self.avg_ms:.2f}"
        return (
            f"{self.records}{' steady state' if steady_state else ''} records sent, "
            f"{self.records_per_s:f} records/sec ({self.mb_per_s:.2f} MB/sec), "
            f"{avg} ms avg latency, {self.max_ms or 0.0:.2f} ms max latency, {percentiles}."
        )


class LatencyRecorder:
    """Takes all acknowledged records; calls ``on_window`` after each reporting interval.

    As in Java's ``ProducerPerformance.Stats``, a window ends with the first records acknowledged
    after its interval. While no record is acknowledged, no window is reported.
    """

    def __init__(
        self, start: float, interval_s: float, on_window: Callable[[Window], None] | None = None
    ) -> None:
        self._start = self._window_start = start
        self._interval = interval_s
        self._on_window = on_window
        # Single precision is exact to 0.1 µs for a latency of a second, in half the memory.
        self._latencies = array("f")
        self._counts = array("L")
        self.count = 0
        """Records so far."""
        self._bytes = self._window_bytes = 0
        self._total = self._window_total = 0.0
        self._window_count = 0
        self._window_max = 0.0

    def record(self, started: float, finished: float, count: int, nbytes: int) -> None:
        """Take ``count`` records with the same latency, and ``nbytes`` bytes together."""
        latency = finished - started
        self._latencies.append(latency)
        self._counts.append(count)
        self.count += count
        self._bytes += nbytes
        self._total += latency * count
        if latency > self._window_max:  # noqa: PLR1730 - max() would cost a call per record
            self._window_max = latency
        if finished - self._window_start >= self._interval:
            self._end_window(finished)

    def mute(self) -> None:
        """Report no more windows; another recorder reports the following ones."""
        self._on_window = None

    def summary(self, finished: float) -> Summary:
        """The summary of all records; rates refer to the time until ``finished``."""
        count = self.count
        return Summary(
            records=count,
            nbytes=self._bytes,
            seconds=finished - self._start,
            avg_ms=self._total / count * 1e3 if count else None,
            distribution=Distribution(self._latencies, self._counts),
        )

    def _end_window(self, now: float) -> None:
        records = self.count - self._window_count
        if self._on_window is not None:
            self._on_window(
                Window(
                    records=records,
                    nbytes=self._bytes - self._window_bytes,
                    seconds=now - self._window_start,
                    avg_ms=(self._total - self._window_total) / records * 1e3,
                    max_ms=self._window_max * 1e3,
                )
            )
        self._window_start = now
        self._window_count = self.count
        self._window_bytes = self._bytes
        self._window_total = self._total
        self._window_max = 0.0


def _per(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0
