"""Pages as a producer would have them, with the values that a test wants."""

from __future__ import annotations

from kafkaclient.cli.producer_status import BrokerFigures, ProducerStatus
from kafkaclient.prometheus.collector import SECONDS, Counts, Histogram


def times(*seconds: float) -> Counts:
    histogram = Histogram(SECONDS)
    for value in seconds:
        histogram.observe(value)
    return histogram.read()


def broker(number: int, produced_bytes: float = 0.0, **values: object) -> BrokerFigures:
    zero = BrokerFigures(number, 0.0, 0.0, 0.0, 5.0, produced_bytes, None, 0.0, None)
    return zero._replace(**values)


def producer(*brokers: BrokerFigures, **values: object) -> ProducerStatus:
    zero = ProducerStatus("orders", True, 0.0, 0.0, 0.0, 75.0, 100.0, 0.0, None, brokers)
    return zero._replace(**values)
