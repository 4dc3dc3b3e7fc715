"""Draws what producers do, per broker: queue, in flight, share, latency, exclusions; and what
consumers do, with the partitions that are furthest behind.

``kafkaclient top`` draws pages that it has fetched; ``perf-test`` and the demonstration draw their
own producer.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kafkaclient.cli.consumer_status import ConsumerTrends, consumer_statuses
from kafkaclient.cli.producer_status import Trends, statuses
from kafkaclient.prometheus import ProducerMetricsCollector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from prometheus_client.metrics_core import Metric
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.progress import Progress

    from kafkaclient.cli.consumer_status import ConsumerTrend
    from kafkaclient.cli.producer_status import BrokerTrend, ProducerTrend

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_SPARKS = "▁▂▃▄▅▆▇█"
_BAR = 10  # columns of a bar
_KB = 1000.0

# Terminals with fewer columns do without.
_FOR_BARS = 78
_FOR_SPARKLINES = 112
_FOR_MEDIANS = 58
_FOR_SHARES = 46


class LiveView:
    """What was seen of producers and consumers, as a renderable that fits the terminal's width."""

    def __init__(self) -> None:
        self._trends = Trends()
        self._consumer_trends = ConsumerTrends()
        self.producers: tuple[ProducerTrend, ...] = ()
        self.consumers: tuple[ConsumerTrend, ...] = ()

    def show(self, families: Iterable[Metric], now: float | None = None) -> None:
        """Show these metrics: ``registry.collect()``, or a page after its parser. ``now`` is in
        seconds of a monotonic clock."""
        now, families = time.monotonic() if now is None else now, list(families)
        self.producers = self._trends.add(now, statuses(families))
        self.consumers = self._consumer_trends.add(now, consumer_statuses(families))

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        drawn = [_producer(each, options) for each in self.producers]
        drawn += [_consumer(each, options) for each in self.consumers]
        for place, each in enumerate(drawn):
            if place:
                yield Text()
            yield each


class OwnProducerView(LiveView):
    """A view of one producer of this process: give it :attr:`metrics`, and call :meth:`refresh`."""

    def __init__(self) -> None:
        super().__init__()
        self._registry = CollectorRegistry()
        self.metrics = ProducerMetricsCollector(self._registry)

    def refresh(self) -> None:
        """Show the producer's metrics of this moment. Called on its event loop."""
        self.show(self._registry.collect(), asyncio.get_running_loop().time())


def with_view(progress: Progress, view: OwnProducerView) -> Live:
    """The view above the bar; lines of stdout go above both."""
    return Live(
        Group(view, progress),
        console=progress.console,
        auto_refresh=False,
        transient=True,
        redirect_stderr=False,
    )


def _producer(producer: ProducerTrend, options: ConsoleOptions) -> RenderableType:
    heading = Text(overflow="fold")
    heading.append(printable(producer.status.client_id), "bold")
    if not producer.status.up:
        heading.append("  not running, or its event loop does not answer", "red")
    facts = [
        f"{_count(producer.records_per_s)} records/s",
        f"{_size(producer.bytes_per_s)}/s",
        f"queue time p50 {_ms(producer.queue_p50_s)} p99 {_ms(producer.queue_p99_s)} ms",
    ]
    if producer.buffer_used is not None:
        facts.append(f"buffer {producer.buffer_used:.0%} used")
    if producer.status.waiting_tasks:
        facts.append(f"{producer.status.waiting_tasks:,.0f} tasks wait for space")
    heading.append("  " + "  ".join(facts))
    heading.append(
        f"  {producer.status.records_failed:,.0f} failed",
        "bold red" if producer.status.records_failed else "",
    )
    if producer.status.records_retried:
        heading.append(f"  {producer.status.records_retried:,.0f} retried", "yellow")
    return Group(heading, _brokers(producer.brokers, options)) if producer.brokers else heading


