"""Subscriptions and assignments in any version.

The package writes the latest version only, but it reads all of these.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import TYPE_CHECKING

from kafkaclient.wire.api import string

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkaclient.streams import TaskId
    from kafkaclient.streams.group_protocol import AssignmentInfo, SubscriptionInfo


def ints(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}i", *numbers)


def subscription_bytes(info: SubscriptionInfo) -> bytes:
    """The subscription in ``info.version``."""
    version = info.version
    sums = sorted(info.task_offset_sums.items())
    out = ints(version)
    if version >= 3:
        out += ints(info.latest_supported_version)
    out += info.process_id.bytes
    if version < 7:
        for kind in (True, False):
            chosen = [task for task, offsets in sums if (offsets == -2) is kind]
            out += ints(len(chosen)) + b"".join(ints(*task[:2]) for task in chosen)
    if version >= 2:
        out += _text(info.user_end_point or "")
    if version >= 7:
        out += _sums(sums, version)
    if version >= 8:
        out += struct.pack(">b", info.unique_field)
    if version >= 9:
        out += ints(info.error_code)
    if version >= 11:
        out += ints(len(info.client_tags))
        out += b"".join(_text(tag) + _text(value) for tag, value in info.client_tags.items())
    return out


def _sums(sums: Sequence[tuple[TaskId, int]], version: int) -> bytes:
    if version >= 10:
        return ints(len(sums)) + b"".join(
            ints(*task[:2]) + struct.pack(">q", offsets) + string(task.topology_name or None)
            for task, offsets in sums
        )
    groups: defaultdict[int, list[bytes]] = defaultdict(list)
    for task, offsets in sums:
        groups[task.subtopology].append(struct.pack(">iq", task.partition, offsets))
    return ints(len(groups)) + b"".join(
        ints(subtopology, len(partitions)) + b"".join(partitions)
        for subtopology, partitions in groups.items()
    )


def assignment_bytes(info: AssignmentInfo) -> bytes:
    """The assignment in ``info.version``."""
    by_host = (info.hosts, info.standby_hosts)
    out = ints(info.version, info.commonly_supported_version, len(info.active_tasks))
    out += b"".join(_task(task, info.version) for task in info.active_tasks)
    out += ints(len(info.standby_tasks))
    for task, partitions in sorted(info.standby_tasks.items(), key=lambda item: item[0]):
        out += _task(task, info.version) + ints(len(partitions))
        out += b"".join(string(topic) + ints(number) for topic, number in sorted(partitions))
    topics = sorted({p.topic for hosts in by_host for found in hosts.values() for p in found})
    out += ints(len(topics))
    out += b"".join(ints(index) + string(topic) for index, topic in enumerate(topics))
    for hosts in by_host:
        out += ints(len(hosts))
        for (host, port), partitions in sorted(hosts.items(), key=lambda item: item[0]):
            out += string(host) + ints(port, len(partitions))
            out += b"".join(ints(topics.index(topic), n) for topic, n in sorted(partitions))
    return out + ints(info.error_code) + struct.pack(">q", info.next_rebalance_ms)


def _task(task: TaskId, version: int) -> bytes:
    name = task.topology_name.encode("utf-16-be")
    return ints(*task[:2]) + (ints(len(name) // 2) + name if version >= 10 else b"")


def _text(text: str) -> bytes:
    return ints(len(text.encode())) + text.encode()
