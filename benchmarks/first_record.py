"""What a new process spends until its first record is acknowledged.

``python -m benchmarks.first_record`` starts a broker; clients take turns, each in a new process.
Columns, in milliseconds: to import the client and create a producer, to start it, and until the
first record is acknowledged. The figures of a client are the medians of its processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from kafkaclient.testing.cluster import LocalCluster

_ASYNCIO = """
import asyncio, sys, time
async def main():
    began = time.perf_counter()
    {create}
    created = time.perf_counter()
    await producer.start()
    started = time.perf_counter()
    await producer.send_and_wait("first-record", b"value")
    sent = time.perf_counter()
    print(created - began, started - created, sent - started)
    await producer.stop()
asyncio.run(main())
"""
_CLIENTS = {
    "kafkaclient": _ASYNCIO.format(
        create="import kafkaclient; producer = kafkaclient.Producer(sys.argv[1])"
    ),
    "aiokafka": _ASYNCIO.format(
        create="import aiokafka; "
        "producer = aiokafka.AIOKafkaProducer(bootstrap_servers=sys.argv[1])"
    ),
    "confluent-kafka": """
import sys, time
began = time.perf_counter()
import confluent_kafka
producer = confluent_kafka.Producer({"bootstrap.servers": sys.argv[1], "linger.ms": 0})
created = time.perf_counter()
producer.produce("first-record", b"value")
assert producer.flush(30) == 0
sent = time.perf_counter()
print(created - began, 0, sent - created)
""",
}


async def _measure(rounds: int) -> dict[str, list[list[float]]]:
    found: dict[str, list[list[float]]] = {name: [] for name in _CLIENTS}
    # Programs keep the bytecode of what they import; a first round writes it.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    async with LocalCluster(brokers=1) as cluster:
        for turn in range(rounds + 1):
            for name, program in _CLIENTS.items():
                command = [sys.executable, "-c", program, cluster.bootstrap]
                ran = await asyncio.to_thread(
                    subprocess.run, command, env=environment, stdout=subprocess.PIPE, check=True
                )
                if turn:
                    found[name].append([1e3 * float(part) for part in ran.stdout.split()])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, help="keep the figures of all processes here, as JSON")
    given = parser.parse_args()
    found = asyncio.run(_measure(given.rounds))
    if given.out is not None:
        given.out.write_text(json.dumps(found), encoding="utf-8")
    print(f"{'ms':16} {'import, create':>15} {'start':>7} {'first record':>13}")
    for name, rounds in found.items():
        create, start, first = (median(column) for column in zip(*rounds, strict=True))
        print(f"{name:16} {create:15.1f} {start:7.1f} {first:13.1f}")


if __name__ == "__main__":
    main()
