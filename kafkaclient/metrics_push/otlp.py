"""Points as OpenTelemetry's ``MetricsData`` (OTLP v1), the content of PushTelemetry.

The message is written by hand. It has five kinds of fields, OpenTelemetry's promise of stability,
and a test reads it with OpenTelemetry's own classes. Those need protobuf, which applications often
have in a version of their own choice; and a client must push with what is installed.
"""

from __future__ import annotations

import struct
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from kafkaclient.wire.api import uvarint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kafkaclient.metrics_push.points import Key, Point

_BYTES = 2  # the wire type of strings and messages
_DELTA, _CUMULATIVE = b"\x10\x01", b"\x10\x02"  # Sum.aggregation_temporality
_MONOTONIC = b"\x18\x01"  # Sum.is_monotonic
_SINCE = struct.Struct("<BQ")  # NumberDataPoint.start_time_unix_nano, field 2
_VALUE = struct.Struct("<BQBd")  # time_unix_nano and as_double, fields 3 and 4
_SINCE_TAG, _TIME_TAG, _DOUBLE_TAG = 0x11, 0x19, 0x21


class Counters:
    """What was pushed of counters, from which deltas are computed. Times are Unix time in ns."""

    def __init__(self, began_ns: int) -> None:
        self._began_ns = began_ns
        self._pushed: dict[Key, tuple[int, float]] = {}

    def delta(self, point: Point) -> tuple[int, float]:
        """Since when which value was added."""
        since_ns, before = self._pushed.get(point.key, (self._began_ns, 0.0))
        has_begun_again = before > point.value
        return since_ns, point.value if has_begun_again else point.value - before

    def total(self, point: Point) -> tuple[int, float]:
        """Since when it was counted, and up to which value."""
        return self._began_ns, point.value

    def pushed(self, points: Iterable[Point], at_ns: int, known: Iterable[Point]) -> None:
        """A broker has taken these points as deltas. ``known``: all that there are now; others are
        forgotten."""
        self._pushed |= {p.key: (at_ns, p.value) for p in points if p.is_counter}
        gone = self._pushed.keys() - {point.key for point in known}
        for key in gone:
            del self._pushed[key]


def metrics_data(
    points: Sequence[Point],
    resource: Mapping[str, str],
    counters: Counters,
    at_ns: int,
    *,
    delta: bool,
) -> bytes:
    """The encoded points. ``resource`` has the attributes of the client. ``delta`` chooses between
    deltas and totals of counters."""
    temporality, read = (_DELTA, counters.delta) if delta else (_CUMULATIVE, counters.total)
    metrics = bytearray()
    for name, same in groupby(sorted(points, key=itemgetter(0)), key=itemgetter(0)):
        data = bytearray()
        is_counter = False
        for point in same:
            is_counter = point.is_counter
            since_ns, value = read(point) if is_counter else (0, point.value)
            start = _SINCE.pack(_SINCE_TAG, since_ns) if is_counter else b""
            number = start + _VALUE.pack(_TIME_TAG, at_ns, _DOUBLE_TAG, value)
            data += _field(1, number + _attributes(7, point.attributes))
        metric = _field(1, name.encode())
        if is_counter:
            metric += _field(7, bytes(data) + temporality + _MONOTONIC)
        else:
            metric += _field(5, bytes(data))
        metrics += _field(2, metric)
    return _field(1, _field(1, _attributes(1, resource.items())) + _field(2, bytes(metrics)))


def _attributes(number: int, attributes: Iterable[tuple[str, str]]) -> bytes:
    return b"".join(
        _field(number, _field(1, key.encode()) + _field(2, _field(1, text.encode())))
        for key, text in attributes
    )


def _field(number: int, content: bytes) -> bytes:
    return uvarint(number << 3 | _BYTES) + uvarint(len(content)) + content
