"""What telemetry costs: ``python -m benchmarks.telemetry_cost``.

Producers without and with telemetry take turns in one process, so that they meet the same moments
of the machine. Each turn sends records with ``send_nowait`` in pieces of 250 as fast as it can, and
waits for their outcome. ``loop`` is CPU time of the event loop's thread, ``process`` has the thread
that writes files, too, ``wall`` is elapsed time; each as a ratio to the turn without telemetry of
the same round. ``--bootstrap`` names a real broker; otherwise the brokers are in memory, and their
CPU time counts on both sides.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import time
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from kafkaclient import Producer
from kafkaclient.errors import BufferFullError
from kafkaclient.testing.fake import FakeCluster

__all__ = ["main", "measure"]

PIECE = 250
TOPIC = "telemetry-cost"


class Turn(NamedTuple):
    """Microseconds per record."""

    loop: float
    process: float
    wall: float


async def turn(producer: Producer, records: int, value: bytes) -> Turn:
    gc.collect()
    begun = time.thread_time(), time.process_time(), time.perf_counter()
    for _ in range(records // PIECE):
        for _ in range(PIECE):
            while True:
                try:
                    producer.send_nowait(TOPIC, value)
                    break
                except BufferFullError:
                    await asyncio.sleep(0.001)
        await asyncio.sleep(0)
    await producer.flush()
    ended = time.thread_time(), time.process_time(), time.perf_counter()
    return Turn(*((b - a) / records * 1e6 for a, b in zip(begun, ended, strict=True)))


async def measure(
    rounds: int, records: int, value: bytes, folder: Path, bootstrap: str | None, **options: Any
) -> list[dict[str, Any]]:
    """The medians of each way, in microseconds per record, and their ratios."""
    fake = FakeCluster(3)
    where: dict[str, Any] = {} if bootstrap else {"dialer": fake}
    ways = {
        "off": {},
        "files": {"telemetry": folder},
        "files, a tenth": {"telemetry": folder / "tenth", "telemetry_sample": 0.1},
        "topic": {"telemetry": f"topic:{TOPIC}-facts"},
    }
    turns: dict[str, list[Turn]] = {name: [] for name in ways}
    async with AsyncExitStack() as stack:
        producers = {
            name: await stack.enter_async_context(
                Producer(bootstrap or fake.bootstrap, **where, **options, **way)
            )
            for name, way in ways.items()
        }
        for number in range(rounds + 1):
            names = list(ways)[:: 1 if number % 2 else -1]
            for name in names:
                took = await turn(producers[name], records, value)
                if number:  # the first one is a warm-up
                    turns[name].append(took)
        batches = producers["files"].metrics().producer["telemetry-batches-recorded-total"]
    return [
        {"way": name, "batches": batches if name == "files" else None}
        | {
            field: round(statistics.median(getattr(t, field) for t in own), 3)
            for field in Turn._fields
        }
        | {
            f"{field}_ratio": round(
                statistics.median(
                    getattr(a, field) / getattr(b, field)
                    for a, b in zip(own, turns["off"], strict=True)
                ),
                3,
            )
            for field in Turn._fields
        }
        for name, own in turns.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="turns of each way")
    parser.add_argument("--records", type=int, default=100_000, help="records of a turn")
    parser.add_argument("--record-size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--batch-size", type=int, default=16_384)
    parser.add_argument("--bootstrap", help="a real broker, host:port")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        rows = asyncio.run(
            measure(
                given.rounds,
                given.records,
                bytes(given.record_size),
                Path(folder),
                given.bootstrap,
                batch_size=given.batch_size,
                linger_ms=5,
            )
        )
    if given.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(
            f"{row['way']:15}"
            + "; ".join(
                f"{name} {row[name]:6.3f} us, {row[f'{name}_ratio']:5.3f} times"
                for name in Turn._fields
            )
        )


if __name__ == "__main__":
    main()