def _consumer(consumer: ConsumerTrend, options: ConsoleOptions) -> RenderableType:
    status = consumer.status
    heading = Text(overflow="fold")
    heading.append(printable(status.client_id), "bold")
    if not status.up:
        heading.append("  not running, or its event loop does not answer", "red")
    facts = [
        f"{_count(consumer.records_per_s)} records/s consumed",
        f"lag {_count(status.lag)} (largest {_count(status.lag_max)})",
        f"{_count(status.assigned_partitions)} partitions",
        f"{status.rebalances:,.0f} rebalances in {status.rebalance_s:,.1f} s",
    ]
    if status.last_poll_s is not None and status.last_poll_s >= 0:
        facts.append(f"polled {status.last_poll_s:,.0f} s ago")
    heading.append("  " + "  ".join(facts))
    if status.memberships_lost:
        heading.append(f"  lost its place {status.memberships_lost:,.0f} times", "bold red")
    if not status.partitions:
        return heading
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("partition", overflow="fold")
    table.add_column("lag", justify="right", no_wrap=True)
    bars = options.max_width >= _FOR_BARS and not options.ascii_only
    for where in status.partitions:
        bar = _bar(where.lag, status.partitions[0].lag) if bars else ""
        name = Text(printable(f"{where.topic}-{where.partition}"))
        table.add_row(name, _count(where.lag), Text(bar, "yellow"))
    return Group(heading, table)


def _brokers(brokers: Sequence[BrokerTrend], options: ConsoleOptions) -> Table:
    width, draws = options.max_width, not options.ascii_only
    bars, sparklines = draws and width >= _FOR_BARS, draws and width >= _FOR_SPARKLINES
    shares, medians = width >= _FOR_SHARES, width >= _FOR_MEDIANS
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in _columns(bars, sparklines, shares, medians):
        left = heading in ("", "sent", "excluded")
        # Only the last column is wrapped where there is too little space.
        table.add_column(
            heading,
            justify="left" if left else "right",
            no_wrap=heading != "excluded",
            overflow="fold",
        )
    queued = max((broker.status.queue_bytes for broker in brokers), default=0.0)
    fastest = max((rate for broker in brokers for rate in broker.history), default=0.0)
    for broker in brokers:
        cells: list[RenderableType] = [str(broker.status.broker), _size(broker.status.queue_bytes)]
        if bars:
            cells.append(Text(_bar(broker.status.queue_bytes, queued), "yellow"))
        window = "" if broker.status.window is None else f"/{broker.status.window:.0f}"
        cells.append(f"{broker.status.in_flight:.0f}{window}")
        if shares:
            cells.append("" if broker.share is None else f"{broker.share:.0%}")
        if bars:
            cells.append(Text(_bar(broker.share or 0.0, 1.0), "cyan"))
        if medians:
            cells.append(_ms(broker.p50_s))
        cells.append(_ms(broker.p99_s))
        if sparklines:
            line = _sparkline(broker.history, fastest)
            cells.append(Text.assemble((line, "green"), f" {_size(broker.bytes_per_s)}/s"))
        table.add_row(*cells, _exclusion(broker))
    return table


def _columns(bars: bool, sparklines: bool, shares: bool, medians: bool) -> Iterator[str]:
    bar = [""] if bars else []
    yield from ("broker", "queue", *bar, "in flight", *(["share"] if shares else []), *bar)
    yield from (*(["p50 ms"] if medians else []), "p99 ms", *(["sent"] if sparklines else []))
    yield "excluded"


def _exclusion(broker: BrokerTrend) -> Text:
    times = f"{broker.status.exclusions:,.0f}x" if broker.status.exclusions else ""
    if broker.status.excluded is None:
        return Text(times, "dim")
    return Text.assemble((printable(broker.status.excluded), "bold red"), f" {times}")


def printable(text: str) -> str:
    """``text`` without control characters: a page's names must not control the terminal."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def _bar(value: float, largest: float) -> str:
    eighths = round(_part(value, largest) * _BAR * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(_BAR)


def _sparkline(values: Sequence[float], largest: float, width: int = 20) -> str:
    shown = values[-width:]
    top = len(_SPARKS) - 1
    line = "".join(_SPARKS[round(_part(value, largest) * top)] for value in shown)
    return line.rjust(width)


def _part(value: float, largest: float) -> float:
    """``value / largest`` from 0 to 1; 0 for NaN, which differences of huge values can give."""
    return max(0.0, min(value / largest, 1.0)) if largest else 0.0


def _size(value: float | None) -> str:
    if value is None:
        return "?"
    for unit in ("B", "KB", "MB"):
        if value < _KB:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= _KB
    return f"{value:.1f} GB"


def _count(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:,.1f}"
