"""Rebalances and evictions of a group, as the brokers' coordinators log them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkaclient.testing.cluster import ClusterHandle

__all__ = ["EVICTED", "REBALANCED", "GroupEvent", "group_events", "read_group_log"]

REBALANCED, EVICTED = "rebalanced", "evicted"

_TIME = r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{3}) "


class GroupEvent(NamedTuple):
    """Something that happened to the group."""

    kind: str
    """:data:`REBALANCED`: a new generation is complete; :data:`EVICTED`: a member's session timed
    out, or it did not join in time."""
    at: float
    """Seconds since 1970."""


def group_events(lines: Iterable[str], group: str) -> list[GroupEvent]:
    """The events of ``group`` in the log of a broker."""
    name = re.escape(group)
    known = (
        (REBALANCED, re.compile(rf"{_TIME}.*Stabilized group {name} generation ")),
        (EVICTED, re.compile(rf"{_TIME}.*Member .* in group {name} has failed, removing it")),
        (EVICTED, re.compile(rf"{_TIME}.*Group {name} removed .*members who haven't joined")),
    )
    return [
        GroupEvent(kind, datetime.fromisoformat(found["time"]).timestamp())
        for line in lines
        if f"roup {group} " in line
        for kind, pattern in known
        if (found := pattern.match(line)) is not None
    ]


def read_group_log(cluster: ClusterHandle, group: str) -> list[GroupEvent]:
    """The events of ``group`` on all brokers of a local cluster so far, in the order of time."""
    events: list[GroupEvent] = []
    for broker in cluster.brokers:
        with cluster.log_file(broker).open(encoding="utf-8", errors="replace") as lines:
            events += group_events(lines, group)
    return sorted(events, key=lambda event: event.at)
