"""All entries, in the order in which each round runs them.

What is compared stands together, so that whatever else the machine does meets both.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from benchmarks.produce.entry import FLIGHTS, Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "AIO",
    "ALL",
    "CONFLUENT",
    "DROP_IN",
    "FRANZ",
    "JAVA",
    "KAFKA_PYTHON",
    "OURS",
    "PEER",
    "RAW",
    "choose",
]

OURS = "kafkaclient"
DROP_IN = "drop-in"
"""This package's producer behind aiokafka's API."""
PEER = "aiokafka"
CONFLUENT = "confluent"
AIO = "confluent AIOProducer"
KAFKA_PYTHON = "kafka-python"
JAVA = "java"
FRANZ = "franz-go"
RAW = "raw socket"

_KB = 1024

ALL = (
    Entry(client=OURS, setting="send_nowait", way="send_nowait"),
    Entry(
        client=RAW,
        setting="batches as send_nowait's",
        way="stream",
        like=f"{OURS}: send_nowait",
    ),
    Entry(client=CONFLUENT, setting="produce", way="produce"),
    Entry(client=JAVA, setting="perf tool", way="perf_tool"),
    Entry(client=FRANZ, setting="the same load", way="perf_tool"),
    Entry(client=PEER, setting="send", way="send"),
    Entry(client=DROP_IN, setting="send", way="send"),
    Entry(client=PEER, setting="send, futures awaited", way="send_awaited"),
    Entry(client=DROP_IN, setting="send, futures awaited", way="send_awaited"),
    Entry(client=OURS, setting="send, handles awaited", way="send"),
    Entry(client=OURS, setting="send_nowait, asyncio's loop", way="send_nowait", loop="asyncio"),
    Entry(client=PEER, setting="send, asyncio's loop", way="send", loop="asyncio"),
    Entry(client=OURS, setting="send_nowait, keyed", way="send_nowait", keyed=True),
    Entry(client=CONFLUENT, setting="produce, keyed", way="produce", keyed=True),
    Entry(client=OURS, setting="send_nowait, one header", way="send_nowait_header"),
    Entry(client=CONFLUENT, setting="produce, one header", way="produce_header"),
    Entry(client=OURS, setting="send, handles dropped", way="send_dropped"),
    Entry(client=OURS, setting="send_many", way="send_many"),
    Entry(client=OURS, setting="send_many, keyed", way="send_many", keyed=True),
    Entry(client=CONFLUENT, setting="produce_batch", way="produce_batch"),
    Entry(client=OURS, setting="send_arrow", way="send_arrow"),
    Entry(client=OURS, setting="send_arrow, keyed", way="send_arrow", keyed=True),
    Entry(client=RAW, setting="batches of 16 KB", way="stream", batch_bytes=16 * _KB),
    Entry(client=RAW, setting="batches of 100 KB", way="stream", batch_bytes=100 * _KB),
    Entry(client=RAW, setting="batches of 1 MB", way="stream", batch_bytes=1024 * _KB),
    Entry(client=KAFKA_PYTHON, setting="send", way="send", slow=2),
    Entry(client=AIO, setting="produce", way="produce", slow=2),
    # 1 KB values
    Entry(client=OURS, setting="send_nowait, 1 KB", way="send_nowait", value_bytes=_KB),
    Entry(
        client=RAW,
        setting="batches as send_nowait's, 1 KB",
        way="stream",
        value_bytes=_KB,
        like=f"{OURS}: send_nowait, 1 KB",
    ),
    Entry(client=CONFLUENT, setting="produce, 1 KB", way="produce", value_bytes=_KB),
    Entry(client=PEER, setting="send, 1 KB", way="send", value_bytes=_KB, slow=2),
    Entry(client=JAVA, setting="perf tool, 1 KB", way="perf_tool", value_bytes=_KB, slow=2),
    Entry(client=FRANZ, setting="the same load, 1 KB", way="perf_tool", value_bytes=_KB, slow=2),
    # compression
    *(
        Entry(
            client=client,
            setting=f"{way}, flights, {codec}",
            way=way,
            value_bytes=FLIGHTS,
            compression=codec,
        )
        for codec in ("none", "lz4", "zstd")
        for client, way in ((OURS, "send_nowait"), (CONFLUENT, "produce"))
    ),
    # one awaited record at a time, and many at once
    *(
        Entry(
            client=client,
            setting="send_and_wait, 1 task, linger 0",
            way="send_and_wait",
            linger_ms=0.0,
            slow=50,
        )
        for client in (OURS, PEER)
    ),
    Entry(client=RAW, setting="round trip of 1 record", way="round_trip", linger_ms=0.0, slow=50),
    Entry(client=OURS, setting="send_and_wait, 1 task", way="send_and_wait", slow=50),
    *(
        Entry(
            client=client,
            setting=f"send_and_wait, {tasks} tasks",
            way="send_and_wait",
            tasks=tasks,
            slow=1000 // tasks,
        )
        for tasks in (10, 100, 1000)
        for client in (OURS, PEER, *((DROP_IN,) if tasks == 1000 else ()))
    ),
    Entry(client=AIO, setting="send_and_wait, 1000 tasks", way="send_and_wait", tasks=1000),
    *(
        Entry(
            client=client,
            setting="FastStream publish, 1000 tasks",
            way="faststream",
            tasks=1000,
        )
        for client in (DROP_IN, PEER)
    ),
    # the event loop, beside the same load on the broker
    Entry(client=OURS, setting="event loop, send_nowait", way="ticking_send_nowait"),
    Entry(client=OURS, setting="event loop, send_many", way="ticking_send_many"),
    Entry(client=OURS, setting="event loop, idle beside a busy producer", way="ticking_idle"),
    # memory
    Entry(
        client=OURS,
        setting="overload, 1 KB",
        way="overload",
        value_bytes=_KB,
        overload=True,
    ),
    # scale
    Entry(client=OURS, setting="6 partitions", way="send_nowait_then_idle", stage="scale"),
    Entry(
        client=OURS,
        setting="10,000 partitions",
        way="send_nowait_then_idle",
        partitions=10_000,
        stage="scale",
    ),
)


def choose(patterns: Sequence[str]) -> list[Entry]:
    """The entries of which a pattern (with * and ?) is the client, the setting, or both as
    ``client: setting``; and those whose batches theirs are like. All of them without patterns."""
    if not patterns:
        return list(ALL)
    found = {
        entry.name
        for entry in ALL
        for name in (entry.client, entry.setting, entry.name)
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    found |= {entry.like for entry in ALL if entry.name in found and entry.like}
    return [entry for entry in ALL if entry.name in found]
