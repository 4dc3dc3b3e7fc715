"""The demonstration's picture over time: bytes, queue and requests in flight of each broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.figures import broker_line
from kafkaclient.pages import Column, panels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from experiments.demo.experiment import DemoRun
    from experiments.demo.sampler import Samples
    from kafkaclient.pages import Figure, Trace
    from kafkaclient.perf.traffic import BrokerTraffic

__all__ = ["gauges"]

_BIN_S = 0.5
_COLUMNS = (
    Column("sent, MB/s", matched=True),
    Column("queued, KB"),  # queues differ too much for one scale
    Column("requests in flight", matched=True),
)


def gauges(runs: Sequence[DemoRun]) -> Figure:
    """Bytes, queue and requests in flight of each broker over time: a row for each run."""
    return panels(
        _COLUMNS,
        [
            (
                run.setting.name,
                [
                    [_line(broker, of(run.samples, broker)) for broker in _brokers(run.samples)]
                    for of in (_sent_rate, _queued, _in_flight)
                ],
            )
            for run in runs
        ],
    )


def _line(broker: int, values: Sequence[float]) -> Trace:
    seconds = [round((place + 0.5) * _BIN_S, 2) for place in range(len(values))]
    return broker_line(broker, seconds, [round(value, 3) for value in values])


def _brokers(samples: Samples) -> list[int]:
    return [broker.node_id for broker in samples.traffic[-1].brokers] if samples.traffic else []


def _sent_rate(samples: Samples, broker: int) -> list[float]:
    rates: list[float] = []
    last = 0.0
    for group in _bins(samples, broker):
        # An empty bin keeps the line going; the bytes count in the next.
        now = float(group[-1].bytes_sent) if group else last
        rates.append((now - last) / _BIN_S / 1e6)
        last = now
    return rates


def _queued(samples: Samples, broker: int) -> list[float]:
    return [_mean([b.queued_bytes or 0 for b in group]) / 1e3 for group in _bins(samples, broker)]


def _in_flight(samples: Samples, broker: int) -> list[float]:
    return [_mean([b.in_flight_requests or 0 for b in group]) for group in _bins(samples, broker)]


def _bins(samples: Samples, broker: int) -> Iterator[list[BrokerTraffic]]:
    bins: dict[int, list[BrokerTraffic]] = {}
    for seconds, traffic in zip(samples.seconds, samples.traffic, strict=True):
        group = bins.setdefault(int(seconds / _BIN_S), [])
        group.extend(found for found in traffic.brokers if found.node_id == broker)
    for number in range(max(bins, default=-1) + 1):
        yield bins.get(number, [])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
